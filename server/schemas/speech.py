"""The body of `POST /v1/audio/speech`: what clients send, checked and turned into the engine's
`SpeechRequest`. Unknown fields are ignored and null means absent; a known field is never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

import engine
from engine import InvalidRequest
from server.audio.formats import FORMATS
from server.audio.sound import Shape
from server.names import Names
from server.schemas.fields import (
    Between,
    ListOf,
    above_zero,
    as_invalid_request,
    loudness,
    text_steps,
    whole_number,
)
from server.schemas.reference import TAIL_SILENCE_S, ReferenceFields, refuse_several

Temperature = Annotated[float, AfterValidator(Between(0, 2).check)]
TopK = Annotated[int, BeforeValidator(whole_number), AfterValidator(Between(0, 4096).check)]
TopP = Annotated[float, AfterValidator(Between(0, 1, above=True).check)]
Penalty = Annotated[float, AfterValidator(Between(0, 10, above=True).check)]
Frames = Annotated[int, BeforeValidator(whole_number), AfterValidator(Between(1, 16384).check)]
Count = Annotated[int, BeforeValidator(whole_number), AfterValidator(Between(0, 16384).check)]
ChunkFrames = Annotated[int, BeforeValidator(whole_number), AfterValidator(Between(0, 64).check)]
Seed = Annotated[
    int, BeforeValidator(whole_number), AfterValidator(Between(-(2**63), 2**63 - 1).check)
]
Seconds = Annotated[float, AfterValidator(above_zero)]
Speed = Annotated[float, AfterValidator(Between(0.25, 4).check)]
SampleRate = Annotated[
    int, BeforeValidator(whole_number), AfterValidator(Between(8000, 48000).check)
]
Vector = Annotated[list[float], BeforeValidator(ListOf("numbers").check)]
Loudness = Annotated[float, AfterValidator(loudness)]
TextSteps = Annotated[
    Any,
    AfterValidator(text_steps),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"enum": list(engine.TEXT_STEPS)}},
            ]
        }
    ),
]

TASKS = {"customvoice": "custom_voice", "voicedesign": "voice_design", "base": "base"}
NOT_SERVED = ("word_timestamps",)
SAMPLING = tuple(name for name in engine.Sampling.__dataclass_fields__)


def _voice_name(value: Any) -> Any:
    """OpenAI sends a custom voice as `{"id": "..."}`."""
    return value.get("id") if isinstance(value, dict) else value


class SpeechBody(ReferenceFields):
    """One request for speech, as it came. Sampling left out takes the model's own values."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    input: str = Field(description="The text to speak")
    model: str | None = Field(None, description="A served model, or one of OpenAI's names")
    voice: Annotated[str, BeforeValidator(_voice_name)] | None = Field(
        None,
        validation_alias=AliasChoices("voice", "speaker"),
        description='A speaker, or one of OpenAI\'s names; a string or `{"id": "..."}`',
    )
    response_format: str = Field("mp3", description="mp3, opus, aac, flac, wav, pcm, ulaw or alaw")
    speed: Speed = Field(1.0, description="0.25 to 4 times as fast, at the same pitch")
    instructions: str | None = Field(
        None,
        validation_alias=AliasChoices("instructions", "instruct"),
        description="How to speak; never spoken",
    )
    stream: bool | None = Field(
        None, description="Send sound while it is made (the default), or whole with its length"
    )
    stream_format: str | None = Field(
        None, description="`audio` (the default) or `sse`, events with base64 slices of the sound"
    )
    language: str = Field("auto", description="A name, an ISO code, a BCP-47 tag or `auto`")
    seed: Seed | None = Field(None, description="Repeats a result; absent or negative: random")
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    repetition_penalty: Penalty | None = None
    max_new_tokens: Frames | None = Field(None, description="Most frames of 80 ms")
    min_new_tokens: Count | None = None
    no_repeat_ngram_size: Count | None = None
    subtalker_temperature: Temperature | None = None
    subtalker_top_k: TopK | None = None
    subtalker_top_p: TopP | None = None
    task_type: str | None = Field(None, description="CustomVoice, VoiceDesign or Base")
    speaker_embedding: Vector | None = Field(None, description="The voice of a Base model")
    non_streaming_mode: bool | None = None
    sample_rate: SampleRate | None = Field(
        None,
        description="8000 to 48000; default: 8000 for ulaw and alaw, 48000 for aac, else 24000",
    )
    loudness_lufs: Loudness | None = Field(
        None, description="Bring speech to this loudness, -40 to -10; 0 leaves it as it is"
    )
    timeout: Seconds | None = Field(
        None, description="Seconds the request may take, waiting included; then it fails"
    )
    initial_codec_chunk_frames: ChunkFrames | None = Field(
        None,
        description="Frames of 80 ms made before the first sound is sent, up to 64; absent or 0:"
        " as few as possible. A reply sent whole has no use for it",
    )
    word_timestamps: bool = False
    normalize: TextSteps | None = Field(
        None,
        description="What is done to the text first: a list of steps; `false` speaks it as it is,"
        " `true` and the default follow the server's setting",
    )
    return_text: bool = Field(
        False, description="Return the text as it is spoken, in the header `x-framecast-text`"
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}

    @classmethod
    def checked(cls, data: Any) -> SpeechBody:
        """The body made of parsed JSON; `InvalidRequest` says what is wrong with it."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None

    def to_request(
        self, model: engine.ModelInfo, names: Names, max_chars: int
    ) -> engine.SpeechRequest:
        """The engine's request for `model`, names resolved; `InvalidRequest` names the field."""
        self._refuse_what_is_not_served()
        reference = self.reference()
        own = self.speaker_embedding is not None or reference is not None
        given = names.without_placeholder(self.voice, model) if own else self.voice
        meant = names.voice(given, model)
        refuse_several(meant.saved, reference, self.speaker_embedding)
        return engine.SpeechRequest(
            text=self._speakable(max_chars),
            voice=self.saved_voice(meant.saved) or meant.speaker,
            language=self.language.strip() or "auto",
            instructions=self._style(meant.description, max_chars),
            task=self._task(),  # type: ignore[arg-type]
            speaker_embedding=self._embedding(model),
            reference_text=reference.text if reference else None,
            ref_tail_silence=reference.tail_silence_s if reference else TAIL_SILENCE_S,
            non_streaming_mode=self.non_streaming_mode,
            first_chunk_frames=self.initial_codec_chunk_frames or None,
            model=model.name,
            normalize=self.normalize,
            sampling=self._sampling(),
        )

    def wanted_task(self, names: Names) -> str | None:
        """What a model must be able to do when the request names none; None when any will do."""
        carried = self.speaker_embedding is not None or self.reference() is not None
        return self._task() or ("base" if carried or names.is_saved(self.voice) else None)

    def audio_format(self) -> str:
        """The format's own name: case and blanks are forgiven."""
        name = self.response_format.strip().lower()
        if name not in FORMATS:
            known = ", ".join(FORMATS)
            raise InvalidRequest(
                f"unknown `response_format` {self.response_format!r}; one of {known}",
                "response_format",
            )
        return name

    def streams(self) -> bool:
        """Whether the reply is sent while the sound is made."""
        return self.stream is not False

    def events(self, stream_is_sse: bool = False) -> bool:
        """Whether the reply is events; `stream_is_sse` says what `stream` alone means."""
        if self.stream_format is None:
            return stream_is_sse and self.stream is True
        name = self.stream_format.strip().lower()
        if name not in ("audio", "sse"):
            raise InvalidRequest(
                f"unknown `stream_format` {self.stream_format!r}; one of audio, sse",
                "stream_format",
            )
        return name == "sse"

    def shape(self, default_lufs: float | None = None) -> Shape:
        """What the listener wants of the sound; `default_lufs` is the loudness nobody asked for."""
        lufs = default_lufs if self.loudness_lufs is None else self.loudness_lufs
        audio_format = FORMATS[self.audio_format()]
        return Shape(audio_format, self.sample_rate, self.speed, lufs or None)

    def timeout_s(self, default_s: float, most_s: float) -> float | None:
        """The request's own time limit, else the default (0 is none)."""
        if self.timeout is None:
            return default_s or None
        if self.timeout > most_s:
            raise InvalidRequest(
                f"`timeout` must be at most {most_s:g} seconds, got {self.timeout:g}", "timeout"
            )
        return self.timeout

    def _style(self, description: str | None, max_chars: int) -> str | None:
        text = (self.instructions or "").strip()
        if len(text) > max_chars:
            raise _too_long("instructions", len(text), max_chars)
        # Some clients write `None` when they have none.
        wanted = [part for part in (description, text) if part not in (None, "", "None")]
        return "\n".join(map(str, wanted)) or None

    def _speakable(self, max_chars: int) -> str:
        if len(self.input) > max_chars:
            raise _too_long("input", len(self.input), max_chars)
        if not any(character.isalnum() for character in self.input):
            raise InvalidRequest(
                f"`input` has nothing to speak, got {self.input[:40]!r}: it needs at least one "
                "letter or digit",
                "input",
            )
        return self.input

    def _task(self) -> str | None:
        if self.task_type is None:
            return None
        task = TASKS.get(self.task_type.strip().lower().replace("_", ""))
        if task is None:
            raise InvalidRequest(
                f"unknown `task_type` {self.task_type!r}; one of CustomVoice, VoiceDesign, Base",
                "task_type",
            )
        return task

    def _embedding(self, model: engine.ModelInfo) -> Any:
        if self.speaker_embedding is None:
            return None
        if not self.speaker_embedding:
            raise InvalidRequest(
                f"`speaker_embedding` is empty; the voices of {model.name!r} have "
                f"{model.speaker_width} values",
                "speaker_embedding",
            )
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
            vector = np.asarray(self.speaker_embedding, dtype=np.float64).astype(np.float32)
        if not np.isfinite(vector).all():
            raise InvalidRequest(
                "`speaker_embedding` must hold finite numbers of 32 bits", "speaker_embedding"
            )
        return vector

    def _sampling(self) -> engine.Sampling:
        given = {name: getattr(self, name) for name in SAMPLING}
        return engine.Sampling(**{k: v for k, v in given.items() if v is not None})

    def _refuse_what_is_not_served(self) -> None:
        for name in NOT_SERVED:
            if getattr(self, name):
                raise not_served(name, "`true`")


def not_served(field: str, value: str = "", only: str = "") -> InvalidRequest:
    """The 400 for what a later release will serve; `only` is what works today."""
    what = f"`{field}` {value}".rstrip()
    instead = f"; only {only} is" if only else "; leave it out"
    return InvalidRequest(f"{what} is not served yet{instead}", field)


def _too_long(field: str, length: int, limit: int) -> InvalidRequest:
    return InvalidRequest(f"`{field}` is {length} characters long; the limit is {limit}", field)


__all__ = ["SpeechBody", "not_served"]
