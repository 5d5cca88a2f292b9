"""What clients write, read the same way for every dialect."""

from __future__ import annotations

import json
from typing import Any

from engine import InvalidRequest


def parsed(message: str, most: int) -> dict[str, Any]:
    """The JSON object a message holds; `InvalidRequest` when it holds none, or has more than
    `most` characters."""
    if len(message) > most:
        raise InvalidRequest(f"a message must have at most {most} characters, got {len(message)}")
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        raise InvalidRequest("the message is not JSON") from None
    if not isinstance(data, dict):
        raise InvalidRequest("a message is a JSON object")
    return data


def string(data: dict[str, Any], name: str, default: str | None = None) -> str:
    """A field that is a string; null and absent are `default`, or an `InvalidRequest`."""
    value = data.get(name)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise InvalidRequest(f"the message needs `{name}`, a string, got {value!r:.60}", name)
    return value


def switch(data: dict[str, Any], name: str) -> bool:
    """A field that is true or false; null and absent are false."""
    value = data.get(name)
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"`{name}` must be true or false, got {value!r:.60}", name)
    return bool(value)


__all__ = ["parsed", "string", "switch"]
