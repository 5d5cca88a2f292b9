"""What the loaded models can do, and what a request means to them: one answer for every caller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config import ModelSpec, Speaker, TalkerSpec
from engine.errors import InvalidRequest, ModelNotFound, UnknownVoice, UnsupportedMode
from engine.request import SpeechRequest, Task

# ISO 639-1 code -> the published language name; a file's own names need no entry.
LANGUAGE_CODES = {
    "zh": "chinese",
    "en": "english",
    "de": "german",
    "it": "italian",
    "pt": "portuguese",
    "es": "spanish",
    "ja": "japanese",
    "ko": "korean",
    "fr": "french",
    "ru": "russian",
}
# ISO 639-2 and other spellings people send.
LANGUAGE_ALIASES = {
    "cmn": "chinese",
    "zho": "chinese",
    "chi": "chinese",
    "mandarin": "chinese",
    "eng": "english",
    "deu": "german",
    "ger": "german",
    "ita": "italian",
    "por": "portuguese",
    "spa": "spanish",
    "jpn": "japanese",
    "kor": "korean",
    "fra": "french",
    "fre": "french",
    "rus": "russian",
}
# The size label of CustomVoice checkpoints that were not trained on instructions.
SMALL = "0b6"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model as callers see it; `languages` leaves out "auto", which always works.

    `clones` says that it can take a voice from a clip, `clones_in_context` that it can also go on
    in the clip's manner; a voice then has `code_groups` rows of codes below `codebook_size`.
    """

    name: str
    task: Task
    size: str
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    default_voice: str | None
    accepts_instructions: bool
    sample_rate: int
    samples_per_frame: int
    speaker_width: int
    clones: bool = False
    clones_in_context: bool = False
    code_groups: int = 16
    codebook_size: int = 2048
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request resolved against one model: who speaks, in what language, how."""

    speaker: Speaker | None
    language: int | None  # codec id; None lets the model choose
    instructions: str | None
    whole_text: bool
    warnings: tuple[str, ...]


class Catalog:
    """The loaded models, the first of which is the default."""

    def __init__(self, specs: Sequence[ModelSpec], *, strict_instructions: bool = False) -> None:
        self.models = tuple(_info(spec) for spec in specs)
        self._strict = strict_instructions
        self._specs = {spec.name.lower(): spec for spec in specs}
        if len(self._specs) < len(specs):
            names = ", ".join(repr(spec.name) for spec in specs)
            raise InvalidRequest(f"loaded models need different names, got {names}", "name")

    def spec(self, name: str | None) -> ModelSpec:
        """The spec of a model by name, None for the default.

        Raises:
            ModelNotFound: no loaded model has that name.
        """
        if name is None:
            return self._specs[self.models[0].name.lower()]
        try:
            return self._specs[name.lower()]
        except KeyError:
            served = ", ".join(repr(model.name) for model in self.models)
            raise ModelNotFound(f"model {name!r} is not loaded; available: {served}") from None

    def info(self, name: str | None) -> ModelInfo:
        """Like `spec`, as callers see it."""
        wanted = self.spec(name).name
        return next(model for model in self.models if model.name == wanted)

    def resolve(self, request: SpeechRequest, spec: TalkerSpec) -> Delivery:
        """Say what the request means to a model.

        Raises:
            InvalidRequest: a field is wrong; also `UnknownVoice` and `UnsupportedMode`.
        """
        _check_task(request, spec)
        speaker = _speaker(request, spec)
        language = language_id(request.language, spec)
        dialect = speaker.dialect if speaker else None
        if dialect and _language_name(request.language, spec) in {None, "chinese"}:
            language = spec.languages[dialect]
        instructions, warnings = self._instructions(request, spec)
        whole = request.non_streaming_mode
        if whole is None:
            whole = spec.task != "base"
        return Delivery(speaker, language, instructions, whole, warnings)

    def _instructions(
        self, request: SpeechRequest, spec: TalkerSpec
    ) -> tuple[str | None, tuple[str, ...]]:
        # Spoken of as sent: the official prompt keeps blanks around the instructions.
        text = request.instructions if (request.instructions or "").strip() else None
        if spec.task == "voice_design" and text is None:
            raise InvalidRequest(
                "`instructions` must describe the voice: this is a VoiceDesign model",
                "instructions",
            )
        if text is None or _takes_instructions(spec):
            return text, ()
        message = f"`instructions` have no effect: model {spec.name!r} cannot follow them"
        if self._strict:
            raise UnsupportedMode(message, "instructions")
        return None, (message,)


def language_id(language: str, spec: TalkerSpec) -> int | None:
    """The codec id of a language given by name, ISO code or BCP-47 tag; None for "auto".

    Raises:
        InvalidRequest: the model does not have it; the message lists what it has.
    """
    name = _language_name(language, spec)
    return None if name is None else spec.languages[name]


def public_languages(spec: TalkerSpec) -> tuple[str, ...]:
    """The languages callers may name; dialects belong to speakers."""
    return tuple(name for name in spec.languages if "dialect" not in name)


def _language_name(language: str, spec: TalkerSpec) -> str | None:
    wanted = language.strip().lower().replace("_", "-")
    if wanted in {"", "auto"}:
        return None
    names = {name.lower(): name for name in spec.languages}
    primary = wanted.split("-", 1)[0]
    for candidate in (
        wanted.replace("-", "_"),
        wanted,
        LANGUAGE_CODES.get(primary, ""),
        LANGUAGE_ALIASES.get(primary, ""),
    ):
        if candidate in names:
            return names[candidate]
    known = ", ".join(sorted(public_languages(spec)))
    raise InvalidRequest(
        f"unknown language {language!r}; available: auto, {known} (ISO codes work too)", "language"
    )


def _check_task(request: SpeechRequest, spec: TalkerSpec) -> None:
    if request.task is not None and request.task != spec.task:
        raise UnsupportedMode(
            f"model {spec.name!r} is a {spec.task} model and cannot do {request.task}", "task"
        )


def _speaker(request: SpeechRequest, spec: TalkerSpec) -> Speaker | None:
    voice = request.voice
    if not isinstance(voice, str):
        return spec.speakers[0] if spec.speakers else None
    for speaker in spec.speakers:
        if speaker.name.lower() == voice.strip().lower():
            return speaker
    if spec.task == "base":
        raise UnsupportedMode(
            f"voice {voice!r} is not available: a Base model has no named voices, it speaks in the "
            "voice of a clip (`ref_audio`) or of a `speaker_embedding`",
            "voice",
        )
    if spec.task == "voice_design":
        raise UnsupportedMode(
            f"voice {voice!r} is not available: a VoiceDesign model has no named voices, describe "
            "one in `instructions`",
            "voice",
        )
    raise UnknownVoice(voice, (speaker.name for speaker in spec.speakers))


def _takes_instructions(spec: TalkerSpec) -> bool:
    return spec.task == "voice_design" or (spec.task == "custom_voice" and spec.size != SMALL)


def _info(spec: ModelSpec) -> ModelInfo:
    talker = spec.talker
    return ModelInfo(
        name=spec.name,
        task=talker.task,
        size=talker.size,
        speakers=tuple(speaker.name for speaker in talker.speakers),
        languages=public_languages(talker),
        default_voice=talker.speakers[0].name if talker.speakers else None,
        accepts_instructions=_takes_instructions(talker),
        sample_rate=spec.codec.sample_rate,
        samples_per_frame=spec.codec.samples_per_frame,
        speaker_width=talker.talker.hidden,
        clones=talker.task == "base" and talker.speaker_encoder is not None,
        clones_in_context=_clones_in_context(spec),
        code_groups=talker.code_groups,
        codebook_size=spec.codec.codebook_size,
    )


def _clones_in_context(spec: ModelSpec) -> bool:
    encoders = (spec.talker.speaker_encoder, spec.codec.encoder)
    return spec.talker.task == "base" and None not in encoders


__all__ = ["Catalog", "Delivery", "ModelInfo", "language_id", "public_languages"]
