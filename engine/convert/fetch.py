"""Models by their id on the Hugging Face hub: fetched and converted once, then kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from engine.cache import built_once, cache_directory
from engine.config import ModelFiles
from engine.convert.checkpoint import Progress, convert_checkpoint
from engine.convert.hub import Hub, UnreachableError
from engine.convert.quantize import one_thread, parse_type
from engine.convert.repository import Repository
from engine.errors import ModelFileError
from engine.gguf.spec import read_model_spec

logger = logging.getLogger(__name__)

_ID = re.compile(r"([\w.-]+/[\w.-]+)(?::(.+))?")


def fetch_model(
    hub_id: str,
    *,
    type: str = "q8_0",  # noqa: A002 - the command line's name
    cache_dir: Path | None = None,
    token: str | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
) -> ModelFiles:
    """Download a model of the hub, verify it, and convert it unless it consists of GGUF files.

    The download goes to the hub's own cache and is shown on stderr. What was fetched before is
    used again: as long as the hub names the same commit, and whenever it cannot be reached.
    `HF_ENDPOINT` and `HF_TOKEN` are respected.

    Args:
        hub_id: `OWNER/REPO` with the official layout (safetensors and `speech_tokenizer/`) or
            with GGUF files; `OWNER/REPO:NAME` chooses among several talkers there.
        type: what a checkpoint is converted to, and which GGUF file is taken if all else is equal.
        cache_dir: where converted files are kept; default: Framecast's cache.
        token: default: `HF_TOKEN`, else the one the hub's command line stored.
        revision: branch, tag or commit; default: the main branch.
        progress: as for `convert_checkpoint`.

    Raises:
        InvalidRequest: an unknown `type`.
        ModelFileError: no such repository, no access to it, no way to reach it, too little disk
            space, a file that is not what the hub states, or one that cannot be used.
    """
    parsed, kind = _ID.fullmatch(hub_id), parse_type(type).name.lower()
    if parsed is None:
        raise ModelFileError(f"`{hub_id}` is not a hub id: use `OWNER/REPO` or `OWNER/REPO:NAME`")
    repo, selector = parsed[1], parsed[2] or ""
    try:
        home = (cache_dir or cache_directory()) / "hub" / repo.replace("/", "--")
        hub = Hub.of(repo, revision, token)
        return _fetch(hub, selector, kind, home, progress)
    except OSError as error:
        place = f"`{error.filename}`" if error.filename else "the cache"
        raise ModelFileError(
            f"cannot keep `{hub_id}`: {place}: {error.strerror or error}; `FRAMECAST_CACHE` and"
            " `HF_HOME` say where models are kept"
        ) from None


def _fetch(hub: Hub, selector: str, kind: str, home: Path, progress: Progress | None) -> ModelFiles:
    key = hashlib.sha256(f"{selector}\n{kind}\n{hub.revision}".encode()).hexdigest()[:16]
    receipt = _Receipt(home / f"{key}.json")
    kept = receipt.read()
    try:
        listing = hub.listing()
    except UnreachableError as error:
        if kept is None:
            raise ModelFileError(
                f"cannot reach the hub ({error}), and `{hub.repo}` was not fetched before"
            ) from None
        logger.warning("cannot reach the hub (%s); using `%s` as fetched before", error, hub.repo)
        return kept[1]
    if kept is not None and kept[0] == listing.commit:
        return kept[1]
    if listing.is_checkpoint and not selector:
        files = _converted(hub, listing, kind, home, progress)
    else:
        talker, codec = listing.gguf_pair(selector, kind)
        paths = hub.download(listing, [talker, codec])
        files = ModelFiles(paths[talker], paths[codec])
    read_model_spec(files.talker, files.codec)
    receipt.write(listing.commit, files)
    return files


def _converted(
    hub: Hub, listing: Repository, kind: str, home: Path, progress: Progress | None
) -> ModelFiles:
    names = listing.checkpoint_files()

    def build(folder: Path) -> None:
        # Checkpoints are BF16, so F32 doubles them; nothing else is larger than its source.
        growth = 2 if kind == "f32" else 1
        size = growth * sum(listing.files[name].size for name in names)
        paths = hub.download(listing, names, (home, size))
        with one_thread():
            convert_checkpoint(paths["config.json"].parent, folder, kind, progress=progress)

    folder = built_once(home / f"{listing.commit}-{kind}", build)
    return ModelFiles(folder / "talker.gguf", folder / "codec.gguf", hub.repo.partition("/")[2])


@dataclass(frozen=True, slots=True)
class _Receipt:
    """What was fetched for an id, and at which commit; written last."""

    path: Path

    def read(self) -> tuple[str, ModelFiles] | None:
        try:
            content = json.loads(self.path.read_bytes())
            files = ModelFiles(Path(content["talker"]), Path(content["codec"]), content["name"])
            commit = str(content["commit"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (commit, files) if files.talker.is_file() and files.codec.is_file() else None

    def write(self, commit: str, files: ModelFiles) -> None:
        content = {"talker": str(files.talker), "codec": str(files.codec), "name": files.name}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content | {"commit": commit}), encoding="utf-8")
        fresh.replace(self.path)


__all__ = ["fetch_model"]
