"""What clients write, read the same way for every dialect."""

from __future__ import annotations

import json
import math
from itertools import chain
from typing import Any

from engine import InvalidRequest

MOST_DEPTH = 64


def parsed(message: str, most: int) -> dict[str, Any]:
    """The JSON object a message holds; `InvalidRequest` when it holds none, has more than `most`
    characters, or what could not be sent back: numbers that are none, lists in lists without end.
    """
    if len(message) > most:
        raise InvalidRequest(f"a message must have at most {most} characters, got {len(message)}")
    try:
        data = json.loads(message, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        raise InvalidRequest("the message is not JSON") from None
    if not isinstance(data, dict):
        raise InvalidRequest("a message is a JSON object")
    _check_depth(data)
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


def _no_number(text: str) -> float:
    raise InvalidRequest(f"a message's numbers must be finite, got {text:.20}")


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _no_number(text)


def _check_depth(data: dict[str, Any]) -> None:
    level: list[Any] = [data]
    for _ in range(MOST_DEPTH):
        parts = chain.from_iterable(e.values() if isinstance(e, dict) else e for e in level)
        level = [part for part in parts if isinstance(part, dict | list)]
    if level:
        raise InvalidRequest(f"a message's objects and lists must be at most {MOST_DEPTH} deep")


__all__ = ["parsed", "string", "switch"]
