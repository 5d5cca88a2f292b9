"""OpenAI's names for voices and models, and what they mean on this server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine import InvalidRequest, ModelInfo, ModelNotFound

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer",
    "verse", "marin", "cedar",
)  # fmt: skip
_DEFAULT_MODEL = re.compile(
    r"tts-1|tts-1-hd|gpt-4o-mini-tts(-\d{4}-\d{2}-\d{2})?|gpt-realtime-2\.1-mini|kokoro"
)


@dataclass(frozen=True, slots=True)
class Meant:
    """What a voice name stands for: a speaker, or on a voice design model a description."""

    speaker: str | None = None
    description: str | None = None


class Names:
    """Resolves the names clients send against the loaded models; the first is the default.

    Args:
        models: the loaded models, at least one.
        voice_aliases: the operator's table, voice name to target; it wins over everything.
        strict_models: an unknown model name is an error even when there is one model only.
    """

    def __init__(
        self,
        models: Sequence[ModelInfo],
        voice_aliases: Mapping[str, str],
        strict_models: bool = False,
    ) -> None:
        self.models = tuple(models)
        self._configured = {name.lower(): target for name, target in voice_aliases.items()}
        self._strict = strict_models
        self._refuse_unknown_targets()

    def model(self, name: str | None) -> ModelInfo:
        """The model a request means; `ModelNotFound` when it means none."""
        wanted = (name or "").strip()
        for model in self.models:
            if wanted.lower() == model.name.lower():
                return model
        if not wanted or is_openai_model(wanted):
            return self.models[0]
        if self._strict or len(self.models) > 1:
            served = ", ".join(model.name for model in self.models)
            raise ModelNotFound(f"model {wanted!r} is not served here; served: {served}")
        return self.models[0]

    def voice(self, name: str | None, model: ModelInfo) -> Meant:
        """What a request's `voice` means on a model; without a name, the model's default.

        A name nobody knows is passed on as a speaker, for the engine to refuse.
        `InvalidRequest` for an OpenAI name that has no target.
        """
        if name is None:
            return Meant()
        wanted = name.strip()
        if not wanted:
            raise InvalidRequest("`voice` is empty: leave it out for the default", "voice")
        target = self.aliases(model).get(wanted.lower())
        if target is None and wanted.lower() in OPENAI_VOICES and not model.speakers:
            raise InvalidRequest(
                f"{model.name!r} has no named speakers and no target for voice {wanted!r}: "
                "set one with `FRAMECAST_VOICE_ALIASES` or `--voice-aliases`, or leave `voice` "
                "out",
                "voice",
            )
        if target is not None and model.task == "voice_design":
            return Meant(description=target)
        return Meant(speaker=target or wanted)

    def without_placeholder(self, name: str | None, model: ModelInfo) -> str | None:
        """`name`, unless it only fills a field that OpenAI's client libraries cannot leave out
        of a request whose voice is a vector."""
        placeholder = (name or "").strip().lower() in OPENAI_VOICES and not model.speakers
        return None if placeholder else name

    def aliases(self, model: ModelInfo) -> dict[str, str]:
        """Every alias that works on a model, lower case, with its target."""
        own = {speaker.lower() for speaker in model.speakers}
        spread = {
            name: model.speakers[index % len(model.speakers)]
            for index, name in enumerate(OPENAI_VOICES)
            if model.speakers and name not in own
        }
        usable = {
            name: target
            for name, target in self._configured.items()
            if model.task == "voice_design" or target.lower() in own
        }
        return spread | usable

    def known_voices(self, model: ModelInfo) -> list[str]:
        """All names `voice` accepts on a model."""
        return [*model.speakers, *self.aliases(model)]

    def _refuse_unknown_targets(self) -> None:
        if any(model.task == "voice_design" for model in self.models):
            return
        speakers = [speaker for model in self.models for speaker in model.speakers]
        for name, target in self._configured.items():
            if target.lower() not in {speaker.lower() for speaker in speakers}:
                raise InvalidRequest(
                    f"`voice_aliases` maps {name!r} to {target!r}, which no loaded model has; "
                    f"speakers: {_listed(speakers)}",
                    "voice_aliases",
                )


def is_openai_model(name: str) -> bool:
    """Whether a name is one that clients of other services send by default."""
    return _DEFAULT_MODEL.fullmatch(name.strip().lower()) is not None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


__all__ = ["OPENAI_VOICES", "Meant", "Names", "is_openai_model"]
