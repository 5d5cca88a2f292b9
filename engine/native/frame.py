"""The acoustic codes of a frame in compiled code: every step of the code predictor, and its draws.

The draw is `SamplerBatch.draw_rest`: candidates by falling score, ties by id; the code is the first
at which the running probability, summed in F64, exceeds the lane's random number.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from engine.native.decoder import WORDS, Part, run_layers
from engine.native.memory import compiled, floats, longs, meet
from engine.native.product import ROWS_AT_ONCE, norm_rows, product, quantise
from engine.native.vector import as_bits, as_float

LANES_AT_ONCE = ROWS_AT_ONCE // 2  # two rows each in the first step
PRODUCT_WORDS = 5
_MASK = np.int64(0xFFFFFFFF)
_NEVER = np.float32(-np.inf)


class Parts(IntEnum):
    """Words of a predictor."""

    STACK = 0  # of `Part`
    STEPS = 1
    VOCAB = 2
    WIDTH = 3  # of the talker
    HEADS = 4  # int64[steps, PRODUCT_WORDS]
    TABLES = 5  # int64[steps]: F32[vocab, width] each
    NORM = 6
    PROJECTION = 7  # int64[PRODUCT_WORDS], or 0
    BIAS = 8  # of the projection, F32[hidden]
    GIVEN = 9  # F32[ROWS_AT_ONCE, width]
    INPUTS = 10  # F32[ROWS_AT_ONCE, hidden]
    LOGITS = 11  # F32[LANES_AT_ONCE, vocab]
    RANKED = 12  # int64[LANES_AT_ONCE, vocab]
    PLACES = 13  # int64[2, ROWS_AT_ONCE]: slots and positions
    OWN = 14  # of the first thread
    OWN_BYTES = 15


class Lane(IntEnum):
    """Words of a batch's draws, by lane."""

    DIVISORS = 0  # F32
    TOP_K = 1  # int64
    TOP_P = 2  # F32
    GREEDY = 3  # int64
    DRAWS = 4  # F32[lanes, steps]


FRAME_WORDS, LANE_WORDS = len(Parts), len(Lane)


@compiled
def run_frame(hidden, first, lanes, lane, draws, words, codes, total, team, own, control):
    """Codes int64[lanes, steps] and summed embeddings F32[lanes, width] of lanes from `lane`."""
    stack, width = longs(words[Parts.STACK], WORDS), words[Parts.WIDTH]
    steps = words[Parts.STEPS]
    x = floats(words[Parts.INPUTS], ROWS_AT_ONCE * stack[Part.HIDDEN])
    given = floats(words[Parts.GIVEN], ROWS_AT_ONCE * width)
    slots = longs(words[Parts.PLACES], ROWS_AT_ONCE)
    positions = longs(words[Parts.PLACES] + 8 * ROWS_AT_ONCE, ROWS_AT_ONCE)
    for each in range(own, lanes, team):
        part = slice(each * width, (each + 1) * width)
        given[2 * each * width : (2 * each + 1) * width] = hidden[part]
        given[(2 * each + 1) * width : (2 * each + 2) * width] = first[part]
        total[part] = first[part]
        for place in range(2):
            slots[2 * each + place], positions[2 * each + place] = lane + each, place
    meet(control, team, own)
    for step in range(steps):
        rows = 2 * lanes if step == 0 else lanes
        _project(given, x, rows, words, stack[Part.HIDDEN], team, own, control)
        run_layers(x, rows, slots, positions, stack, team, own, control)
        _score(x, rows, lanes, step, words, stack, team, own)
        meet(control, team, own)
        for each in range(own, lanes, team):
            code = _draw(each, lane + each, step, steps, words, draws)
            codes[each * steps + step] = code
            slots[each], positions[each] = lane + each, step + 2
            tables = longs(words[Parts.TABLES], steps)
            table = floats(tables[step], (code + 1) * width)
            embedded, summed = table[code * width :], total[each * width :]
            next_given = given[each * width :]
            for i in range(width):
                next_given[i] = embedded[i]
                summed[i] += embedded[i]
        meet(control, team, own)


@compiled
def _project(given, x, rows, words, hidden, team, own, control):
    """What is given, in the predictor's width; ends with a meeting."""
    width = words[Parts.WIDTH]
    if words[Parts.PROJECTION] == 0:
        for row in range(own, rows, team):
            x[row * width : (row + 1) * width] = given[row * width : (row + 1) * width]
    else:
        own_at = words[Parts.OWN] + own * words[Parts.OWN_BYTES]
        own_in = own_at + words[Parts.OWN_BYTES] // 2
        projection = longs(words[Parts.PROJECTION], PRODUCT_WORDS)
        bias = floats(words[Parts.BIAS], hidden)
        for row in range(rows):
            quantise(given[row * width :], width, width, 0, row, rows, projection[2], own_in)
        product(projection, width, hidden, rows, own_in, x, False, own_at, team, own)
        meet(control, team, own)
        for row in range(own, rows, team):
            made = x[row * hidden :]
            for i in range(hidden):
                made[i] += bias[i]
    meet(control, team, own)


@compiled
def _score(x, rows, lanes, step, words, stack, team, own):
    """The scores of every lane's last row."""
    hidden, vocab = stack[Part.HIDDEN], words[Parts.VOCAB]
    own_at = words[Parts.OWN] + own * words[Parts.OWN_BYTES]
    own_in = own_at + words[Parts.OWN_BYTES] // 2
    scratch = floats(own_at, hidden)
    norm, eps = floats(words[Parts.NORM], hidden), as_float(np.int32(stack[Part.EPS]))
    head = longs(words[Parts.HEADS] + 8 * PRODUCT_WORDS * step, PRODUCT_WORDS)
    per = rows // lanes
    last = x[(per - 1) * hidden :]
    norm_rows(last, lanes, hidden, per * hidden, norm, eps, scratch, head[2], own_in)
    logits = floats(words[Parts.LOGITS], lanes * vocab)
    product(head, hidden, vocab, lanes, own_in, logits, False, own_at, team, own)


@compiled
def _key(logits, candidate):
    """What sorts as the score does, and by falling id among equal ones."""
    score = logits[candidate]
    bits = as_bits(score) if score != np.float32(0.0) else np.int32(0)
    ordered = bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return (np.int64(ordered) << 32) | (_MASK - candidate)


@compiled
def _sink(heap, place, count):
    """Restore a heap, least first, of which only the key at `place` may be too large."""
    key, hole = heap[place], np.int64(place)
    child = 2 * hole + 1
    while child < count:
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    heap[hole] = key


@compiled
def _rank(logits, vocab, count, ranked):
    """The ids of the `count` best candidates, best first."""
    for candidate in range(count):
        ranked[candidate] = _key(logits, candidate)
    for place in range(count // 2 - 1, -1, -1):
        _sink(ranked, place, count)
    for candidate in range(count, vocab):
        key = _key(logits, candidate)
        if key > ranked[0]:
            ranked[0] = key
            _sink(ranked, 0, count)
    for last in range(count - 1, 0, -1):
        ranked[0], ranked[last] = ranked[last], ranked[0]
        _sink(ranked, 0, last)
    for place in range(count):
        ranked[place] = _MASK - (ranked[place] & _MASK)


@compiled
def _pick(logits, ranked, count, divisor, top_p, random):
    """The place of the candidate drawn."""
    best = np.float64(logits[ranked[0]] / divisor)
    total, kept = 0.0, 0
    for place in range(count):
        score = logits[ranked[place]] / divisor
        if score > _NEVER:
            total += math.exp(np.float64(score) - best)
            kept += 1
    if not math.isfinite(total):
        return 0
    if top_p < np.float32(1.0):
        before, place = 0.0, 0
        while place < kept and (place == 0 or before / total < np.float64(top_p)):
            before += math.exp(np.float64(logits[ranked[place]] / divisor) - best)
            place += 1
        total, kept = before, place
    passed = 0.0
    for place in range(kept):
        passed += math.exp(np.float64(logits[ranked[place]] / divisor) - best) / total
        if passed > np.float64(random):
            return place
    return max(kept - 1, 0)


@compiled
def _draw(each, lane, step, steps, words, draws):
    vocab = words[Parts.VOCAB]
    logits = floats(words[Parts.LOGITS] + 4 * each * vocab, vocab)
    ranked = longs(words[Parts.RANKED] + 8 * each * vocab, vocab)
    top_k = longs(draws[Lane.TOP_K] + 8 * lane, 1)[0]
    divisor = floats(draws[Lane.DIVISORS] + 4 * lane, 1)[0]
    top_p = floats(draws[Lane.TOP_P] + 4 * lane, 1)[0]
    random = floats(draws[Lane.DRAWS] + 4 * (lane * steps + step), 1)[0]
    greedy = longs(draws[Lane.GREEDY] + 8 * lane, 1)[0] != 0
    count = 1 if greedy else (min(top_k, vocab) if top_k > 0 else vocab)
    _rank(logits, vocab, count, ranked)
    return ranked[_pick(logits, ranked, count, divisor, top_p, random)]
