"""What ElevenLabs' clients send to be spoken, turned into a speech body of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import InvalidRequest
from server.audio.formats import FORMATS, AudioFormat
from server.schemas.fields import Between, as_invalid_request, query_integer, query_number
from server.schemas.speech import SpeechBody

_OUTPUT = re.compile(r"(mp3|opus)_(\d+)_(\d+)|(pcm|wav|ulaw|alaw)_(\d+)")
DEFAULT_OUTPUT = "mp3_44100_128"
OUTPUTS = (
    "mp3_22050_32", "mp3_24000_48", "mp3_44100_32", "mp3_44100_64", "mp3_44100_96",
    "mp3_44100_128", "mp3_44100_192", "opus_48000_32", "opus_48000_64", "opus_48000_96",
    "opus_48000_128", "opus_48000_192", "pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000",
    "pcm_32000", "pcm_44100", "pcm_48000", "wav_8000", "wav_16000", "wav_22050", "wav_24000",
    "wav_32000", "wav_44100", "wav_48000", "ulaw_8000", "alaw_8000",
)  # fmt: skip
_NORMALIZE = {"on": True, "off": False}

# What their sockets' queries and opening messages may ask for without effect here.
LIVE_WITHOUT_EFFECT = (
    "apply_language_text_normalization", "enable_ssml_parsing", "optimize_streaming_latency",
    "sync_alignment", "generation_config", "generator_config", "pronunciation_dictionary_locators",
)  # fmt: skip
INACTIVE_S = Between(0, 180, above=True)


class VoiceSettings(BaseModel):
    """`speed` is followed; what else there is has no effect, and the reply says so."""

    model_config = ConfigDict(strict=True, extra="allow")

    speed: float | None = Field(None, description="0.25 to 4")


class ElevenLabsBody(BaseModel):
    """One text to be spoken, as ElevenLabs' clients send it."""

    model_config = ConfigDict(strict=True, extra="allow")

    text: str
    model_id: str | None = None
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: int | None = None
    apply_text_normalization: Literal["auto", "on", "off"] | None = None

    @classmethod
    def checked(cls, data: Any) -> ElevenLabsBody:
        """The body made of parsed JSON; `InvalidRequest` says what is wrong with it."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None

    def to_speech(self, voice: str, sample_rate: int) -> SpeechBody:
        """The same as a speech body; `InvalidRequest` in the client's names of the fields."""
        settings = self.voice_settings or VoiceSettings(speed=None)
        # Their own models stand for the one there is.
        model = self.model_id if not (self.model_id or "").startswith("eleven_") else None
        return SpeechBody.checked(
            {
                "input": self.text,
                "voice": voice,
                "model": model,
                "language": self.language_code,
                "speed": settings.speed,
                "seed": self.seed,
                "sample_rate": sample_rate,
                "normalize": _NORMALIZE.get(self.apply_text_normalization or "auto"),
            }
        )

    def without_effect(self) -> tuple[str, ...]:
        """One warning that names the fields this server has no use for, or none."""
        names = ", ".join(f"`{name}`" for name in self._unused())
        return (f"no effect here: {names}",) if names else ()

    def _unused(self) -> Iterator[str]:
        if self.voice_settings is not None:
            more = self.voice_settings.model_extra or {}
            yield from (f"voice_settings.{name}" for name, value in more.items() if value)
        yield from (name for name, value in (self.model_extra or {}).items() if value)


def live_fields(query: Mapping[str, str]) -> dict[str, Any]:
    """What a socket's query says of every context, as fields of an `ElevenLabsBody`."""
    fields: dict[str, Any] = {
        name: query[name]
        for name in ("model_id", "language_code", "apply_text_normalization")
        if name in query
    }
    fields["seed"] = query_integer(query, "seed")
    asked = {name: query.get(name, "") for name in LIVE_WITHOUT_EFFECT}
    return fields | {n: v for n, v in asked.items() if v.lower() not in ("", "0", "false")}


def inactivity_s(query: Mapping[str, str], default_s: float) -> float:
    """Seconds a context may be left alone: `inactivity_timeout`, at most 180."""
    seconds = query_number(query, "inactivity_timeout")
    if seconds is None:
        return default_s
    if seconds not in INACTIVE_S:
        raise InvalidRequest(
            f"`inactivity_timeout` must be {INACTIVE_S}, got {seconds:g}", "inactivity_timeout"
        )
    return seconds


def live_output(name: str) -> tuple[AudioFormat, int]:
    """Like `output_format`, for slices that are joined: no file with one header fits."""
    if name.startswith("wav"):
        known = ", ".join(each for each in OUTPUTS if not each.startswith("wav"))
        raise InvalidRequest(
            f"`output_format` {name!r} is not for a socket; one of {known}", "output_format"
        )
    return output_format(name)


def output_format(name: str) -> tuple[AudioFormat, int]:
    """The format and rate that a name such as `mp3_44100_128` stands for."""
    match = _OUTPUT.fullmatch(name) if name in OUTPUTS else None
    if match is None:
        known = ", ".join(OUTPUTS)
        raise InvalidRequest(f"unknown `output_format` {name!r}; one of {known}", "output_format")
    coded, rate, kbps, raw, raw_rate = match.groups()
    if raw:
        return FORMATS[raw], int(raw_rate)
    return replace(FORMATS[coded], bit_rate=int(kbps) * 1000), int(rate)


__all__ = [
    "DEFAULT_OUTPUT",
    "LIVE_WITHOUT_EFFECT",
    "OUTPUTS",
    "ElevenLabsBody",
    "VoiceSettings",
    "inactivity_s",
    "live_fields",
    "live_output",
    "output_format",
]
