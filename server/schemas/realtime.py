"""What clients of OpenAI's Realtime API configure, and how that is spoken.

Sessions are kept as they go over the wire in the shape of today (`audio.output.voice`); that of the
beta, which is flat, is turned into it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from engine import InvalidRequest
from server.schemas.fields import Between, as_invalid_request, json_type
from server.schemas.speech import SpeechBody

# The type of an audio format -> ours; the beta's name -> the type.
FORMATS = {"audio/pcm": "pcm", "audio/pcmu": "ulaw", "audio/pcma": "alaw"}
BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
PCM_RATE = 24_000
MOST_TOKENS = 4096
# Our own fields, which a session may have as well.
OURS = ("language", "seed", "normalize", "loudness_lufs")
# What a speech body calls a field -> what these clients call it.
FIELDS = {
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "max_new_tokens": "max_output_tokens",
}
# The beta's flat names -> the way to their place.
_FLAT = {
    "modalities": ("output_modalities",),
    "max_response_output_tokens": ("max_output_tokens",),
    "voice": ("audio", "output", "voice"),
    "speed": ("audio", "output", "speed"),
    "output_audio_format": ("audio", "output", "format"),
    "input_audio_format": ("audio", "input", "format"),
    "input_audio_transcription": ("audio", "input", "transcription"),
    "input_audio_noise_reduction": ("audio", "input", "noise_reduction"),
    "turn_detection": ("audio", "input", "turn_detection"),
}
# What updates merge into; other objects are replaced.
_MERGED = ("audio", "audio.input", "audio.output")
_STYLE = re.compile(r"delivery style:(.*)", re.IGNORECASE | re.DOTALL)


def _one_of(*known: str) -> Any:
    def check(value: Any, info: ValidationInfo) -> Any:
        if value in known:
            return value
        raise _refused(info, f"one of {', '.join(known)}", value)

    return BeforeValidator(check)


def _format(value: Any, info: ValidationInfo) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FORMATS:
        raise _refused(info, f"an object with `type` one of {', '.join(FORMATS)}", value)
    if kind == "audio/pcm" and value.get("rate", PCM_RATE) not in (PCM_RATE, None):
        raise _refused(info, f"of `rate` {PCM_RATE}", value["rate"])
    return value


def _voice(value: Any) -> Any:
    return value.get("id") if isinstance(value, dict) else value


def _modalities(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, list) and "audio" in value:
        return ["audio"]
    raise _refused(info, '["audio"]: text alone is not served', value)


def _tokens(value: Any, info: ValidationInfo) -> Any:
    if value in ("inf", None):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value in Between(1, MOST_TOKENS):
        return value
    raise _refused(info, f"`inf` or a whole number from 1 to {MOST_TOKENS}", value)


def _refused(info: ValidationInfo, wanted: str, value: Any) -> PydanticCustomError:
    return PydanticCustomError(
        "refused",
        "`{field}` must be {wanted}, got {got}",
        {"field": info.field_name, "wanted": wanted, "got": json_type(value)},
    )


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Output(_Part):
    """How sound is sent."""

    format: Annotated[Any, AfterValidator(_format)] = {"type": "audio/pcm", "rate": PCM_RATE}
    voice: Annotated[str | None, BeforeValidator(_voice)] = None
    speed: float = 1.0


class Audio(_Part):
    """What comes in is kept as it is: nothing listens to it."""

    input: dict[str, Any] = {}
    output: Output = Output()


class Speaker(_Part):
    """What a session says for all its responses, and a response for itself."""

    type: Annotated[str, _one_of("realtime")] = "realtime"
    model: str | None = None
    output_modalities: Annotated[Any, AfterValidator(_modalities)] = ["audio"]
    instructions: str = ""
    tools: list[Any] = []
    tool_choice: Annotated[str, _one_of("auto", "none")] = "auto"
    max_output_tokens: Annotated[Any, BeforeValidator(_tokens)] = None
    audio: Audio = Audio()

    @classmethod
    def checked(cls, data: dict[str, Any]) -> Speaker:
        """Made of a session in today's shape; `InvalidRequest` says what is wrong with it."""
        given = {name: value for name, value in data.items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None

    def to_speech(self, session: dict[str, Any], text: str) -> SpeechBody:
        """The same as a speech body, with what of ours the session has besides."""
        output = self.audio.output
        return SpeechBody.checked(
            {name: session.get(name) for name in OURS}
            | {
                "input": text,
                "model": served(self.model),
                "voice": output.voice,
                "response_format": FORMATS[output.format["type"]],
                "speed": output.speed,
                "instructions": style(self.instructions),
                "max_new_tokens": self.max_output_tokens,
            }
        )


def served(model: str | None) -> str | None:
    """The model a name asks for: OpenAI's own stand for the one there is."""
    return None if re.match(r"gpt-.*(realtime|audio)", model or "") else model


def style(instructions: str) -> str | None:
    """What instructions say of the delivery. The rest tells a model that talks what to say, and
    is neither spoken nor followed."""
    match = _STYLE.search(instructions)
    return match[1].strip() or None if match else None


def is_beta(given: dict[str, Any]) -> bool:
    """Whether a session's or response's fields have the shape of the beta."""
    return "type" not in given and any(name in given for name in _FLAT)


def merged(session: dict[str, Any], given: dict[str, Any], path: str = "") -> dict[str, Any]:
    """A session with what is given changed; null takes the default. `InvalidRequest` for what
    cannot be read."""
    result = dict(session)
    for name, value in (_unflattened(given) if not path else given).items():
        place = f"{path}{name}"
        if value is None and path != "audio.input.":
            result.pop(name, None)
        elif place not in _MERGED:
            result[name] = value
        elif isinstance(value, dict):
            result[name] = merged(result.get(name) or {}, value, f"{place}.")
        else:
            raise InvalidRequest(f"`{place}` must be an object, got {json_type(value)}", place)
    return result


def _unflattened(given: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {name: value for name, value in given.items() if name not in _FLAT}
    for name in _FLAT.keys() & given.keys():
        value = given[name]
        if name.endswith("audio_format") and isinstance(value, str):
            value = {"type": BETA_FORMATS.get(value, value)}
        *way, last = _FLAT[name]
        place = result
        for step in way:
            inner = place.get(step)
            place[step] = dict(inner) if isinstance(inner, dict) else {}
            place = place[step]
        place.setdefault(last, value)
    return result


__all__ = [
    "FIELDS",
    "FORMATS",
    "OURS",
    "PCM_RATE",
    "Speaker",
    "is_beta",
    "merged",
    "served",
    "style",
]
