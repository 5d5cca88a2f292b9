"""Quantised inputs and their products with packed weights, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.native.memory import compiled, floats, ints, share
from engine.native.vector import BLOCK, LANES, ROWS, as_bits, as_float, dot, nearest

ROWS_AT_ONCE = 32  # inputs of one job
RESULTS_NBYTES = 4 * LANES * ROWS  # what `multiply` makes


def _by_lanes(bits: int) -> Any:
    """`dot` for weights of `bits`, the number of lanes being its first argument."""
    one, two, three, four, five, six, seven, eight = (
        dot(lanes, bits) for lanes in range(1, LANES + 1)
    )

    @compiled
    def multiply_lanes(lanes, weights, scales, values, value_scales, starts, out, blocks):
        if lanes == 1:
            one(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 2:
            two(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 3:
            three(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 4:
            four(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 5:
            five(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 6:
            six(weights, scales, values, value_scales, starts, out, blocks)
        elif lanes == 7:
            seven(weights, scales, values, value_scales, starts, out, blocks)
        else:
            eight(weights, scales, values, value_scales, starts, out, blocks)

    return multiply_lanes


_multiply8, _multiply4 = _by_lanes(8), _by_lanes(4)


@compiled
def quantise(x, count, width, start, row, rows, bits, into):
    """`count` values of x, which are those from `start` of a row of `width`, in whole blocks.

    They become int8 with a scale per block, beside those of the other rows, and a sum that takes
    back what weights of `bits` are above signed ones. `into` holds values, scales and sums of
    ROWS_AT_ONCE rows.
    """
    values, scales, starts = inputs(into, width)
    chunk, lane = row // LANES, row % LANES
    lanes = min(LANES, rows - LANES * chunk)
    blocks = width // BLOCK
    place = chunk * LANES * (width // 4) + (start // 4) * lanes + lane
    scale_place = chunk * LANES * blocks + (start // BLOCK) * lanes + lane
    offset = np.int32(-128) if bits == 8 else np.int32(-8)
    for block in range(count // BLOCK):
        given = x[block * BLOCK : (block + 1) * BLOCK]
        top = np.int32(0)
        for i in range(BLOCK):
            top = max(top, as_bits(given[i]) & np.int32(0x7FFFFFFF))
        largest = as_float(top)
        factor = np.float32(127.0) / largest if largest > np.float32(0.0) else np.float32(0.0)
        total = np.int32(0)
        for quad in range(BLOCK // 4):
            a, b, c, d = (
                np.int32(nearest(given[4 * quad] * factor)),
                np.int32(nearest(given[4 * quad + 1] * factor)),
                np.int32(nearest(given[4 * quad + 2] * factor)),
                np.int32(nearest(given[4 * quad + 3] * factor)),
            )
            total += a + b + c + d
            values[place] = (
                (a & np.int32(255))
                | ((b & np.int32(255)) << np.int32(8))
                | ((c & np.int32(255)) << np.int32(16))
                | (d << np.int32(24))
            )
            place += lanes
        scales[scale_place] = largest * np.float32(1.0 / 127.0)
        starts[scale_place] = total * offset
        scale_place += lanes


@compiled
def inputs(into, width):
    blocks = width // BLOCK
    values = ints(into, ROWS_AT_ONCE * width // 4)
    scales = floats(into + ROWS_AT_ONCE * width, ROWS_AT_ONCE * blocks)
    starts = ints(into + ROWS_AT_ONCE * (width + 4 * blocks), ROWS_AT_ONCE * blocks)
    return values, scales, starts


def inputs_nbytes(width: int) -> int:
    """Bytes of the quantised inputs of one job."""
    return ROWS_AT_ONCE * (width + 8 * (width // BLOCK))


@compiled
def multiply(product, width, group, first, lanes, given, out):
    """16 results of the inputs first..first+lanes (one chunk) to F32[lanes, 16] at `out`."""
    blocks = width // BLOCK
    bits = product[2]
    weights = product[0] + group * blocks * (BLOCK * ROWS * bits // 8)
    scales = product[1] + group * blocks * 2 * ROWS
    values = given + first * width
    value_scales = given + ROWS_AT_ONCE * width + 4 * first * blocks
    starts = value_scales + 4 * ROWS_AT_ONCE * blocks
    if bits == 8:
        _multiply8(lanes, weights, scales, values, value_scales, starts, out, blocks)
    else:
        _multiply4(lanes, weights, scales, values, value_scales, starts, out, blocks)


@compiled
def product(product, width, results, rows, given, out, added, own_out, team, own):
    """This thread's results of all rows, stored in or added to `out` F32[rows, results]."""
    first, last = share(results // ROWS, team, own)
    made = floats(own_out, LANES * ROWS)
    for group in range(first, last):
        for start in range(0, rows, LANES):
            lanes = min(LANES, rows - start)
            multiply(product, width, group, start, lanes, given, own_out)
            for lane in range(lanes):
                at = (start + lane) * results + group * ROWS
                into, source = out[at : at + ROWS], made[lane * ROWS : (lane + 1) * ROWS]
                if added:
                    for i in range(ROWS):
                        into[i] += source[i]
                else:
                    for i in range(ROWS):
                        into[i] = source[i]


@compiled
def norm_rows(x, rows, width, step, weight, eps, scratch, bits, into):
    """RMSNorm of every row, quantised; rows begin `step` values after each other."""
    for row in range(rows):
        given, squares = x[row * step : row * step + width], np.float32(0.0)
        for i in range(width):
            squares += given[i] * given[i]
        factor = np.float32(1.0) / np.sqrt(squares / np.float32(width) + eps)
        for i in range(width):
            scratch[i] = given[i] * factor * weight[i]
        quantise(scratch, width, width, 0, row, rows, bits, into)
