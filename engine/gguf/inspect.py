"""A printable report of what a GGUF file holds. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.gguf.header import Header, TensorEntry, read_header

_SHOWN = 8  # items of an array; longer ones are counted
_WIDEST = 80


def inspect(path: Path) -> str:
    """Describe a GGUF file: what it is, its metadata, its tensors by type and one by one.

    Raises:
        ModelFileError: the file is missing, not GGUF, truncated or damaged.
    """
    path = Path(path)
    header = read_header(path)
    parts = [
        _table(_summary(path, header)),
        "metadata\n" + _table((key, _shown(value)) for key, value in header.metadata.items()),
        "types\n" + _table(_types(header.tensors)),
        "tensors\n" + _table(_tensors(header.tensors)),
    ]
    return "\n\n".join(parts)


def _summary(path: Path, header: Header) -> list[tuple[str, ...]]:
    return [
        ("file", str(path)),
        ("bytes", f"{path.stat().st_size:,}"),
        ("GGUF version", str(header.version)),
        ("architecture", str(header.metadata.get("general.architecture", "(none)"))),
        ("name", str(header.metadata.get("general.name", "(none)"))),
        ("tensors", f"{len(header.tensors):,}"),
        ("parameters", f"{sum(map(_values, header.tensors.values())):,}"),
    ]


def _types(tensors: Mapping[str, TensorEntry]) -> list[tuple[str, ...]]:
    groups: dict[str, list[TensorEntry]] = {}
    for entry in tensors.values():
        groups.setdefault(entry.type.name, []).append(entry)
    rows = [
        (
            name,
            f"{len(group):,} tensors",
            f"{sum(map(_values, group)):,} parameters",
            f"{sum(entry.nbytes for entry in group):,} bytes",
        )
        for name, group in groups.items()
    ]
    return sorted(rows)


def _tensors(tensors: Mapping[str, TensorEntry]) -> list[tuple[str, ...]]:
    return [(entry.name, str(list(entry.shape)), entry.type.name) for entry in tensors.values()]


def _values(entry: TensorEntry) -> int:
    return math.prod(entry.shape)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > _SHOWN:
        return f"({len(value):,} items)"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _WIDEST else text[:_WIDEST] + "..."


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


__all__ = ["inspect"]
