"""A checkpoint's JSON and text files, read with every value checked; each failure names the key."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import ModelFileError

_F32_MAX = (2 - 2**-23) * 2.0**127


class Config:
    """One JSON object of a checkpoint with checked access; `where` names it in messages."""

    def __init__(self, path: Path, content: Any, where: str = "") -> None:
        self.path = path
        self.where = where
        if not isinstance(content, dict):
            self.fail(f"{f'`{where}`' if where else 'the file'} must be a JSON object")
        self.content: Mapping[str, Any] = content

    def fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"`{self.path}`: {problem}")

    def get(self, key: str) -> Any:
        if key not in self.content:
            self.fail(f"`{self._full(key)}` is missing")
        return self.content[key]

    def section(self, key: str) -> Config:
        return Config(self.path, self.get(key), self._full(key))

    def optional(self, key: str) -> Config:
        return Config(self.path, self.content.get(key) or {}, self._full(key))

    def u32(self, key: str) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            self._wrong(key, "an integer from 0 to 4294967295")
        return value

    def f32(self, key: str) -> float:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number")
        if not abs(value) <= _F32_MAX:  # NaN too
            self._wrong(key, "a number that F32 can hold")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            self._wrong(key, "true or false")
        return value

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or not value:
            self._wrong(key, "a string")
        if not _is_unicode(value):
            self._wrong(key, "a string without lone surrogates")
        return value

    def one_of(self, key: str, valid: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in valid:
            self._wrong(key, "one of " + ", ".join(f"`{name}`" for name in valid))
        return value

    def i32s(self, key: str) -> list[int]:
        values = self.get(key)
        if not isinstance(values, list) or not all(_is_i32(value) for value in values):
            self._wrong(key, "an array of integers")
        return values

    def ids(self, limit: int) -> dict[str, int]:
        """The whole object as names to token ids below `limit`."""
        for name, id_ in self.content.items():
            if not _is_unicode(name):
                self.fail(f"the key {self._full(name)!a} must not hold lone surrogates")
            if not _is_i32(id_) or not 0 <= id_ < limit:
                self._wrong(name, f"a token id below {limit}")
        return dict(self.content)

    def _full(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _wrong(self, key: str, expected: str) -> NoReturn:
        self.fail(f"`{self._full(key)}` is {shortened(self.content[key])}; it must be {expected}")


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 60


def shortened(value: Any) -> str:
    """`value` for a message: only a part of what is long or deeply nested."""
    return _REPR.repr(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_i32(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31


def read_config(path: Path) -> Config:
    """Read a JSON file.

    Raises:
        ModelFileError: missing, unreadable, not JSON, or not an object.
    """
    try:
        return Config(path, json.loads(read_text(path)))
    except ValueError as error:
        raise ModelFileError(f"`{path}` is not valid JSON: {error}") from None
    except RecursionError:
        raise ModelFileError(f"`{path}` is not a configuration: it is nested too deeply") from None


def read_text(path: Path) -> str:
    """Read a UTF-8 file.

    Raises:
        ModelFileError: missing, unreadable, or not UTF-8.
    """
    try:
        check_regular(path)
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelFileError(f"`{path}` is missing from the checkpoint") from None
    except UnicodeDecodeError:
        raise ModelFileError(f"`{path}` is not UTF-8 text") from None
    except OSError as error:
        raise ModelFileError(f"`{path}` cannot be read: {error.strerror}") from None


def check_regular(path: Path) -> None:
    """Refuse what may never end or answer when it is read.

    Raises:
        ModelFileError: a directory, pipe, socket or device; a missing file passes.
    """
    if path.exists() and not path.is_file():
        raise ModelFileError(f"`{path}` is not a regular file")


__all__ = ["Config", "check_regular", "read_config", "read_text", "shortened"]
