"""Saved voices and consent recordings, as what they are in memory and in their files.

A voice is one safetensors file: `embedding` F32[width], `codes` I16 or I32 [groups, frames], and
the rest as metadata. A consent recording is one too: `recording` U8[bytes], as it was sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import from_json

import engine
from engine import InvalidRequest
from server.voices.documents import Array, Document, NewerFormat
from server.voices.naming import checked_name

VOICE_FORMAT = "framecast.voice"
CONSENT_FORMAT = "framecast.consent"
VERSION = "1"

_LAST_TIME = 253_402_300_799  # the end of the year 9999
_MOST_BYTES = 2**53
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SavedVoice:
    """A voice with its name; `created_at` is in Unix seconds, `file_size` and `mime_type` are of
    the clip it was made of."""

    id: str
    name: str
    created_at: int
    voice: engine.Voice
    consent: str | None = None
    description: str | None = None
    mime_type: str | None = None
    file_size: int | None = None

    def fits(self, model: engine.ModelInfo) -> bool:
        """Whether the vector is as wide as the model's."""
        embedding = self.voice.embedding
        return embedding is None or embedding.size == model.speaker_width

    def facts(self) -> dict[str, str]:
        """The metadata of its file."""
        voice = self.voice
        known = {
            "format": VOICE_FORMAT,
            "version": VERSION,
            "name": self.name,
            "created_at": str(self.created_at),
            "transcript": voice.transcript,
            "tail_silence_s": f"{voice.tail_silence_s:g}" if voice.in_context else None,
            "model": voice.model,
            "clip": voice.clip,
            "warnings": json.dumps(voice.warnings) if voice.warnings else None,
            "consent": self.consent,
            "description": self.description,
            "mime_type": self.mime_type,
            "file_size": None if self.file_size is None else str(self.file_size),
        }
        return {name: value for name, value in known.items() if value is not None}

    def arrays(self) -> dict[str, Array]:
        """The arrays of its file."""
        codes = self.voice.codes
        if codes is not None:
            codes = codes.astype(np.int16 if codes.max() < 2**15 else np.int32)
        both = {"embedding": self.voice.embedding, "codes": codes}
        return {name: array for name, array in both.items() if array is not None}


@dataclass(frozen=True, slots=True)
class Consent:
    """What somebody agreed to, by its recording; `language` is a BCP-47 tag, `created_ns` are Unix
    nanoseconds."""

    id: str
    name: str
    language: str
    created_ns: int
    mime_type: str | None = None

    @property
    def created_at(self) -> int:
        """Unix seconds."""
        return self.created_ns // _NS

    def facts(self) -> dict[str, str]:
        """The metadata of its file."""
        known = {
            "format": CONSENT_FORMAT,
            "version": VERSION,
            "name": self.name,
            "language": self.language,
            "created_at": str(self.created_at),
            "created_ns": str(self.created_ns),
            "mime_type": self.mime_type,
        }
        return {name: value for name, value in known.items() if value is not None}


def read_voice(name: str, document: Document) -> SavedVoice:
    """A voice from its file.

    Raises:
        ValueError, KeyError: the file holds no voice; what is wrong with it.
    """
    facts = document.facts
    _check_format(facts, VOICE_FORMAT)
    arrays: dict[str, Array] = {
        key: document.array(key) for key in ("embedding", "codes") if key in document.names
    }
    try:
        return SavedVoice(
            id=name,
            name=checked_name(facts["name"]),
            created_at=_number(facts, "created_at", _LAST_TIME),
            voice=_voice(facts, arrays),
            consent=facts.get("consent"),
            description=facts.get("description"),
            mime_type=facts.get("mime_type"),
            file_size=_number(facts, "file_size", _MOST_BYTES) if "file_size" in facts else None,
        )
    except InvalidRequest as error:
        raise ValueError(str(error)) from None


def read_consent(name: str, document: Document) -> Consent:
    """A consent from its file, without the recording.

    Raises:
        ValueError, KeyError: the file holds no consent; what is wrong with it.
    """
    facts = document.facts
    _check_format(facts, CONSENT_FORMAT)
    if "recording" not in document.names:
        raise KeyError("recording")
    created_ns = _number(facts, "created_at", _LAST_TIME) * _NS
    if "created_ns" in facts:
        created_ns = _number(facts, "created_ns", _LAST_TIME * _NS)
    return Consent(
        id=name,
        name=facts["name"],
        language=facts["language"],
        created_ns=created_ns,
        mime_type=facts.get("mime_type"),
    )


def _check_format(facts: Mapping[str, str], wanted: str) -> None:
    found, version = facts.get("format", "of no known format"), facts.get("version", "")
    if (found, version) == (wanted, VERSION):
        return
    newer = found == wanted and version.isdecimal() and len(version) < 10
    kind = NewerFormat if newer and int(version) > int(VERSION) else ValueError
    raise kind(f"it is {found} {version}, not {wanted} {VERSION}")


def _number(facts: Mapping[str, str], name: str, most: int) -> int:
    text = facts[name]
    # Numbers of thousands of digits are an error of their own.
    if not (text.isdecimal() and len(text) < 20 and int(text) <= most):
        raise ValueError(f"`{name}` is {text[:40]!r}, no number from 0 to {most}")
    return int(text)


def _warnings(facts: Mapping[str, str]) -> tuple[str, ...]:
    found: Any = from_json(facts.get("warnings", "[]"))
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("`warnings` is no list of strings")
    return tuple(found)


def _voice(facts: Mapping[str, str], arrays: Mapping[str, Array]) -> engine.Voice:
    tail_s = float(facts.get("tail_silence_s", "0"))
    if not 0 <= tail_s <= engine.MOST_TAIL_S:
        raise ValueError(f"`tail_silence_s` is {tail_s:g}, not from 0 to {engine.MOST_TAIL_S:g}")
    return engine.Voice(
        arrays.get("embedding"),
        arrays.get("codes"),
        facts.get("transcript"),
        tail_silence_s=tail_s,
        model=facts.get("model"),
        clip=facts.get("clip"),
        warnings=_warnings(facts),
    )


__all__ = ["Consent", "SavedVoice", "read_consent", "read_voice"]
