"""What Deepgram's clients send to be spoken, turned into a speech body of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from engine import InvalidRequest
from server.audio.formats import FORMATS, AudioFormat
from server.names import Names
from server.schemas.fields import as_invalid_request, query_integer, query_number
from server.schemas.speech import SpeechBody

_VOICE = re.compile(r"aura(-2)?-(?P<name>[a-z]+)-(?P<language>[a-z]{2})")

NOT_SERVED = ("callback", "callback_method")


@dataclass(frozen=True, slots=True)
class Encoding:
    """One of Deepgram's encodings: our format, its containers (the first is the default), the
    rate taken when nobody asks, and whether another may be asked for."""

    format: str
    containers: tuple[str, ...]
    rate: int
    fixed_rate: bool = False
    bit_rate: tuple[int, int] | None = None
    default_bit_rate: int | None = None


ENCODINGS = {
    "linear16": Encoding("pcm", ("wav", "none"), 24_000),
    "mulaw": Encoding("ulaw", ("wav", "none"), 8_000),
    "alaw": Encoding("alaw", ("wav", "none"), 8_000),
    "mp3": Encoding("mp3", ("none",), 22_050, True, (32_000, 48_000), 48_000),
    "opus": Encoding("opus", ("ogg",), 48_000, True, (6_000, 256_000), 48_000),
    "flac": Encoding("flac", ("none",), 24_000),
    "aac": Encoding("aac", ("none",), 22_050, True, (4_000, 192_000), 48_000),
}
# Those whose slices can be joined, as a socket's are.
LIVE_ENCODINGS = ("linear16", "mulaw", "alaw")
_WAV_TAGS = {"linear16": 1, "alaw": 6, "mulaw": 7}


class DeepgramBody(BaseModel):
    """The text to be spoken."""

    model_config = ConfigDict(strict=True, extra="ignore")

    text: str


@dataclass(frozen=True, slots=True)
class DeepgramSpeech:
    """A request for speech; how is in the query, what is in the body."""

    body: SpeechBody
    format: AudioFormat
    warnings: tuple[str, ...]


def deepgram_speech(query: Mapping[str, str], data: Any, names: Names) -> DeepgramSpeech:
    """The same as a speech body of ours; `InvalidRequest` says what is wrong with it."""
    try:
        text = DeepgramBody.model_validate(data).text
    except ValidationError as error:
        raise as_invalid_request(dict(error.errors()[0])) from None
    for name in NOT_SERVED:
        if name in query:
            raise InvalidRequest(f"`{name}` is not served: the reply is the sound", name)
    name, encoding = _encoding(query)
    model, voice, warnings = _voice(query.get("model"), names)
    fields = {
        "input": text,
        "model": model,
        "voice": voice,
        "speed": query_number(query, "speed"),
        "sample_rate": _rate(query, name, encoding),
    }
    made = _container(query, name, encoding)
    return DeepgramSpeech(SpeechBody.checked(fields), _with_bit_rate(made, query, name), warnings)


def live_query(query: Mapping[str, str]) -> dict[str, str]:
    """A socket's query with what is taken when it does not say; `InvalidRequest` for sound that
    is not for a socket."""
    wanted = {"encoding": "linear16", "container": "none", **query}
    if wanted["encoding"].strip().lower() not in LIVE_ENCODINGS:
        known = ", ".join(LIVE_ENCODINGS)
        raise InvalidRequest(
            f"`encoding` of a socket must be one of {known}, got {wanted['encoding']!r}", "encoding"
        )
    if wanted["container"].strip().lower() != "none":
        raise InvalidRequest(
            f"`container` of a socket must be `none`, got {wanted['container']!r}", "container"
        )
    return wanted


def _encoding(query: Mapping[str, str]) -> tuple[str, Encoding]:
    name = query.get("encoding", "mp3").strip().lower()
    if name not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise InvalidRequest(f"unknown `encoding` {name!r}; one of {known}", "encoding")
    return name, ENCODINGS[name]


def _container(query: Mapping[str, str], name: str, encoding: Encoding) -> AudioFormat:
    container = query.get("container", encoding.containers[0]).strip().lower()
    if container not in encoding.containers:
        known = " or ".join(f"`{each}`" for each in encoding.containers)
        raise InvalidRequest(
            f"`container` of {name} must be {known}, got {container!r}", "container"
        )
    made = FORMATS[encoding.format]
    if container == "wav":
        return replace(made, media_type="audio/wav", wav_tag=_WAV_TAGS[name])
    return made


def _rate(query: Mapping[str, str], name: str, encoding: Encoding) -> int:
    given = query_integer(query, "sample_rate")
    if given is None:
        return encoding.rate
    if encoding.fixed_rate and given != encoding.rate:
        raise InvalidRequest(
            f"`sample_rate` of {name} is {encoding.rate} and cannot be chosen", "sample_rate"
        )
    return given


def _with_bit_rate(made: AudioFormat, query: Mapping[str, str], name: str) -> AudioFormat:
    encoding = ENCODINGS[name]
    given = query_number(query, "bit_rate")
    if given is None:
        return replace(made, bit_rate=encoding.default_bit_rate)
    if encoding.bit_rate is None:
        raise InvalidRequest(f"`bit_rate` does not go with {name}", "bit_rate")
    low, high = encoding.bit_rate
    if not low <= given <= high:
        raise InvalidRequest(
            f"`bit_rate` of {name} must be between {low} and {high}, got {given:g}", "bit_rate"
        )
    return replace(made, bit_rate=int(given))


def _voice(wanted: str | None, names: Names) -> tuple[str | None, str | None, tuple[str, ...]]:
    """What `model` means: a served model, a voice of ours, or one of Deepgram's voices."""
    if wanted is None:
        return None, None, ()
    given = wanted.strip().lower()
    if given in {model.name.lower() for model in names.models}:
        return wanted, None, ()
    known = {name.lower() for name in names.known_voices(names.models[0])}
    match = _VOICE.fullmatch(given)
    if given in known or match is None:
        return None, wanted, ()
    if match["name"] in known:
        return None, match["name"], ()
    message = (
        f"there is no voice {wanted!r}: the default voice speaks; `voice_aliases` can name one"
    )
    return None, None, (message,)


__all__ = [
    "ENCODINGS",
    "LIVE_ENCODINGS",
    "DeepgramBody",
    "DeepgramSpeech",
    "deepgram_speech",
    "live_query",
]
