"""Tensors of a memory-mapped GGUF file, and modules filled from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from torch import nn

from engine.errors import ModelFileError
from engine.gguf.cursor import map_file
from engine.gguf.header import TensorEntry, parse_header

_CHUNK = 1 << 18  # values converted at a time: bounds temporary memory and stays in cache
_LISTED = 10

_Bytes = npt.NDArray[np.uint8]


class TensorFile:
    """A GGUF file opened by memory map.

    `metadata` holds plain Python values (arrays are tuples); `shapes` are row-major, the order
    torch uses, which is GGUF's dimension list reversed.

    Raises:
        ModelFileError: the file is missing, not GGUF, truncated or damaged.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._data = map_file(self.path)
        try:
            header = parse_header(self.path, self._data)
        except BaseException:
            self._data.close()
            raise
        self._entries = header.tensors
        self.metadata: Mapping[str, Any] = header.metadata
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: entry.shape for name, entry in header.tensors.items()
        }

    @property
    def architecture(self) -> str:
        """`general.architecture`, or an empty string where the file has none."""
        return str(self.metadata.get("general.architecture", ""))

    def type_of(self, name: str) -> str:
        """The stored type of a tensor: "F32", "Q8_0", ...

        Raises:
            ModelFileError: the file has no such tensor.
        """
        return self._entry(name).type.name

    def load(self, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Read one tensor into memory of its own, dequantised to `dtype`.

        Returns: `dtype`[shapes[name]] on the CPU.

        Raises:
            ModelFileError: the file has no such tensor.
        """
        entry = self._entry(name)
        stored = self._stored(entry)
        rows, width = len(stored), entry.shape[-1]
        decode = _decoder(entry.type)
        out = torch.empty(rows, width, dtype=dtype)
        step = max(1, _CHUNK // width)
        for start in range(0, rows, step):
            out[start : start + step] = decode(stored[start : start + step])
        return out.reshape(entry.shape)

    def rows(self, name: str) -> StoredRows:
        """A tensor kept as the file stores it, in memory of its own.

        Raises:
            ModelFileError: the file has no such tensor.
        """
        entry = self._entry(name)
        return StoredRows(self._stored(entry).copy(), entry.type)

    def close(self) -> None:
        """Unmap the file; loaded tensors stay valid."""
        self._data.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stored(self, entry: TensorEntry) -> _Bytes:
        stored = np.frombuffer(self._data, np.uint8, entry.nbytes, entry.offset)
        return stored.reshape(math.prod(entry.shape[:-1]), -1)

    def _entry(self, name: str) -> TensorEntry:
        try:
            return self._entries[name]
        except KeyError:
            raise ModelFileError(f"`{self.path}` has no tensor `{name}`") from None


class StoredRows(nn.Module):
    """A table of rows that is read a few rows at a time: `nn.Embedding` without unpacking.

    Args:
        rows: uint8[rows, bytes per row].
    """

    def __init__(self, rows: _Bytes, kind: GGMLQuantizationType) -> None:
        super().__init__()
        self._rows = rows
        self._decode = _decoder(kind)
        self._width = self._decode(rows[:1].copy()).numel()
        self.packed_nbytes = rows.nbytes

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Row numbers int64[...] to F32[..., width]."""
        if not ids.numel():
            return torch.zeros(*ids.shape, self._width)
        taken = self._decode(self._rows[ids.flatten().numpy()])
        return taken.float().view(*ids.shape, self._width)


def load_module(
    module: nn.Module,
    file: TensorFile,
    prefix: str,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
) -> None:
    """Fill a module built on the meta device with the file's tensors.

    The file's name of an entry is `prefix` plus its `state_dict` name. Everything becomes
    `dtype` on `device` without gradients, except names that end with one of the suffixes in the
    attribute `keep_f32: frozenset[str]` of the module or of a submodule: those become F32.
    Dimensions of size 1 at either end of a shape may differ, since GGUF writers drop them.

    Raises:
        ModelFileError: entries the file lacks or holds in another shape, all in one message;
            the module is then unchanged.
    """
    wanted = module.state_dict()
    check_entries(wanted, file, prefix)
    kept = _kept_f32(module, wanted)
    state = {
        name: file.load(prefix + name, torch.float32 if name in kept else dtype)
        .reshape(entry.shape)
        .to(device)
        for name, entry in wanted.items()
    }
    module.load_state_dict(state, assign=True)
    module.requires_grad_(False)


def check_entries(wanted: Mapping[str, torch.Tensor], file: TensorFile, prefix: str) -> None:
    """Raise `ModelFileError` for entries the file lacks or holds in another shape, all in one."""
    missing = [prefix + name for name in wanted if prefix + name not in file.shapes]
    wrong = [
        f"`{prefix + name}` is {list(found)} instead of {list(entry.shape)}"
        for name, entry in wanted.items()
        if (found := file.shapes.get(prefix + name)) is not None
        and _core(found) != _core(tuple(entry.shape))
    ]
    problems = []
    if missing:
        problems.append(f"{_tensors(missing)} missing: {_some([f'`{name}`' for name in missing])}")
    if wrong:
        problems.append(f"{_tensors(wrong)} of the wrong shape: {_some(wrong)}")
    if problems:
        raise ModelFileError(f"`{file.path}`: {'; '.join(problems)}")


def _tensors(items: list[str]) -> str:
    return f"{len(items)} tensor" + ("s" if len(items) > 1 else "")


def _some(items: list[str]) -> str:
    rest = len(items) - _LISTED
    return ", ".join(items[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _core(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _kept_f32(module: nn.Module, names: Mapping[str, torch.Tensor]) -> set[str]:
    kept: set[str] = set()
    for path, part in module.named_modules():
        suffixes = tuple(getattr(part, "keep_f32", ()))
        inside = f"{path}." if path else ""
        kept.update(name for name in names if name.startswith(inside) and name.endswith(suffixes))
    return kept


def _decoder(kind: GGMLQuantizationType) -> Callable[[_Bytes], torch.Tensor]:
    """Turn stored rows (bytes) into values; the copies keep the map's memory out of torch."""
    if kind is GGMLQuantizationType.F32:
        return lambda rows: torch.from_numpy(rows.copy()).view(torch.float32)
    if kind is GGMLQuantizationType.F16:
        return lambda rows: torch.from_numpy(rows.copy()).view(torch.float16)
    if kind is GGMLQuantizationType.BF16:
        return lambda rows: torch.from_numpy(rows.copy()).view(torch.bfloat16)
    return lambda rows: torch.from_numpy(dequantize(rows, kind))


__all__ = ["StoredRows", "TensorFile", "check_entries", "load_module"]
