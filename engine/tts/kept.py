"""What was made of voices, kept by what it was made of. Used on the worker thread only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    value: Any
    nbytes: int
    origins: frozenset[str]


class Keeper:
    """Values by key, bounded in bytes: the least recently used go first.

    `hits` counts what was found, `nbytes` is what is held.
    """

    def __init__(self, most_bytes: int) -> None:
        self.hits = 0
        self.nbytes = 0
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def peek(self, key: Hashable) -> Any:
        """Like `get`, as if nobody had asked."""
        kept = self._kept.get(key)
        return None if kept is None else kept.value

    def get(self, key: Hashable) -> Any:
        """The value of a key, None when there is none."""
        if key not in self._kept:
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return self._kept[key].value

    def keep(self, key: Hashable, value: Any, nbytes: int, *origins: str) -> None:
        """Keep a value, unless there is no room for it even alone; `origins` are digests of what it
        was made of, for `forget`."""
        self._drop(key)
        if nbytes > self._most_bytes:
            return
        self._kept[key] = _Kept(value, nbytes, frozenset(origins))
        self.nbytes += nbytes
        while self.nbytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def forget(self, origins: frozenset[str]) -> int:
        """Drop everything made of any of these; returns the bytes freed."""
        before = self.nbytes
        for key in [key for key, kept in self._kept.items() if kept.origins & origins]:
            self._drop(key)
        return before - self.nbytes

    def _drop(self, key: Hashable) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self.nbytes -= kept.nbytes


__all__ = ["Keeper"]
