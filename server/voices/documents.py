"""One safetensors file: read with its metadata, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError, safe_open

SUFFIX = ".safetensors"
SET_ASIDE = ".broken"
UNFINISHED = ".tmp"

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Document:
    """An open file: its metadata, and its arrays by name."""

    facts: Mapping[str, str]
    array: Callable[[str], Array]
    names: tuple[str, ...]


@contextlib.contextmanager
def open_document(path: Path, most_bytes: int) -> Iterator[Document]:
    """A safetensors file, open.

    Raises:
        ValueError: it is longer than `most_bytes`, damaged, or something is missing in it.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"it has {size} bytes; at most {most_bytes} are expected")
    try:
        with safe_open(path, framework="np") as file:
            yield Document(file.metadata() or {}, file.get_tensor, tuple(file.keys()))
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is complete or not there, also after a crash; its owner alone may read it.

    One writer at a time: the name it has until it is complete is the file's own.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    unfinished = path.with_name(f".{path.stem}{UNFINISHED}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def set_aside(path: Path) -> str:
    """Rename a broken file, so that it is not read again; says what became of it."""
    aside = path.with_name(path.name + SET_ASIDE)
    try:
        path.replace(aside)
    except OSError as error:
        return f"left alone: {error}"
    return f"set aside as `{aside.name}`"


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = [
    "SET_ASIDE",
    "SUFFIX",
    "UNFINISHED",
    "Array",
    "Document",
    "open_document",
    "set_aside",
    "sync_folder",
    "write_whole",
]
