"""The voice that comes with Framecast."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path

from engine.assets import placeholder
from engine.assets.placeholder import NOTICE
from engine.cache import built_once, cache_directory
from engine.config import ModelFiles

logger = logging.getLogger(__name__)


def bundled_voice() -> ModelFiles:
    """The placeholder voice's files, built on first use (under a second) and kept.

    They lie under `$FRAMECAST_CACHE`, else `$XDG_CACHE_HOME/framecast`, else
    `~/.cache/framecast`, in a folder named after the recipe; where none of it can be written,
    in a folder of the system's temporary directory.
    """
    try:
        folder = _built(cache_directory())
    except OSError as error:
        fallback = Path(tempfile.mkdtemp(prefix="framecast-"))
        logger.warning("cannot keep the placeholder voice (%s); using `%s`", error, fallback)
        folder = _built(fallback)
    return ModelFiles(folder / "talker.gguf", folder / "codec.gguf", warnings=(NOTICE,))


def _built(cache: Path) -> Path:
    recipe = hashlib.sha256(Path(placeholder.__file__).read_bytes()).hexdigest()[:16]
    return built_once(cache / f"placeholder-{recipe}", placeholder.build)


__all__ = ["NOTICE", "bundled_voice"]
