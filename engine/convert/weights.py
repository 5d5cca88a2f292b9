"""The safetensors files of a checkpoint directory, read as one set of names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.convert.source import check_regular, read_config
from engine.errors import ModelFileError

_FLOATS = ("F32", "F16", "BF16")


class Weights:
    """`model.safetensors`, or the shards its index names, opened by memory map.

    Raises:
        ModelFileError: files that are missing, damaged, or not what the index says.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = contextlib.ExitStack()
        self._opened: dict[str, tuple[Any, frozenset[str]]] = {}
        try:
            self._files = self._locate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the files."""
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """Every tensor's name, sorted, so that sharding changes nothing."""
        return sorted(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, read without its values.

        Raises:
            ModelFileError: its values are not floats, or it has none.
        """
        part = self._files[name].get_slice(name)
        if part.get_dtype() not in _FLOATS:
            raise ModelFileError(
                f"`{self.directory}`: the tensor `{name}` has the type {part.get_dtype()}; it must"
                f" be one of {', '.join(_FLOATS)}"
            )
        shape = tuple(part.get_shape())
        if not shape or 0 in shape:
            raise ModelFileError(
                f"`{self.directory}`: the tensor `{name}` is {list(shape)}; it must have values in"
                " one dimension or more"
            )
        return shape

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor's values as they are stored."""
        values: torch.Tensor = self._files[name].get_tensor(name)
        return values

    def _locate(self) -> Mapping[str, Any]:
        single = "model.safetensors"
        index = self.directory / "model.safetensors.index.json"
        if (self.directory / single).exists():
            file, names = self._open(single)
            return dict.fromkeys(names, file)
        if not index.exists():
            raise ModelFileError(
                f"`{self.directory / single}` is missing from the checkpoint, and so is"
                f" `{index.name}`"
            )
        shards = read_config(index).section("weight_map").content
        return {name: self._in_shard(name, str(shard), index) for name, shard in shards.items()}

    def _in_shard(self, name: str, shard: str, index: Path) -> Any:
        if Path(shard).name != shard:
            raise ModelFileError(f"`{index}` names {shard!r}, which is not a file beside it")
        file, names = self._open(shard)
        if name not in names:
            raise ModelFileError(
                f"`{self.directory / shard}` has no tensor `{name}`, which `{index.name}` places"
                " there"
            )
        return file

    def _open(self, name: str) -> tuple[Any, frozenset[str]]:
        if name in self._opened:
            return self._opened[name]
        path = self.directory / name
        try:
            check_regular(path)
            file = self._stack.enter_context(safe_open(path, framework="pt"))
        except FileNotFoundError:
            raise ModelFileError(f"`{path}` is missing from the checkpoint") from None
        except (SafetensorError, OSError, ValueError) as error:  # a name no file can have, too
            shown = ascii(str(path))[1:-1] if isinstance(error, ValueError) else path
            raise ModelFileError(f"`{shown}` is not a readable safetensors file: {error}") from None
        self._opened[name] = (file, frozenset(file.keys()))
        return self._opened[name]


__all__ = ["Weights"]
