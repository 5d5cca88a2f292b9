"""Decoder layers in compiled code: a whole stack over some rows, by a team.

A row is one position of one slot. Everything is F32 but weights, quantised inputs and, if asked
for, keys and values (BF16). A row's bits depend on its slot alone, whatever rows it is computed
with: sums run in an order that their number does not change.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.native.memory import bfloat16, compiled, exp, floats, halves, longs, meet, share
from engine.native.product import ROWS_AT_ONCE, multiply, norm_rows, product, quantise
from engine.native.vector import BLOCK, LANES, ROWS, as_float, mix, score


class Part(IntEnum):
    """Words of a stack."""

    LAYERS = 0
    HIDDEN = 1
    HEADS = 2
    KV_HEADS = 3
    HEAD_DIM = 4
    FFN = 5
    EPS = 6  # bits
    TABLE = 7  # int64[layers, `Layer`]
    COSINES = 8  # F32[positions, head dim / 2]
    SINES = 9
    KEYS = 10
    VALUES = 11
    KV_BITS = 12
    LAYER_STEP = 13  # in values, of keys and values
    SLOT_STEP = 14
    HEAD_STEP = 15
    MOST_POSITIONS = 16
    SHARED = 17
    OWN = 18  # of the first thread
    OWN_BYTES = 19


class Layer(IntEnum):
    """Words of a layer: three of each product, then the norms."""

    QKV = 0
    OUTPUT = 3
    GATE_UP = 6
    DOWN = 9
    ATTN_NORM = 12
    FFN_NORM = 13
    HEAD_NORM = 14


LAYER_WORDS = 16
WORDS = len(Part)
_score16, _score32, _mix16, _mix32 = score(16), score(32), mix(16), mix(32)


@compiled
def _turn(given, weight, eps, cosines, sines, factor, into):
    """A head normed, turned by its position and scaled."""
    half, squares = len(given) // 2, np.float32(0.0)
    for i in range(2 * half):
        squares += given[i] * given[i]
    scale = factor / np.sqrt(squares / np.float32(2 * half) + eps)
    left, right, left_weight, right_weight = (
        given[:half],
        given[half:],
        weight[:half],
        weight[half:],
    )
    left_into, right_into = into[:half], into[half:]
    for i in range(half):
        a = left[i] * scale * left_weight[i]
        b = right[i] * scale * right_weight[i]
        left_into[i] = a * cosines[i] - b * sines[i]
        right_into[i] = b * cosines[i] + a * sines[i]


@compiled
def _store(keys, values, bits, key, value, width):
    """A position's key and value at two addresses, as `bits` keeps them."""
    if bits == 16:
        short_keys, short_values = halves(keys, width), halves(values, width)
        for i in range(width):
            short_keys[i], short_values[i] = bfloat16(key[i]), bfloat16(value[i])
    else:
        whole_keys, whole_values = floats(keys, width), floats(values, width)
        for i in range(width):
            whole_keys[i], whole_values[i] = key[i], value[i]


@compiled
def _attend(query, keys, values, bits, seen, width, scratch, out):
    """A query against `seen` positions of one head, all by their addresses.

    `scratch` has room for F32[seen]; the result is F32[width].
    """
    if bits == 16:
        _score16(query, keys, scratch, seen, width)
    else:
        _score32(query, keys, scratch, seen, width)
    scores = floats(scratch, seen)
    top, total = scores[0], np.float32(0.0)
    for position in range(seen):
        top = max(top, scores[position])
    for position in range(seen):
        scores[position] = exp(scores[position] - top)
    for position in range(seen):
        total += scores[position]
    part = np.float32(1.0) / total
    for position in range(seen):
        scores[position] *= part
    if bits == 16:
        _mix16(scratch, values, out, seen, width)
    else:
        _mix32(scratch, values, out, seen, width)


@compiled
def _attend_rows(stack, layer, index, rows, slots, positions, qkv, into, team, own):
    """Store keys and values of every row and attend to them; results quantised at `into`."""
    heads, kv_heads, width = stack[Part.HEADS], stack[Part.KV_HEADS], stack[Part.HEAD_DIM]
    group, half, bits = heads // kv_heads, width // 2, stack[Part.KV_BITS]
    eps, norms = as_float(np.int32(stack[Part.EPS])), floats(layer[Layer.HEAD_NORM], 2 * width)
    cosines = floats(stack[Part.COSINES], stack[Part.MOST_POSITIONS] * half)
    sines = floats(stack[Part.SINES], stack[Part.MOST_POSITIONS] * half)
    own_at = stack[Part.OWN] + own * stack[Part.OWN_BYTES]
    head_out = floats(own_at, group * width)
    turned_at, scores_at = own_at + 4 * group * width, own_at + 4 * (group + 1) * width
    turned = floats(turned_at, width)
    one, root = np.float32(1.0), np.float32(1.0 / np.sqrt(width))
    first, last = share(kv_heads, team, own)
    for head in range(first, last):
        base = index * stack[Part.LAYER_STEP] + head * stack[Part.HEAD_STEP]
        for row in range(rows):
            turn = positions[row] * half
            here = base + slots[row] * stack[Part.SLOT_STEP] + positions[row] * width
            here *= bits // 8
            given = qkv[(row * (heads + 2 * kv_heads) + heads + head) * width :]
            _turn(given[:width], norms[width:], eps, cosines[turn:], sines[turn:], one, turned)
            value, keys, values = given[kv_heads * width :], stack[Part.KEYS], stack[Part.VALUES]
            _store(keys + here, values + here, bits, turned, value, width)
        for row in range(rows):
            seen, turn = positions[row] + 1, positions[row] * half
            here = (base + slots[row] * stack[Part.SLOT_STEP]) * (bits // 8)
            keys, values = stack[Part.KEYS] + here, stack[Part.VALUES] + here
            for query in range(group):
                given = qkv[(row * (heads + 2 * kv_heads) + head * group + query) * width :]
                _turn(given[:width], norms, eps, cosines[turn:], sines[turn:], root, turned)
                out = own_at + 4 * query * width
                _attend(turned_at, keys, values, bits, seen, width, scores_at, out)
            start, out_bits = head * group * width, layer[Layer.OUTPUT + 2]
            quantise(head_out, group * width, heads * width, start, row, rows, out_bits, into)


@compiled
def _feed(layer, hidden, ffn, rows, given, into, scratch, scratch_at, team, own):
    """Gate and up of this thread's columns, their SwiGLU quantised at `into`."""
    gate_up, bits = layer[Layer.GATE_UP :], layer[Layer.DOWN + 2]
    first, last = share(ffn // BLOCK, team, own)
    groups = BLOCK // ROWS
    step = 4 * LANES * ROWS
    fed = scratch[4 * LANES * ROWS : 4 * LANES * ROWS + BLOCK]
    for unit in range(first, last):
        for start in range(0, rows, LANES):
            lanes = min(LANES, rows - start)
            for part in range(2 * groups):
                place = scratch_at + part * step
                multiply(gate_up, hidden, 2 * groups * unit + part, start, lanes, given, place)
            for lane in range(lanes):
                for part in range(groups):
                    gates = scratch[(part * LANES + lane) * ROWS :]
                    ups, into_fed = gates[groups * LANES * ROWS :], fed[part * ROWS :]
                    for i in range(ROWS):
                        swish = gates[i] / (np.float32(1.0) + exp(-gates[i]))
                        into_fed[i] = swish * ups[i]
                quantise(fed, BLOCK, ffn, unit * BLOCK, start + lane, rows, bits, into)


@compiled
def run_layers(x, rows, slots, positions, stack, team, own, control):
    """x F32[rows, hidden] through all layers, in place; ends with a meeting.

    `stack` is a stack's words, `slots` and `positions` say where each row stands.
    """
    hidden, ffn, width = stack[Part.HIDDEN], stack[Part.FFN], stack[Part.HEAD_DIM]
    attended, eps = stack[Part.HEADS] * width, as_float(np.int32(stack[Part.EPS]))
    wide = attended + 2 * stack[Part.KV_HEADS] * width
    qkv = floats(stack[Part.SHARED], rows * wide)
    heads_in = stack[Part.SHARED] + 4 * ROWS_AT_ONCE * wide
    fed_in = heads_in + ROWS_AT_ONCE * (attended + 8 * (attended // BLOCK))
    own_at = stack[Part.OWN] + own * stack[Part.OWN_BYTES]
    own_in = own_at + stack[Part.OWN_BYTES] - ROWS_AT_ONCE * (hidden + 8 * (hidden // BLOCK))
    scratch = floats(own_at, (own_in - own_at) // 4)
    for index in range(stack[Part.LAYERS]):
        layer = longs(stack[Part.TABLE] + 8 * LAYER_WORDS * index, LAYER_WORDS)
        norm, bits = floats(layer[Layer.ATTN_NORM], hidden), layer[Layer.QKV + 2]
        norm_rows(x, rows, hidden, hidden, norm, eps, scratch, bits, own_in)
        qkv_product = layer[Layer.QKV :]
        product(qkv_product, hidden, wide, rows, own_in, qkv, False, own_at, team, own)
        meet(control, team, own)
        _attend_rows(stack, layer, index, rows, slots, positions, qkv, heads_in, team, own)
        meet(control, team, own)
        out_product = layer[Layer.OUTPUT :]
        product(out_product, attended, hidden, rows, heads_in, x, True, own_at, team, own)
        meet(control, team, own)
        norm, bits = floats(layer[Layer.FFN_NORM], hidden), layer[Layer.GATE_UP + 2]
        norm_rows(x, rows, hidden, hidden, norm, eps, scratch, bits, own_in)
        _feed(layer, hidden, ffn, rows, own_in, fed_in, scratch, own_at, team, own)
        meet(control, team, own)
        product(layer[Layer.DOWN :], ffn, hidden, rows, fed_in, x, True, own_at, team, own)
        meet(control, team, own)
