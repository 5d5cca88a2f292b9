"""The bytes of a GGUF file: a memory map, and a cursor that never reads past its end."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from engine.errors import ModelFileError


def map_file(path: Path) -> mmap.mmap:
    """Map a file for reading after a look at its first bytes.

    Raises:
        ModelFileError: no such file, a directory, a pipe or device, empty, unreadable, or not
            GGUF (the message says what it seems to be instead).
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"`{path}` is a directory, not a GGUF file")
        if path.exists() and not path.is_file():  # to open a pipe would wait for its writer
            raise ModelFileError(f"`{path}` is not a regular file but a pipe, socket or device")
        with path.open("rb") as file:
            _check_identity(path, file.read(512))
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"`{path}` does not exist") from None
    except OSError as error:
        raise ModelFileError(f"`{path}` cannot be read: {error.strerror or error}") from None


class Cursor:
    """A position in the mapped file; every read is checked against the bytes that remain."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0

    def fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"`{self.path}`: {problem}")

    def take(self, size: int, what: str) -> int:
        start = self.position
        remaining = self.size - start
        if size > remaining:
            self.fail(
                f"{what} at byte {start} needs {size} bytes but {remaining} remain: the header"
                " is truncated or damaged"
            )
        self.position = start + size
        return start

    def u32(self, what: str) -> int:
        start = self.take(4, what)
        return int.from_bytes(self.data[start : start + 4], "little")

    def u64(self, what: str) -> int:
        start = self.take(8, what)
        return int.from_bytes(self.data[start : start + 8], "little")

    def count(self, what: str, smallest: int) -> int:
        number = self.u64(f"the number of {what}")
        if number > (self.size - self.position) // smallest:
            self.fail(
                f"the header declares {number} {what}, more than the file's {self.size} bytes"
                " can hold: truncated or damaged"
            )
        return number

    def text(self, what: str, limit: int | None = None) -> str:
        length = self.u64(f"the length of {what}")
        if limit is not None and length > limit:
            self.fail(f"{what} is {length} bytes long; at most {limit} are allowed")
        start = self.take(length, what)
        try:
            return self.data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} at byte {start} is not valid UTF-8")

    def texts(self, number: int, what: str) -> tuple[str, ...]:
        # One vocabulary has hundreds of thousands of strings: no method calls in this loop.
        data, size, position = self.data, self.size, self.position
        length_at = struct.Struct("<Q").unpack_from
        found: list[str] = []
        for _ in range(number):
            end = position + 8
            if end > size or (end := end + length_at(data, position)[0]) > size:
                self.fail(f"{what} runs past the end of the file: truncated or damaged")
            try:
                found.append(str(data[position + 8 : end], "utf-8"))
            except UnicodeDecodeError:
                self.fail(f"{what} has an item at byte {position} that is not valid UTF-8")
            position = end
        self.position = position
        return tuple(found)

    def values(self, kind: np.dtype[Any], number: int, what: str) -> list[Any]:
        start = self.take(kind.itemsize * number, what)
        found: list[Any] = np.frombuffer(self.data[start : self.position], kind).tolist()
        return found


def _check_identity(path: Path, head: bytes) -> None:
    if not head:
        raise ModelFileError(f"`{path}` is empty")
    if not head.startswith(b"GGUF"):
        raise ModelFileError(f"`{path}` is not a GGUF file: {_what_it_is(head)}")


def _what_it_is(head: bytes) -> str:
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; fetch the real file with `git lfs pull`"
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "it is an HTML page; the download probably returned an error page"
    if head[8:9] == b"{":
        return "it looks like safetensors; `framecast convert` makes GGUF files from a checkpoint"
    if head.startswith(b"PK\x03\x04"):
        return "it is a zip archive"
    return f"it begins with {head[:4]!r} instead of b'GGUF'"


__all__ = ["Cursor", "map_file"]
