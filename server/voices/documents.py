"""One safetensors file: read with its metadata, written whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError, safe_open

SUFFIX = ".safetensors"
SET_ASIDE = ".broken"
UNFINISHED = ".tmp"

# What numpy has; codes above 2**63 would turn negative.
_TYPES = ("F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32")

Array = npt.NDArray[Any]


class NewerFormat(ValueError):
    """A file of a later version of this program."""


@dataclass(frozen=True, slots=True)
class Document:
    """An open file: its metadata, and its arrays by name."""

    facts: Mapping[str, str]
    array: Callable[[str], Array]
    names: tuple[str, ...]


@contextlib.contextmanager
def open_document(path: Path, most_bytes: int | None) -> Iterator[Document]:
    """A safetensors file, open; of any length when `most_bytes` is None.

    Raises:
        ValueError: it is no file, longer than `most_bytes`, damaged, or something is missing in it.
        OSError: it cannot be read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
        raise ValueError("it is no regular file")
    if most_bytes is not None and status.st_size > most_bytes:
        raise ValueError(f"it has {status.st_size} bytes; at most {most_bytes} are expected")
    try:
        with safe_open(path, framework="np") as file:

            def array(name: str) -> Array:
                found = file.get_slice(name).get_dtype()
                if found not in _TYPES:
                    raise ValueError(f"`{name}` is of type {found}, not one of {', '.join(_TYPES)}")
                read: Array = file.get_tensor(name)
                return read

            yield Document(file.metadata() or {}, array, tuple(file.keys()))
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
    earlier = itertools.count(1)
    while os.path.lexists(aside):
        aside = path.with_name(f"{path.name}{SET_ASIDE}.{next(earlier)}")
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
    "NewerFormat",
    "open_document",
    "set_aside",
    "sync_folder",
    "write_whole",
]
