"""A folder of safetensors files, one per entry: whole or not there at all, restored, bounded.

An entry is written to a temporary name, flushed to the disk and renamed, and so is the folder's
own list, before `put` returns: what was put survives a crash. Other processes may change the
folder, one at a time; `refresh` sees what they did and never waits for a writer. Everything that
touches files blocks: call it off the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from filelock import FileLock
from safetensors.numpy import save

from server.errors import StoreFull, StoreUnwritable
from server.voices.documents import (
    SUFFIX,
    UNFINISHED,
    Array,
    Document,
    NewerFormat,
    open_document,
    set_aside,
    sync_folder,
    write_whole,
)
from server.voices.naming import is_id

log = logging.getLogger(__name__)

_LOCK = ".lock"
_LOCK_TIMEOUT_S = 5.0
# A folder's time stamp is coarse: two changes may share one.
_COARSEST_STAMP_S = 2.0

T = TypeVar("T")
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Most entries and bytes of a store; `kind` and the settings' names are for messages.

    A file of more than `file_bytes` is none of the store's; None when files may have any length.
    """

    kind: str
    entries: int
    bytes: int
    file_bytes: int | None
    settings: tuple[str, str] = ("max_voices", "max_voices_bytes")


class Store(Generic[T]):
    """Entries of one kind by id.

    Args:
        folder: made when the first entry is put.
        prefix: of the ids; other files in the folder are left alone.
        parse: an entry from its id and file; `ValueError` and `KeyError` say what is wrong with it.
        limits: hold for what is put, not for what is there: nothing accepted is lost.
    """

    def __init__(
        self, folder: Path, prefix: str, parse: Callable[[str, Document], T], limits: Limits
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._parse = parse
        self._limits = limits
        self._writers = threading.Lock()
        # Held while what there is is read, never while somebody waits for the folder's lock or
        # writes.
        self._mutex = threading.Lock()
        self._entries: Mapping[str, T] = {}
        self._stamps: dict[str, Stamp] = {}
        self._seen: int | None = None

    @property
    def entries(self) -> Mapping[str, T]:
        """What there is; a mapping that is replaced, never changed."""
        return self._entries

    def restore(self) -> None:
        """Load the folder at start: broken files are renamed and warned about, the rest loads."""
        with contextlib.ExitStack() as stack:
            writable = self._folder.is_dir() and self._lock(stack)
            if writable:
                self._remove_unfinished()
            self._synchronise(renaming=writable)
        self._warn_when_over()

    def refresh(self) -> None:
        """See what other processes did to the folder; one `stat` when they did nothing."""
        stamp = self._folder_stamp()
        if stamp is None or stamp != self._seen:
            self._synchronise()

    def put(
        self,
        facts: Mapping[str, str],
        arrays: Mapping[str, Array],
        place: Callable[[Mapping[str, T]], str],
    ) -> T:
        """Write one entry, new or in place of an old one.

        Args:
            place: gives its id, from what there is just before, when nobody else may change it;
                what it raises ends the attempt.

        Raises:
            StoreFull: it would pass a limit.
            StoreUnwritable: the folder cannot be written; what was there before still is.
        """
        whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        data = save(whole, dict(facts))
        with self._writing():
            self._synchronise()
            name = place(self._entries)
            self._refuse_when_full(name, len(data))
            write_whole(self._path(name), data)
            self._synchronise()
            return self._entries[name]

    def change(self, name: str, changed: Callable[[T], Mapping[str, str]]) -> T | None:
        """Write an entry's file anew with what `changed` makes of its metadata; its arrays stay.

        Returns what it is now; None when there is none.

        Raises:
            StoreUnwritable: the folder cannot be written; what was there before still is.
        """
        if not self._folder.is_dir():
            return None
        with self._writing():
            self._synchronise()
            if name not in self._entries:
                return None
            with open_document(self._path(name), self._limits.file_bytes) as document:
                arrays = {each: document.array(each) for each in document.names}
            write_whole(self._path(name), save(arrays, dict(changed(self._entries[name]))))
            self._synchronise()
            return self._entries[name]

    def remove(self, name: str) -> T | None:
        """Delete an entry for good and return it; None when there is none.

        Raises:
            StoreUnwritable: the folder cannot be written.
        """
        if not self._folder.is_dir():
            return None
        with self._writing():
            self._synchronise()
            removed = self._entries.get(name)
            if removed is not None:
                self._path(name).unlink(missing_ok=True)
                sync_folder(self._folder)
                self._synchronise()
            return removed

    def _path(self, name: str) -> Path:
        assert is_id(name, self._prefix)
        return self._folder / f"{name}{SUFFIX}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with FileLock(self._folder / _LOCK, timeout=_LOCK_TIMEOUT_S, mode=0o600):
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._one_writer(), self._locked():
                yield
        except OSError as error:
            log.error("`%s` cannot be written: %s", self._folder, error)
            reason = error.strerror or "another process holds its lock"
            raise StoreUnwritable(
                f"the folder of saved {self._limits.kind} cannot be written: {reason}"
            ) from error

    @contextlib.contextmanager
    def _one_writer(self) -> Iterator[None]:
        if not self._writers.acquire(timeout=_LOCK_TIMEOUT_S):
            raise TimeoutError
        try:
            yield
        finally:
            self._writers.release()

    def _lock(self, stack: contextlib.ExitStack) -> bool:
        try:
            stack.enter_context(self._locked())
        except OSError as error:
            log.warning("`%s` cannot be written: %s", self._folder, error)
            return False
        return True

    def _remove_unfinished(self) -> None:
        # Whoever writes holds the lock, so these were left by a process that died.
        for path in self._folder.glob(f".{self._prefix}_*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    def _folder_stamp(self) -> int | None:
        try:
            stamp = self._folder.stat().st_mtime_ns
        except OSError:
            return None
        return stamp if time.time() - stamp / 1e9 > _COARSEST_STAMP_S else None

    def _synchronise(self, renaming: bool = False) -> None:
        with self._mutex:
            self._read_folder(renaming)

    def _read_folder(self, renaming: bool) -> None:
        seen = self._folder_stamp()
        found = dict(self._files())
        entries = {name: entry for name, entry in self._entries.items() if name in found}
        for name, stamp in found.items():
            if self._stamps.get(name) != stamp:
                entries.pop(name, None)
                entries |= self._read(name, renaming)
        self._stamps, self._entries, self._seen = found, entries, seen

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            if is_id(name, self._prefix):
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                except OSError:  # a link to itself; what is wrong with it is told once
                    yield name, (0, 0, 0)
                else:
                    yield name, (status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self, name: str, renaming: bool) -> dict[str, T]:
        path = self._path(name)
        try:
            with open_document(path, self._limits.file_bytes) as document:
                return {name: self._parse(name, document)}
        except FileNotFoundError:
            return {}
        except ValueError as error:
            renaming = renaming and not isinstance(error, NewerFormat)
            where = set_aside(path) if renaming else "left alone"
            log.warning("`%s` is not usable: %s; %s", path, error, where)
        except OSError as error:
            log.warning("`%s` cannot be read: %s", path, error)
        return {}

    def _refuse_when_full(self, name: str, size: int) -> None:
        limits, sizes = self._limits, self._sizes()
        if name not in sizes and len(sizes) >= limits.entries:
            raise StoreFull(
                f"this server holds {len(sizes)} {limits.kind} and its limit is {limits.entries} "
                f"(`{limits.settings[0]}`): delete one first"
            )
        grown = sum(sizes.values()) - sizes.get(name, 0) + size
        if grown > limits.bytes and size > sizes.get(name, 0):
            raise StoreFull(
                f"the {limits.kind} of this server would take {grown} bytes and their limit is "
                f"{limits.bytes} (`{limits.settings[1]}`): delete one first"
            )

    def _sizes(self) -> dict[str, int]:
        with self._mutex:
            return {name: self._stamps[name][1] for name in self._entries}

    def _warn_when_over(self) -> None:
        limits, count = self._limits, len(self._entries)
        size = sum(self._sizes().values())
        if count > limits.entries or size > limits.bytes:
            log.warning(
                "`%s` holds %d %s in %d bytes, more than the limits of %d and %d: all are kept, "
                "new ones are refused", self._folder, count, limits.kind, size, limits.entries,
                limits.bytes,
            )  # fmt: skip


__all__ = ["Limits", "Store"]
