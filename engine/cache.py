"""Where made files are kept, and how they get there: complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


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
    always complete, and of two builders at the same time the first wins.

    Raises:
        OSError: the folder cannot be made.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        build(fresh)
        _publish(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _publish(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


__all__ = ["built_once", "cache_directory"]
