"""Where made files are kept, and how they get there: complete or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("framecast.engine")

_UNFINISHED = ".unfinished-"


def cache_directory() -> Path:
    """`$FRAMECAST_CACHE`, else `$XDG_CACHE_HOME/framecast`, else `~/.cache/framecast`.

    Raises:
        OSError: none of the three is known.
    """
    if own := os.environ.get("FRAMECAST_CACHE"):
        return Path(own)
    if user := os.environ.get("XDG_CACHE_HOME"):
        return Path(user) / "framecast"
    try:
        return Path.home() / ".cache" / "framecast"
    except RuntimeError as error:  # no home directory can be found
        raise OSError(str(error)) from error


def built_once(folder: Path, build: Callable[[Path], object]) -> Path:
    """Return `folder`, filled by `build` if it is not there.

    `build` gets an empty folder beside it, which is renamed at the end: a folder of that name is
    always complete. A second builder waits for the first, and removes what a killed one left; on
    a system or disk without locks both build, and the first wins.

    Raises:
        OSError: the folder cannot be made.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if _locked(folder.parent, stack):
            for remains in folder.parent.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(remains, ignore_errors=True)
        if not folder.is_dir():
            _fill(folder, build)
    return folder


def _fill(folder: Path, build: Callable[[Path], object]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{folder.name}-", dir=folder.parent))
    try:
        build(fresh)
        _publish(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _publish(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _locked(parent: Path, stack: contextlib.ExitStack) -> bool:
    """Wait until nobody else builds in `parent`; False when that cannot be told here.

    The system lets go of the lock when its process ends, however it ends.
    """
    try:
        import fcntl  # noqa: PLC0415  # not on Windows

        descriptor = os.open(parent, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that makes something in `%s`", parent)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True


__all__ = ["built_once", "cache_directory"]
