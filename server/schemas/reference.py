"""The fields of a request that carry a voice as sound: `ref_audio` and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

import engine
from engine import InvalidRequest
from server.schemas.fields import Between, ListOf
from server.voices.saved import SavedVoice

TAIL_SILENCE_S = 0.5

Tail = Annotated[float, AfterValidator(Between(0, 2).check)]


class ClipReference(BaseModel):
    """One entry of `references`."""

    model_config = ConfigDict(strict=True, extra="ignore")

    audio_path: str = Field(validation_alias=AliasChoices("audio_path", "audio"))
    text: str | None = None


_ONE_CLIP = ListOf("one object with `audio_path` and, unless only its vector is wanted, `text`")


@dataclass(frozen=True, slots=True)
class Reference:
    """A clip to speak like: where it comes from, the field that says so, and what it says (None
    for its vector alone)."""

    source: str
    field: str
    text: str | None
    tail_silence_s: float


class ReferenceFields(BaseModel):
    """Shared by every body that may carry reference sound."""

    ref_audio: str | None = Field(
        None,
        description="A clip to speak like, as a `data:` URL or base64; a URL where it is allowed",
    )
    ref_text: str | None = Field(
        None, description="What the clip says: speech continues it. Without it: its vector alone"
    )
    references: Annotated[list[ClipReference], BeforeValidator(_ONE_CLIP.check)] | None = Field(
        None, description="Another way to say `ref_audio` and `ref_text`: exactly one"
    )
    ref_tail_silence: Tail | None = Field(
        None, description=f"Silence appended to the clip, in seconds; default: {TAIL_SILENCE_S:g}"
    )
    x_vector_only_mode: bool = Field(
        False, description="Speak by the vector of the clip or saved voice alone"
    )

    def reference(self) -> Reference | None:
        """The clip of the request; `InvalidRequest` when its fields contradict each other."""
        source, field, text = self._clip()
        if source is None:
            self._refuse_orphans()
            return None
        if not source.strip():
            raise InvalidRequest(f"`{field}` is empty: leave it out or send a clip", field)
        tail = TAIL_SILENCE_S if self.ref_tail_silence is None else self.ref_tail_silence
        said = None if self.x_vector_only_mode or not (text or "").strip() else text
        return Reference(source, field, said, tail)

    def saved_voice(self, saved: SavedVoice | None) -> engine.Voice | None:
        """The saved voice as the request wants it; `InvalidRequest` when it has no vector."""
        if saved is None:
            if self.x_vector_only_mode and self.reference() is None:
                raise InvalidRequest(
                    "`x_vector_only_mode` needs `ref_audio` or a saved voice", "x_vector_only_mode"
                )
            return None
        return saved.voice.vector_only() if self.x_vector_only_mode else saved.voice

    def _clip(self) -> tuple[str | None, str, str | None]:
        if self.references is None:
            return self.ref_audio, "ref_audio", self.ref_text
        if len(self.references) != 1:
            raise InvalidRequest(
                f"`references` must hold exactly one clip, got {len(self.references)}",
                "references",
            )
        for name in ("ref_audio", "ref_text"):
            if getattr(self, name) is not None:
                raise InvalidRequest(f"`references` and `{name}` exclude each other", name)
        return self.references[0].audio_path, "references", self.references[0].text

    def _refuse_orphans(self) -> None:
        if (self.ref_text or "").strip():
            raise InvalidRequest("`ref_text` needs `ref_audio`, which it belongs to", "ref_text")
        if self.ref_tail_silence is not None:
            raise InvalidRequest(
                "`ref_tail_silence` needs `ref_audio`; a saved voice keeps the silence it was "
                "saved with",
                "ref_tail_silence",
            )


def refuse_several(
    saved: SavedVoice | None, reference: Reference | None, vector: list[float] | None
) -> None:
    """400 when a request brings more than one voice, naming two of them."""
    there = {
        "voice": saved,
        reference.field if reference else "ref_audio": reference,
        "speaker_embedding": vector,
    }
    given = [name for name, sent in there.items() if sent is not None]
    if len(given) > 1:
        raise InvalidRequest(
            f"`{given[0]}` and `{given[1]}` exclude each other: a request has one voice", given[1]
        )


__all__ = ["TAIL_SILENCE_S", "Reference", "ReferenceFields", "refuse_several"]
