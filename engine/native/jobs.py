"""What a team is asked to do, in compiled code, and how its helpers wait for it."""

from __future__ import annotations

from enum import IntEnum

from engine.native.decoder import WORDS, Part, run_layers
from engine.native.frame import FRAME_WORDS, LANE_WORDS, Parts, run_frame
from engine.native.memory import (
    ASLEEP,
    STARTED,
    compiled,
    compiled_for,
    floats,
    longs,
    meet,
)
from engine.native.product import RESULTS_NBYTES, product, quantise
from engine.native.vector import add_at, pause, read_at, system_call

PRODUCT, STACK, FRAME, END = range(4)


class Job(IntEnum):
    """Words of a job, most of them addresses."""

    KIND = 0
    WHAT = 1  # a product's words, a stack's or a predictor's
    COUNT = 2  # rows, or lanes of a frame
    INPUTS = 3  # F32; a stack's outputs take their place; a frame's hidden states
    OUTPUTS = 4  # of a product F32[rows, results], of a frame codes int64[lanes, steps]
    SLOTS = 5  # int64[rows]
    POSITIONS = 6
    FIRST = 7  # F32[lanes, width]
    TOTALS = 8
    LANE = 9  # the first
    DRAWS = 10


JOB_WORDS = len(Job)
PRODUCT_JOB_WORDS = 7  # weights, scales, bits, width, results, quantised inputs, threads' results
_SPINS = 4_000
_FUTEX, _WAIT, _WAKE = 202, 128, 129  # a system call of x86-64, and what it is to do


@compiled
def _run_product(job, team, own, control):
    rows, words = job[Job.COUNT], longs(job[Job.WHAT], PRODUCT_JOB_WORDS)
    width, results, inputs = words[3], words[4], words[5]
    x, out = floats(job[Job.INPUTS], rows * width), floats(job[Job.OUTPUTS], rows * results)
    for row in range(own, rows, team):
        quantise(x[row * width :], width, width, 0, row, rows, words[2], inputs)
    meet(control, team, own)
    own_at = words[6] + own * RESULTS_NBYTES
    product(words, width, results, rows, inputs, out, False, own_at, team, own)
    meet(control, team, own)


@compiled
def _run_stack(job, team, own, control):
    stack = longs(job[Job.WHAT], WORDS)
    rows = job[Job.COUNT]
    x = floats(job[Job.INPUTS], rows * stack[Part.HIDDEN])
    slots, positions = longs(job[Job.SLOTS], rows), longs(job[Job.POSITIONS], rows)
    run_layers(x, rows, slots, positions, stack, team, own, control)


@compiled
def _run_frame(job, team, own, control):
    words, lanes = longs(job[Job.WHAT], FRAME_WORDS), job[Job.COUNT]
    width, lane = words[Parts.WIDTH], job[Job.LANE]
    hidden, first = floats(job[Job.INPUTS], lanes * width), floats(job[Job.FIRST], lanes * width)
    codes = longs(job[Job.OUTPUTS], lanes * words[Parts.STEPS])
    total = floats(job[Job.TOTALS], lanes * width)
    draws = longs(job[Job.DRAWS], LANE_WORDS)
    run_frame(hidden, first, lanes, lane, draws, words, codes, total, team, own, control)


@compiled
def _work(job, team, own, control):
    words = longs(job, JOB_WORDS)
    if words[Job.KIND] == PRODUCT:
        _run_product(words, team, own, control)
    elif words[Job.KIND] == STACK:
        _run_stack(words, team, own, control)
    else:
        _run_frame(words, team, own, control)


@compiled
def _wake(control):
    """Let the team begin what `job` says, or end."""
    add_at(control + 8 * STARTED, 1)
    if read_at(control + 8 * ASLEEP) > 0:
        system_call(_FUTEX, control + 8 * STARTED, _WAKE, 1 << 30, 0)


@compiled_for("void(int64, int64, int64, int64)")
def run(control, job, team, own):
    """The thread 0 does one job with the team; the others do every job until the last.

    One function, so that all it calls is compiled once.
    """
    address, done = control + 8 * STARTED, 0
    if own == 0:
        _wake(control)
        done = -1
    while True:
        spins = 0
        while own > 0 and read_at(address) == done:
            spins += 1
            if spins < _SPINS:
                pause()
                continue
            add_at(control + 8 * ASLEEP, 1)
            system_call(_FUTEX, address, _WAIT, done & 0xFFFFFFFF, 0)
            add_at(control + 8 * ASLEEP, -1)
        done += 1
        if longs(job, JOB_WORDS)[Job.KIND] == END:
            return
        _work(job, team, own, control)
        if own == 0:
            return
