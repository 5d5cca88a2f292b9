"""The voice that comes with Framecast."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

from engine.assets import placeholder
from engine.assets.placeholder import NOTICE
from engine.config import ModelFiles

logger = logging.getLogger(__name__)


def bundled_voice() -> ModelFiles:
    """The placeholder voice's files, built on first use (under a second) and kept.

    They lie under `$FRAMECAST_CACHE`, else `$XDG_CACHE_HOME/framecast`, else
    `~/.cache/framecast`, in a folder named after the recipe; where none of it can be written,
    in a folder of the system's temporary directory.
    """
    try:
        folder = _built(_cache())
    except OSError as error:
        fallback = Path(tempfile.mkdtemp(prefix="framecast-"))
        logger.warning("cannot keep the placeholder voice (%s); using `%s`", error, fallback)
        folder = _built(fallback)
    return ModelFiles(folder / "talker.gguf", folder / "codec.gguf", warnings=(NOTICE,))


def _cache() -> Path:
    if own := os.environ.get("FRAMECAST_CACHE"):
        return Path(own)
    if user := os.environ.get("XDG_CACHE_HOME"):
        return Path(user) / "framecast"
    try:
        return Path.home() / ".cache" / "framecast"
    except RuntimeError as error:  # no home directory can be found
        raise OSError(str(error)) from error


def _built(cache: Path) -> Path:
    recipe = hashlib.sha256(Path(placeholder.__file__).read_bytes()).hexdigest()[:16]
    folder = cache / f"placeholder-{recipe}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".placeholder-", dir=cache))
    try:
        placeholder.build(fresh)
        _publish(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _publish(fresh: Path, folder: Path) -> None:
    """Rename, so that a folder of that name is always complete; the first of two builders wins."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


__all__ = ["NOTICE", "bundled_voice"]
