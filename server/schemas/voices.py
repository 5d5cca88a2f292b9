"""What is sent to save a voice: OpenAI's and vLLM-Omni's multipart form, and qwentts.cpp's JSON."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json

from engine import InvalidRequest
from server.schemas.fields import Between, ListOf, as_invalid_request

LONGEST_TEXT = 4096
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_LONGEST_TAG = 35
SOURCES = ("audio_sample", "wav_b64", "spk_b64", "speaker_embedding")


def _short(value: str, info: ValidationInfo) -> str:
    if len(value) <= LONGEST_TEXT:
        return value
    raise PydanticCustomError(
        "too_long",
        "`{field}` is {length} characters long; the limit is {limit}",
        {"field": info.field_name, "length": len(value), "limit": LONGEST_TEXT},
    )


def _label(value: str, info: ValidationInfo) -> str:
    broken = any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in value)
    if value.strip() and not broken:
        return value
    raise PydanticCustomError(
        "no_label",
        "`{field}` must be one line of text that is not blank, got {value}",
        {"field": info.field_name, "value": repr(value[:40])},
    )


def _language(value: str, info: ValidationInfo) -> str:
    if len(value) <= _LONGEST_TAG and _LANGUAGE.fullmatch(value):
        return value
    raise PydanticCustomError(
        "no_language",
        "`{field}` must be a BCP-47 tag such as `en` or `pt-BR`, got {value}",
        {"field": info.field_name, "value": repr(value[:40])},
    )


def _numbers(value: Any) -> Any:
    """A form can send a list as text only."""
    if not isinstance(value, str):
        return value
    try:
        return from_json(value, allow_inf_nan=False)
    except ValueError:
        return value


Text = Annotated[str, AfterValidator(_short)]
Label = Annotated[Text, AfterValidator(_label)]
Language = Annotated[str, AfterValidator(_language)]
Vector = Annotated[list[float], BeforeValidator(ListOf("numbers").check), BeforeValidator(_numbers)]
Tail = Annotated[float, AfterValidator(Between(0, 2).check)]


class VoiceBody(BaseModel):
    """A voice to be saved, from one of: a clip, a `.spk` file with or without a `.rvq` file, a
    vector. Unknown fields are ignored; null and empty texts mean absent."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    name: Text = Field(description="What the voice is called, 1 to 64 characters")
    ref_text: Text | None = Field(
        None, description="What the clip says: the voice continues it. Without it: a vector only"
    )
    consent: Text | None = Field(
        None, description="Id of a consent recording, or any text that says who agreed"
    )
    speaker_description: Text | None = Field(
        None, validation_alias=AliasChoices("speaker_description", "description")
    )
    overwrite: bool = Field(False, description="Replace a saved voice of that name")
    ref_tail_silence: Tail = Field(
        0.5, description="Seconds of silence appended to the clip when it has a `ref_text`"
    )
    model: str | None = Field(None, description="The Base model that takes the voice")
    type: str = Field("audio_sample", description="Only `audio_sample` is served")
    wav_b64: str | None = Field(None, description="The clip in base64, of any audio format")
    spk_b64: str | None = Field(None, description="A `.spk` file in base64")
    rvq_b64: str | None = Field(None, description="A `.rvq` file in base64; needs `spk_b64`")
    speaker_embedding: Vector | None = Field(None, description="The vector itself")

    @model_validator(mode="before")
    @classmethod
    def _blank_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if not _blank(value)}

    @classmethod
    def checked(cls, data: Any, *, form: bool = False) -> VoiceBody:
        """The body made of parsed JSON, or of a form's texts; `InvalidRequest` says what is wrong
        with it."""
        try:
            body = cls.model_validate(data, strict=not form)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None
        if body.type != "audio_sample":
            raise InvalidRequest(
                f"`type` must be `audio_sample`, got {body.type[:40]!r}: describe a voice in a "
                "request's `instructions` to a VoiceDesign model instead",
                "type",
            )
        return body

    def refuse_wrong_sources(self, *, sample: bool) -> None:
        """400 unless the voice has exactly one source; `sample` is a form's `audio_sample`."""
        given = [name for name in SOURCES[1:] if getattr(self, name) is not None]
        given = [SOURCES[0], *given] if sample else given
        known = "`audio_sample` (a file of a form), `wav_b64`, `spk_b64` or `speaker_embedding`"
        if not given:
            raise InvalidRequest(f"a voice needs one of {known}", "audio_sample")
        if len(given) > 1:
            raise InvalidRequest(f"a voice needs only one of {known}, got {given}", given[1])
        if self.rvq_b64 is not None and given != ["spk_b64"]:
            raise InvalidRequest("`rvq_b64` needs `spk_b64`", "rvq_b64")
        if self.ref_text is not None and given == ["speaker_embedding"]:
            raise InvalidRequest("`ref_text` needs the clip it belongs to", "ref_text")
        if self.ref_text is not None and given == ["spk_b64"] and self.rvq_b64 is None:
            raise InvalidRequest("`ref_text` needs `rvq_b64`, which it belongs to", "ref_text")


class ConsentChange(BaseModel):
    """What can be changed about a consent recording."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: Label = Field(description="Its new label")

    @classmethod
    def checked(cls, data: Any) -> Self:
        """The body made of what was sent; `InvalidRequest` says what is wrong with it."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None


class ConsentBody(ConsentChange):
    """The texts of a consent recording."""

    name: Label = Field(description="A label, such as who agreed")
    language: Language = Field(description="A BCP-47 tag")


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


__all__ = ["SOURCES", "ConsentBody", "ConsentChange", "VoiceBody"]
