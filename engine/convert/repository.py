"""What a repository on the hub holds, and which of its files make a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from engine.errors import ModelFileError

_READ_BY_CONVERSION = re.compile(
    r"(speech_tokenizer/)?((generation_|tokenizer_)?config\.json|vocab\.json|merges\.txt"
    r"|model[^/]*\.safetensors(\.index\.json)?)"
)
_CODEC_WORDS = ("tokenizer", "codec")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub states it; large files have their SHA-256."""

    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of one commit, by their path."""

    id: str
    commit: str
    files: Mapping[str, HubFile]

    @property
    def is_checkpoint(self) -> bool:
        """Whether it has the official layout: safetensors, and a codec under its own folder."""
        return all(
            f"{part}config.json" in self.files
            and any(path.startswith(f"{part}model") for path in self.checkpoint_files())
            for part in ("", "speech_tokenizer/")
        )

    def checkpoint_files(self) -> list[str]:
        """Paths of what a conversion reads."""
        return [path for path in self.files if _READ_BY_CONVERSION.fullmatch(path)]

    def gguf_pair(self, selector: str, type: str) -> tuple[str, str]:  # noqa: A002
        """Paths of a talker and its codec.

        Args:
            selector: the talker's file name, or a part of it that stands between `-`, `.`, `_`
                or `/`; empty takes the only one there is.
            type: decides between talkers that differ in their type only.

        Raises:
            ModelFileError: no file or several fit; the message lists what there is.
        """
        found = [path for path in self.files if path.lower().endswith(".gguf")]
        codecs = [path for path in found if _is_codec(path)]
        talkers = [path for path in found if path not in codecs]
        if not talkers or not codecs:
            raise ModelFileError(
                f"`{self.id}` is no model to speak with: it has neither a checkpoint with its"
                " `speech_tokenizer/` nor GGUF files of a talker and a codec;"
                f" its files: {_listed(list(self.files))}"
            )
        talker = self._talker(talkers, selector, type)
        return talker, self._codec(codecs, talker)

    def _talker(self, talkers: list[str], selector: str, kind: str) -> str:
        fitting = [path for path in talkers if _fits(path, selector)]
        if not fitting:
            raise ModelFileError(
                f"`{self.id}` has no talker that fits `{selector}`; it has {_listed(talkers)}"
            )
        narrowed = (
            [path for path in fitting if selector.lower() in _names(path)],
            fitting,
            [path for path in fitting if _type(path) == kind],
        )
        for paths in narrowed:
            if len(paths) == 1:
                return paths[0]
        raise ModelFileError(
            f"`{self.id}` has several talkers that fit; choose one, as in"
            f" `{self.id}:{PurePosixPath(fitting[0]).stem}`, of {_listed(fitting)}"
        )

    def _codec(self, codecs: list[str], talker: str) -> str:
        beside = PurePosixPath(talker).parent
        near = [path for path in codecs if PurePosixPath(path).parent == beside] or codecs
        alike = [path for path in near if _type(path) == _type(talker)]
        for paths in (near, alike):
            if len(paths) == 1:
                return paths[0]
        raise ModelFileError(
            f"`{self.id}`: which codec belongs to `{talker}` cannot be told; it has"
            f" {_listed(near)}. Download both files and give them as `--talker` and `--codec`"
        )


def _is_codec(path: str) -> bool:
    return any(word in PurePosixPath(path).name.lower() for word in _CODEC_WORDS)


def _names(path: str) -> tuple[str, str, str]:
    file = PurePosixPath(path.lower())
    return str(file), file.name, file.stem


def _fits(path: str, selector: str) -> bool:
    part = re.escape(selector.lower())
    return bool(re.search(rf"(?<![a-z0-9]){part}(?![a-z0-9])", path.lower())) or not selector


def _type(path: str) -> str:
    """What follows the last `-` of the name: `q8_0`."""
    return PurePosixPath(path).stem.lower().rpartition("-")[2]


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in sorted(paths)[:_SHOWN])
    rest = len(paths) - _SHOWN
    return shown + (f" and {rest} more" if rest > 0 else "") or "none"


__all__ = ["HubFile", "Repository"]
