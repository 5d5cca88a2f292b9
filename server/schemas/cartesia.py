"""What Cartesia's clients send to be spoken, turned into a speech body of ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from engine import InvalidRequest
from server.audio.formats import FORMATS, AudioFormat
from server.names import Names
from server.schemas.fields import Between, as_invalid_request
from server.schemas.speech import SampleRate, SpeechBody

ENCODINGS = {
    "pcm_s16le": FORMATS["pcm"],
    "pcm_f32le": replace(FORMATS["pcm"], container="f32le", codec="pcm_f32le"),
    "pcm_mulaw": FORMATS["ulaw"],
    "pcm_alaw": FORMATS["alaw"],
}
# How long text may be held back, when a client does not say.
BUFFER_MS, MOST_BUFFER_MS = 3000, 5000
# What a speech body calls a field -> what these clients call it.
FIELDS = {
    "input": "transcript",
    "model": "model_id",
    "speed": "generation_config.speed",
    "speaker_embedding": "voice.embedding",
}

BufferMs = Annotated[int, AfterValidator(Between(0, MOST_BUFFER_MS).check)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class OutputFormat(_Part):
    """Bare samples, in one of `ENCODINGS`."""

    container: str = "raw"
    encoding: str = "pcm_s16le"
    sample_rate: SampleRate = 24_000


class Voice(_Part):
    """A voice by its name, or a Base model's as a vector."""

    mode: str = "id"
    id: str | None = None
    embedding: list[float] | None = None


class GenerationConfig(_Part):
    """`speed` and `emotion` are followed."""

    speed: float | None = None
    emotion: str | None = None


class CartesiaBody(_Part):
    """One message; null means absent."""

    context_id: str | None = None
    transcript: str = ""
    model_id: str | None = None
    voice: str | Voice | None = None
    language: str | None = None
    output_format: OutputFormat = OutputFormat()
    generation_config: GenerationConfig = GenerationConfig()
    continues: bool = Field(False, alias="continue")
    flush: bool = False
    cancel: bool = False
    add_timestamps: bool = False
    add_phoneme_timestamps: bool = False
    use_normalized_timestamps: bool = False  # which of the times those two send
    max_buffer_delay_ms: BufferMs = BUFFER_MS

    @classmethod
    def checked(cls, data: dict[str, Any]) -> CartesiaBody:
        """The body made of parsed JSON; `InvalidRequest` says what is wrong with it."""
        given = {name: value for name, value in data.items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise as_invalid_request(_of_the_form_given(error)) from None

    @property
    def settings(self) -> dict[str, Any]:
        """What is said once for a context: everything but the text and what is done with it."""
        spoken = {
            "context_id", "transcript", "continues", "flush", "cancel", "max_buffer_delay_ms",
        }  # fmt: skip
        return {
            name: getattr(self, name)
            for name in self.model_fields_set | set(self.model_extra or {})
            if name not in spoken
        }

    def audio_format(self) -> AudioFormat:
        """The samples' format; `InvalidRequest` for a container or encoding there is not."""
        if self.output_format.container != "raw":
            raise InvalidRequest(
                f"`output_format.container` must be `raw`, got {self.output_format.container!r}",
                "output_format.container",
            )
        encoding = self.output_format.encoding
        if encoding not in ENCODINGS:
            known = ", ".join(ENCODINGS)
            raise InvalidRequest(
                f"unknown `output_format.encoding` {encoding!r}; one of {known}",
                "output_format.encoding",
            )
        return ENCODINGS[encoding]

    def to_speech(self, text: str, names: Names) -> tuple[SpeechBody, tuple[str, ...]]:
        """The same as a speech body, and what of it has no effect here."""
        voice, embedding, warnings = self._voice(names)
        # Their own models stand for the one there is.
        model = None if (self.model_id or "").startswith("sonic") else self.model_id
        emotion = self.generation_config.emotion
        body = SpeechBody.checked(
            {
                "input": text,
                "model": model,
                "voice": voice,
                "speaker_embedding": embedding,
                "language": self.language,
                "speed": self.generation_config.speed,
                "instructions": None if emotion == "neutral" else emotion,
                "sample_rate": self.output_format.sample_rate,
            }
        )
        unused = ", ".join(f"`{name}`" for name in self._without_effect())
        return body, (*warnings, *([f"no effect here: {unused}"] if unused else []))

    def _voice(self, names: Names) -> tuple[str | None, list[float] | None, tuple[str, ...]]:
        """A voice's name, or its vector, and what to tell of the choice."""
        voice = Voice(id=self.voice) if isinstance(self.voice, str) else self.voice or Voice()
        if voice.mode not in ("id", "embedding"):
            raise InvalidRequest(
                f"`voice.mode` must be `id` or `embedding`, got {voice.mode!r}", "voice.mode"
            )
        if voice.mode == "embedding":
            if voice.embedding is None:
                raise InvalidRequest("`voice.embedding` is required", "voice.embedding")
            return None, voice.embedding, ()
        if voice.id is None or not _is_uuid(voice.id) or self._is_known(voice.id, names):
            return voice.id, None, ()
        told = f"there is no voice {voice.id!r}: the default voice speaks; `voice_aliases` can name"
        return None, None, (f"{told} one",)

    def _is_known(self, voice: str, names: Names) -> bool:
        known = {name.lower() for name in names.known_voices(names.models[0])}
        return voice.lower() in known or names.is_saved(voice)

    def _without_effect(self) -> Iterator[str]:
        for name in ("add_timestamps", "add_phoneme_timestamps"):
            if getattr(self, name):
                yield name
        voice = self.voice if isinstance(self.voice, Voice) else Voice()
        for prefix, part in (
            ("", self),
            ("voice.", voice),
            ("generation_config.", self.generation_config),
            ("output_format.", self.output_format),
        ):
            yield from (
                f"{prefix}{name}" for name, value in (part.model_extra or {}).items() if value
            )


def _is_uuid(name: str) -> bool:
    with suppress(ValueError):
        return str(uuid.UUID(name)) == name.lower()
    return False


def _of_the_form_given(error: ValidationError) -> dict[str, Any]:
    """The error's first detail; of a voice, which may be a string or an object, the detail of
    the form it has."""
    details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
    detail = details[0]
    if detail["loc"][0] != "voice":
        return detail
    if isinstance(detail["input"], dict):
        detail = details[-1]
    return detail | {"loc": tuple(part for part in detail["loc"] if part not in ("str", "Voice"))}


__all__ = [
    "BUFFER_MS",
    "ENCODINGS",
    "FIELDS",
    "CartesiaBody",
    "GenerationConfig",
    "OutputFormat",
    "Voice",
]
