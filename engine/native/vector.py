"""Instructions that numba has no word for, as functions of compiled code.

Addresses are int64. The products need AVX-512 with VNNI, waiting needs Linux.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS = 16  # results that one register holds
BLOCK = 32  # values under one scale
LANES = 8  # most inputs multiplied at once

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F32, _HALF = ir.FloatType(), ir.HalfType()
_INTS, _FLOATS = ir.VectorType(_I32, ROWS), ir.VectorType(_F32, ROWS)
_QUADS = BLOCK // 4  # a product takes four neighbours of every row
_LOW_NIBBLES = 0x0F0F0F0F
_AHEAD = 4096
_LINE = 64


@cache
def dot(lanes: int, bits: int) -> Any:
    """16 rows of weights of `bits` (8 or 4) times `lanes` quantised inputs, to F32[lanes, 16].

    Arguments: addresses of the rows' weights and scales; of the inputs' values, scales and starting
    sums; of the result; blocks per row. Inputs stand side by side, four values of each at a time.

    A result is summed block by block in one order, whatever the number of lanes: an input's bits
    do not depend on its neighbours.
    """

    @intrinsic
    def product(
        context: Any,
        weights: Any,
        scales: Any,
        values: Any,
        value_scales: Any,
        starts: Any,
        out: Any,
        blocks: Any,
    ) -> Any:
        def build(numba: Any, builder: Any, __: Any, given: Any) -> Any:
            builder.call(_function(builder.module, lanes, bits), given)
            return numba.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return product


def _function(module: Any, lanes: int, bits: int) -> Any:
    """The product as a function of its own, so that its many callers do not repeat it."""
    name = f"framecast_dot_{lanes}_{bits}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * 7), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    _build_dot(builder, function.args, lanes, bits)
    builder.ret_void()
    return function


def _build_dot(builder: Any, given: Any, lanes: int, bits: int) -> None:
    weights, scales, values, value_scales, starts, out, blocks = given
    sums = [cgutils.alloca_once(builder, _FLOATS) for _ in range(lanes)]
    for each in sums:
        builder.store(_nothing(), each)
    multiply = _declare(builder, "llvm.x86.avx512.vpdpbusd.512", _INTS, [_INTS] * 3)
    with cgutils.for_range(builder, blocks) as loop:
        block = loop.index
        here = _at(builder, weights, block, BLOCK * ROWS * bits // 8)
        _fetch_ahead(builder, here, BLOCK * ROWS * bits // 8)
        packed = _words(builder, here, bits)
        half = _load(builder, _at(builder, scales, block, 2 * ROWS), ir.VectorType(_HALF, ROWS))
        scale = builder.fpext(half, _FLOATS)
        here = _at(builder, values, block, BLOCK * lanes)
        whole = _lanes(builder, _at(builder, starts, block, 4 * lanes), lanes, _INTS)
        for quad, word in enumerate(packed):
            fours = _lanes(builder, builder.add(here, _i64(4 * lanes * quad)), lanes, _INTS)
            for lane, four in enumerate(fours):
                whole[lane] = builder.call(multiply, [whole[lane], word, four])
        given_scales = _lanes(builder, _at(builder, value_scales, block, 4 * lanes), lanes, _FLOATS)
        for lane, given_scale in enumerate(given_scales):
            both = builder.fmul(scale, given_scale)
            part = builder.sitofp(whole[lane], _FLOATS)
            builder.store(_fused(builder, part, both, builder.load(sums[lane])), sums[lane])
    for lane in range(lanes):
        at = builder.add(out, _i64(4 * ROWS * lane))
        builder.store(builder.load(sums[lane]), _pointer(builder, at, _FLOATS), align=4)


@cache
def score(bits: int) -> Any:
    """A query against keys of `bits` (16, BF16, or 32), one behind the other.

    Arguments: addresses of the query F32[width], the keys and the scores F32[seen]; seen; width,
    which is a multiple of 32.
    """

    @intrinsic
    def scores(context: Any, query: Any, keys: Any, out: Any, seen: Any, width: Any) -> Any:
        def build(numba: Any, builder: Any, __: Any, given: Any) -> Any:
            query, keys, out, seen, width = given
            row_bytes = builder.mul(width, _i64(bits // 8))
            sums = [cgutils.alloca_once(builder, _FLOATS) for _ in range(2)]
            with cgutils.for_range(builder, seen) as outer:
                key = builder.add(keys, builder.mul(outer.index, row_bytes))
                for each in sums:
                    builder.store(_nothing(), each)
                with _columns(builder, width) as places:
                    for each, place in zip(sums, places, strict=True):
                        asked = _load(builder, _at(builder, query, place, 4), _FLOATS)
                        stored = _wide(builder, _at(builder, key, place, bits // 8), bits)
                        builder.store(_fused(builder, asked, stored, builder.load(each)), each)
                total = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
                at = _at(builder, out, outer.index, 4)
                builder.store(_added_up(builder, total), _pointer(builder, at, _F32))
            return numba.get_dummy_value()

        return types.void(*[types.int64] * 5), build

    return scores


@cache
def mix(bits: int) -> Any:
    """Values of `bits` (16 or 32), one behind the other, added up with a weight each.

    Arguments: addresses of the weights F32[seen], the values and the result F32[width]; seen;
    width, which is a multiple of 32.
    """

    @intrinsic
    def mixed(context: Any, weights: Any, values: Any, out: Any, seen: Any, width: Any) -> Any:
        def build(numba: Any, builder: Any, __: Any, given: Any) -> Any:
            weights, values, out, seen, width = given
            row_bytes = builder.mul(width, _i64(bits // 8))
            sums = [cgutils.alloca_once(builder, _FLOATS) for _ in range(2)]
            with _columns(builder, width) as places:
                for each in sums:
                    builder.store(_nothing(), each)
                with cgutils.for_range(builder, seen) as loop:
                    row = builder.add(values, builder.mul(loop.index, row_bytes))
                    weight = _load(builder, _at(builder, weights, loop.index, 4), _F32)
                    weight = _splat(builder, weight, _FLOATS)
                    for each, place in zip(sums, places, strict=True):
                        value = _wide(builder, _at(builder, row, place, bits // 8), bits)
                        builder.store(_fused(builder, weight, value, builder.load(each)), each)
                for each, place in zip(sums, places, strict=True):
                    at = _at(builder, out, place, 4)
                    builder.store(builder.load(each), _pointer(builder, at, _FLOATS), align=4)
            return numba.get_dummy_value()

        return types.void(*[types.int64] * 5), build

    return mixed


@contextmanager
def _columns(builder: Any, width: Any) -> Iterator[tuple[Any, Any]]:
    """A loop over a row, two registers at a time: where each begins."""
    with cgutils.for_range(builder, builder.udiv(width, _i64(2 * ROWS))) as loop:
        first = builder.mul(loop.index, _i64(2 * ROWS))
        yield first, builder.add(first, _i64(ROWS))


def _wide(builder: Any, at: Any, bits: int) -> Any:
    """16 values of F32 or BF16 as F32."""
    if bits == 32:
        return _load(builder, at, _FLOATS)
    short = builder.zext(_load(builder, at, ir.VectorType(_I16, ROWS)), _INTS)
    return builder.bitcast(builder.shl(short, ir.Constant(_INTS, [16] * ROWS)), _FLOATS)


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.call(_declare(builder, "llvm.fma.v16f32", _FLOATS, [_FLOATS] * 3), [a, b, c])


def _added_up(builder: Any, values: Any) -> Any:
    """The sum of a register, halves first."""
    while (count := values.type.count) > 1:
        empty = ir.Constant(values.type, ir.Undefined)
        halves = [
            builder.shuffle_vector(
                values, empty, ir.Constant(ir.VectorType(_I32, count // 2), list(places))
            )
            for places in (range(count // 2), range(count // 2, count))
        ]
        values = builder.fadd(*halves)
    return builder.extract_element(values, ir.Constant(_I32, 0))


def _nothing() -> Any:
    return ir.Constant(_FLOATS, [0.0] * ROWS)


def _fetch_ahead(builder: Any, here: Any, size: int) -> None:
    """Ask for the weights that come in a while: the next rows' follow these in memory."""
    fetch = _declare(
        builder, "llvm.prefetch.p0", ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32]
    )
    read, soon, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
    for line in range(0, size, _LINE):
        at = builder.add(here, _i64(_AHEAD + line))
        builder.call(fetch, [_pointer(builder, at, _I8), read, soon, data])


def _words(builder: Any, at: Any, bits: int) -> list[Any]:
    """A block's weights as eight registers of unsigned bytes, four neighbours per row each."""
    step = 4 * ROWS
    if bits == 8:
        return [_load(builder, builder.add(at, _i64(step * quad)), _INTS) for quad in range(_QUADS)]
    mask, four = (ir.Constant(_INTS, [value] * ROWS) for value in (_LOW_NIBBLES, 4))
    half = _QUADS // 2
    pairs = [_load(builder, builder.add(at, _i64(step * quad)), _INTS) for quad in range(half)]
    low = [builder.and_(pair, mask) for pair in pairs]
    return low + [builder.and_(builder.lshr(pair, four), mask) for pair in pairs]


def _lanes(builder: Any, at: Any, lanes: int, kind: Any) -> list[Any]:
    """Values of 4 bytes, one per lane, each in all places of a register."""
    places = [builder.add(at, _i64(4 * lane)) for lane in range(lanes)]
    return [_splat(builder, _load(builder, place, kind.element), kind) for place in places]


def _i64(value: int) -> Any:
    return ir.Constant(_I64, value)


def _at(builder: Any, base: Any, index: Any, size: int) -> Any:
    return builder.add(base, builder.mul(index, _i64(size)))


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(_pointer(builder, address, kind), align=1)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    empty = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, ROWS), [0] * ROWS)
    return builder.shuffle_vector(one, empty, zeros)


def _declare(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def as_float(context: Any, bits: Any) -> Any:
    """The F32 whose bits an int32 holds."""
    return types.float32(types.int32), lambda c, builder, s, given: builder.bitcast(given[0], _F32)


@intrinsic
def as_bits(context: Any, value: Any) -> Any:
    """The bits of an F32 as int32."""
    return types.int32(types.float32), lambda c, builder, s, given: builder.bitcast(given[0], _I32)


@intrinsic
def nearest(context: Any, value: Any) -> Any:
    """F32 rounded to a whole number, ties to even."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.call(_declare(builder, "llvm.rint.f32", _F32, [_F32]), given)

    return types.float32(types.float32), build


@intrinsic
def add_at(context: Any, address: Any, value: Any) -> Any:
    """Add to an int64 in memory, all threads in some order; what it was before."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        at = _pointer(builder, given[0], _I64)
        return builder.atomic_rmw("add", at, given[1], "seq_cst")

    return types.int64(types.int64, types.int64), build


@intrinsic
def read_at(context: Any, address: Any) -> Any:
    """An int64 in memory, with all that its writer wrote before it."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.load_atomic(_pointer(builder, given[0], _I64), "seq_cst", 8)

    return types.int64(types.int64), build


@intrinsic
def pause(context: Any) -> Any:
    """Tell the core that the thread waits."""

    def build(numba: Any, builder: Any, __: Any, ___: Any) -> Any:
        builder.call(_declare(builder, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
        return numba.get_dummy_value()

    return types.void(), build


@intrinsic
def system_call(context: Any, number: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """A call of the kernel with up to four arguments."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64], var_arg=True)
        function = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        return builder.call(function, list(given))

    return types.int64(*[types.int64] * 5), build


__all__ = [
    "BLOCK",
    "LANES",
    "ROWS",
    "add_at",
    "as_bits",
    "as_float",
    "dot",
    "mix",
    "nearest",
    "pause",
    "read_at",
    "score",
    "system_call",
]
