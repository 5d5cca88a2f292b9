"""OpenAI's names for voices and models, and what they mean on this server."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine import InvalidRequest, ModelInfo, ModelNotFound, UnsupportedMode
from server.voices.registry import Registry
from server.voices.saved import SavedVoice

log = logging.getLogger(__name__)

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer",
    "verse", "marin", "cedar",
)  # fmt: skip
_DEFAULT_MODEL = re.compile(
    r"tts-1|tts-1-hd|gpt-4o-mini-tts(-\d{4}-\d{2}-\d{2})?|gpt-realtime-2\.1-mini|kokoro"
)


@dataclass(frozen=True, slots=True)
class Meant:
    """What a voice name stands for: a speaker, on a voice design model a description, on a Base
    model a saved voice."""

    speaker: str | None = None
    description: str | None = None
    saved: SavedVoice | None = None


class Names:
    """Resolves the names clients send against the loaded models; the first is the default.

    Args:
        models: the loaded models, at least one.
        voice_aliases: the operator's table, voice name to target; it wins over everything.
        strict_models: an unknown model name is an error even when there is one model only.
        saved: the saved voices.
    """

    def __init__(
        self,
        models: Sequence[ModelInfo],
        voice_aliases: Mapping[str, str],
        strict_models: bool = False,
        saved: Registry | None = None,
    ) -> None:
        self.models = tuple(models)
        self._saved = saved
        self._configured = {name.lower(): target for name, target in voice_aliases.items()}
        self._strict = strict_models
        self._refuse_unknown_targets()

    def model(self, name: str | None, task: str | None = None) -> ModelInfo:
        """The model a request means; `ModelNotFound` when it means none.

        Without a name of its own it means the first model that can do `task`, else the default.
        """
        wanted = (name or "").strip()
        for model in self.models:
            if wanted.lower() == model.name.lower():
                return model
        if not wanted or is_openai_model(wanted):
            able = (model for model in self.models if model.task == task)
            return next(able, self.models[0])
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
        if target is not None and model.task == "voice_design":
            return Meant(description=target)
        saved = self.saved(target or wanted, model)
        if saved is not None:
            return Meant(saved=saved)
        if target is None and not model.speakers:
            self._refuse_nameless(wanted, model)
        return Meant(speaker=target or wanted)

    def saved(self, name: str, model: ModelInfo) -> SavedVoice | None:
        """The saved voice of that id or name; None when there is none, or when a speaker of the
        model has the name. `UnsupportedMode` when the model cannot speak in it."""
        own = {speaker.lower() for speaker in model.speakers}
        found = None if self._saved is None else self._saved.find(name)
        if found is None or name.lower() in own:
            return None
        if model.task != "base":
            raise UnsupportedMode(
                f"voice {found.name!r} is a saved voice, and only a Base model speaks in those; "
                f"{model.name!r} is a {model.task} model",
                "voice",
            )
        return found

    def is_saved(self, name: str | None) -> bool:
        """Whether a name means a saved voice, whatever the model."""
        if (
            name is None
            or self._saved is None
            or any(
                name.strip().lower() == speaker.lower()
                for model in self.models
                for speaker in model.speakers
            )
        ):
            return False
        return self._saved.find(self._configured.get(name.strip().lower(), name)) is not None

    def _refuse_nameless(self, wanted: str, model: ModelInfo) -> None:
        target = self._configured.get(wanted.lower())
        if target is not None:
            raise InvalidRequest(
                f"voice {wanted!r} stands for {target!r}, and there is no saved voice of that name",
                "voice",
            )
        if wanted.lower() in OPENAI_VOICES:
            raise InvalidRequest(
                f"{model.name!r} has no named speakers and no target for voice {wanted!r}: "
                "set one with `FRAMECAST_VOICE_ALIASES` or `--voice-aliases`, or leave `voice` "
                "out",
                "voice",
            )
        if model.task == "base":
            raise UnsupportedMode(
                f"voice {wanted!r} is not available: {model.name!r} is a Base model and speaks in "
                f"saved voices ({_listed(self._fitting(model))}); save one with `POST "
                "/v1/audio/voices`, or send `ref_audio`",
                "voice",
            )

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
            if model.task == "voice_design" or target.lower() in own or self._speaks(model, target)
        }
        return spread | usable

    def known_voices(self, model: ModelInfo) -> list[str]:
        """All names `voice` accepts on a model."""
        return [*model.speakers, *self.aliases(model), *self._fitting(model)]

    def reserved(self) -> list[str]:
        """Names no saved voice may have: they mean something already."""
        speakers = [speaker for model in self.models for speaker in model.speakers]
        return [*speakers, *OPENAI_VOICES, *self._configured]

    def warn_of_unresolved(self) -> None:
        """Log the configured aliases that mean nothing yet."""
        known = {name for model in self.models for name in self.aliases(model)}
        for name, target in self._configured.items():
            if name not in known:
                log.warning("`voice_aliases` maps %r to %r, which is not saved yet", name, target)

    def _speaks(self, model: ModelInfo, name: str) -> bool:
        found = None if self._saved is None else self._saved.find(name)
        return model.task == "base" and found is not None

    def _fitting(self, model: ModelInfo) -> list[str]:
        if model.task != "base" or self._saved is None:
            return []
        return [each.name for each in self._saved.voices if each.fits(model)]

    def _refuse_unknown_targets(self) -> None:
        # A description may be anything, and a voice may be saved later.
        if any(model.task in ("voice_design", "base") for model in self.models):
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
