"""The body of `POST /v1/audio/speech/batch`, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import InvalidRequest
from server.schemas.fields import as_invalid_request, json_type
from server.schemas.speech import SpeechBody

MOST_ITEMS = 32
# vLLM-Omni's; its clients expect it of a batch that does not say.
DEFAULT_FORMAT = "wav"
# How a reply is sent means nothing where all of them come together.
_SENDING = ("stream", "stream_format")


class BatchBody(BaseModel):
    """Texts to speak; every other field of a speech request is a default for all of them."""

    model_config = ConfigDict(strict=True, extra="allow")

    items: list[Any] = Field(
        description="1 to 32 objects with `input` and any field of a speech request"
    )

    @classmethod
    def checked(cls, data: Any) -> BatchBody:
        """The body made of parsed JSON; `InvalidRequest` says what is wrong with it."""
        try:
            body = cls.model_validate(data)
        except ValidationError as error:
            raise as_invalid_request(dict(error.errors()[0])) from None
        if not 1 <= len(body.items) <= MOST_ITEMS:
            raise InvalidRequest(
                f"`items` must hold 1 to {MOST_ITEMS} texts, got {len(body.items)}", "items"
            )
        return body

    def refuse_too_long(self, limit: int) -> None:
        """`InvalidRequest` when all texts together pass `limit` characters."""
        texts = [item.get("input") for item in self.items if isinstance(item, dict)]
        total = sum(len(text) for text in texts if isinstance(text, str))
        if total > limit:
            raise InvalidRequest(
                f"the `input` of all `items` is {total} characters long; the limit is {limit}",
                "items",
            )

    def bodies(self) -> Iterator[SpeechBody | InvalidRequest]:
        """One checked body per item, or what is wrong with it."""
        defaults = {"response_format": DEFAULT_FORMAT} | _given(self.model_extra or {})
        for item in self.items:
            yield _body(defaults, item)


class Usage(BaseModel):
    """Positions of the prompt in, frames of 80 ms out."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class ItemResult(BaseModel):
    """One item's sound, or why there is none."""

    index: int
    status: Literal["success", "error"]
    audio_data: str | None = Field(None, description="base64")
    media_type: str | None = None
    error: str | None = None
    error_code: str | None = None
    error_param: str | None = None
    finish_reason: str | None = None
    text: str | None = Field(None, description="As it is spoken, with `return_text`")
    warnings: list[str] | None = Field(None, description="What the caller should know")
    usage: Usage | None = None


class BatchResult(BaseModel):
    """The results in the order of the items."""

    id: str
    results: list[ItemResult]
    total: int
    succeeded: int
    failed: int


def _body(defaults: dict[str, Any], item: Any) -> SpeechBody | InvalidRequest:
    if not isinstance(item, dict):
        return InvalidRequest(f"an item must be an object, got {json_type(item)}", "items")
    given = _given(item)
    # An alias in an item wins over the field in the defaults.
    for name, alias in (("voice", "speaker"), ("instructions", "instruct")):
        if name in given or alias in given:
            defaults = {k: v for k, v in defaults.items() if k not in (name, alias)}
    try:
        return SpeechBody.checked(defaults | given)
    except InvalidRequest as error:
        return error


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in fields.items() if value is not None and name not in _SENDING
    }


__all__ = ["BatchBody", "BatchResult", "ItemResult", "Usage"]
