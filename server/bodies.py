"""Request bodies: read whole within a limit of bytes, and parsed as JSON."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from engine import Cancelled, InvalidRequest, PayloadTooLarge


async def read_json(request: Request, limit: int) -> Any:
    """The parsed body of a request; errors as of `read_body` and `parse_json`."""
    raw = await read_body(request, limit)
    return parse_json(request.headers.get("content-type", ""), raw)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; `PayloadTooLarge` as soon as it is known to pass `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise PayloadTooLarge(f"the body is {declared} bytes long; the limit is {limit}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise PayloadTooLarge(f"the body is longer than the limit of {limit} bytes")
    except ClientDisconnect:
        raise Cancelled("the client left before its request was complete") from None
    return bytes(body)


def parse_json(content_type: str, body: bytes) -> Any:
    """What a JSON body holds; `InvalidRequest` says what is wrong with it."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise InvalidRequest(
            f"the Content-Type must be `application/json`, got {media_type or 'none'!r}"
        )
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None


__all__ = ["parse_json", "read_body", "read_json"]
