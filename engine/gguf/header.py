"""The part of a GGUF file before its tensor data, read with every length checked first.

Nothing is allocated for a count or a length before the file is known to hold that many bytes, so
a crafted or damaged header costs no memory. Layout: the GGUF specification, versions 2 and 3,
little-endian.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.gguf.cursor import Cursor, map_file

VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_NAME = 1 << 16

_T = GGMLQuantizationType
_FLOATS = (_T.F32, _T.F16, _T.BF16)
_BLOCKS = (_T.Q8_0, _T.Q4_0, _T.Q4_1, _T.Q5_0, _T.Q5_1)
_K_BLOCKS = (_T.Q2_K, _T.Q3_K, _T.Q4_K, _T.Q5_K, _T.Q6_K)
READABLE = _FLOATS + _BLOCKS + _K_BLOCKS

# GGUF value type -> little-endian numpy type; the others are 8 (string) and 9 (array).
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9

_SMALLEST_ENTRY = 8 + 4 + 1  # a metadata entry: key length, type, one byte of value
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8  # a tensor entry: name length, count, one dimension, ...


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: `shape` in row-major order, `offset` from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says about itself; arrays are tuples."""

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorEntry]


def read_header(path: Path) -> Header:
    """Read and check everything but the tensor data itself.

    Raises:
        ModelFileError: as `map_file` and `parse_header`.
    """
    with map_file(path) as data:
        return parse_header(path, data)


def parse_header(path: Path, data: mmap.mmap) -> Header:
    """Parse a mapped GGUF file's metadata and tensor entries.

    Raises:
        ModelFileError: unsupported version or byte order, a header or tensor data that the file
            is too short for, counts or lengths it cannot hold, duplicate names, unsupported
            tensor types, misplaced tensors.
    """
    cursor = Cursor(path, data)
    cursor.take(4, "the magic")
    version = _version(cursor)
    n_tensors = cursor.count("tensors", _SMALLEST_TENSOR)
    n_entries = cursor.count("metadata entries", _SMALLEST_ENTRY)
    metadata = _metadata(cursor, n_entries)
    entries = _tensor_entries(cursor, n_tensors)
    tensors = _place(cursor, entries, _alignment(cursor, metadata))
    return Header(version, metadata, tensors)


def _version(cursor: Cursor) -> int:
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        cursor.fail("the file is big-endian; only little-endian GGUF is supported")
    if version not in VERSIONS:
        cursor.fail(f"GGUF version {version} is not supported; versions 2 and 3 are")
    return version


def _metadata(cursor: Cursor, number: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(number):
        key = cursor.text("a metadata key", MAX_NAME)
        if key in metadata:
            cursor.fail(f"the metadata key `{key}` appears twice")
        metadata[key] = _value(cursor, cursor.u32(f"the type of `{key}`"), f"`{key}`")
    return metadata


def _value(cursor: Cursor, kind: int, what: str) -> Any:
    if kind == _STRING:
        return cursor.text(what)
    if kind == _ARRAY:
        return _array(cursor, what)
    if kind not in _SCALARS:
        cursor.fail(f"{what} has the unknown value type {kind}")
    value = cursor.values(_SCALARS[kind], 1, what)[0]
    # 0.9 was rounded to F32 on its way in: give back 0.9, not its expansion to 64 bits.
    return float(str(np.float32(value))) if kind == _FLOAT32 else value


def _array(cursor: Cursor, what: str) -> tuple[Any, ...]:
    kind = cursor.u32(f"the item type of {what}")
    if kind == _STRING:
        return cursor.texts(cursor.count(f"strings in {what}", 8), what)
    if kind not in _SCALARS:
        cursor.fail(f"{what} is an array of the unsupported item type {kind}")
    number = cursor.count(f"items in {what}", _SCALARS[kind].itemsize)
    return tuple(cursor.values(_SCALARS[kind], number, what))


def _alignment(cursor: Cursor, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        cursor.fail(f"`general.alignment` is {alignment!r}; it must be a power of two")
    return alignment


def _tensor_entries(cursor: Cursor, number: int) -> list[TensorEntry]:
    return [_tensor_entry(cursor) for _ in range(number)]


def _tensor_entry(cursor: Cursor) -> TensorEntry:
    name = cursor.text("a tensor name", MAX_NAME)
    what = f"the tensor `{name}`"
    n_dims = cursor.u32(f"the dimension count of {what}")
    if not 1 <= n_dims <= MAX_DIMS:
        cursor.fail(f"{what} declares {n_dims} dimensions; 1 to {MAX_DIMS} are allowed")
    shape = tuple(cursor.u64(f"a dimension of {what}") for _ in range(n_dims))[::-1]
    if 0 in shape:
        cursor.fail(f"{what} has an empty dimension: {list(shape)}")
    kind = _tensor_type(cursor, cursor.u32(f"the type of {what}"), what)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        cursor.fail(
            f"{what} has rows of {shape[-1]} values, not a multiple of {block} ({kind.name})"
        )
    offset = cursor.u64(f"the offset of {what}")
    return TensorEntry(name, shape, kind, offset, math.prod(shape) // block * block_bytes)


def _tensor_type(cursor: Cursor, number: int, what: str) -> GGMLQuantizationType:
    if number not in READABLE:  # the members are integers
        names = {kind.value: kind.name for kind in GGMLQuantizationType}
        supported = ", ".join(kind.name for kind in READABLE)
        cursor.fail(
            f"{what} has the unsupported type {names.get(number, number)}; supported: {supported}"
        )
    return GGMLQuantizationType(number)


def _place(cursor: Cursor, entries: list[TensorEntry], alignment: int) -> dict[str, TensorEntry]:
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorEntry] = {}
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.name in tensors:
            cursor.fail(f"the tensor `{entry.name}` appears twice")
        if entry.offset % alignment:
            cursor.fail(f"the tensor `{entry.name}` is not aligned to {alignment} bytes")
        if entry.offset < end:
            cursor.fail(f"the tensor `{entry.name}` overlaps the one before it")
        end = entry.offset + entry.nbytes
        tensors[entry.name] = TensorEntry(
            entry.name, entry.shape, entry.type, start + entry.offset, entry.nbytes
        )
    if entries:
        _check_size(cursor, start + end, start + -(-end // alignment) * alignment)
    return {entry.name: tensors[entry.name] for entry in entries}


def _check_size(cursor: Cursor, data_end: int, padded_end: int) -> None:
    # Some writers pad the last tensor and some do not; a size in between is a cut padding.
    if cursor.size < padded_end and cursor.size != data_end:
        expected = data_end if cursor.size < data_end else padded_end
        cursor.fail(
            f"the file is truncated: its tensors need {expected} bytes, it has {cursor.size}"
        )


__all__ = ["READABLE", "Header", "TensorEntry", "parse_header", "read_header"]
