"""Building blocks of request bodies: bounded numbers and sentences about what was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from engine import TEXT_STEPS, InvalidRequest, check_text_steps


@dataclass(frozen=True, slots=True)
class Between:
    """A pydantic annotation: the number lies between `low` and `high`, both allowed unless
    `above` excludes the lower one."""

    low: float
    high: float
    above: bool = False

    def __str__(self) -> str:
        if self.above:
            return f"above {self.low} and at most {self.high}"
        return f"between {self.low} and {self.high}"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def check(self, value: float, info: ValidationInfo) -> float:
        if value in self:
            return value
        raise PydanticCustomError(
            "out_of_range",
            "`{field}` must be {range}, got {value}",
            {"field": info.field_name, "range": str(self), "value": _number(value)},
        )


@dataclass(frozen=True, slots=True)
class ListOf:
    """A pydantic annotation: a list, and what of."""

    what: str

    def check(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list):
            return value
        raise PydanticCustomError(
            "no_list",
            "`{field}` must be a list of {what}, got {value}",
            {"field": info.field_name, "what": self.what, "value": json_type(value)},
        )


def above_zero(value: float, info: ValidationInfo) -> float:
    """A pydantic check: the number is above 0."""
    if value > 0:
        return value
    raise PydanticCustomError(
        "out_of_range",
        "`{field}` must be above 0, got {value}",
        {"field": info.field_name, "value": _number(value)},
    )


def loudness(value: float, info: ValidationInfo) -> float:
    """A pydantic check: a loudness in LUFS, -40 to -10, or 0 for none wanted."""
    if value == 0 or -40 <= value <= -10:
        return value
    raise PydanticCustomError(
        "out_of_range",
        "`{field}` must be between -40 and -10, or 0, got {value}",
        {"field": info.field_name, "value": _number(value)},
    )


def text_steps(value: Any, info: ValidationInfo) -> bool | tuple[str, ...]:
    """A pydantic check: true, false, or a list of the front end's steps."""
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        with suppress(InvalidRequest):
            return check_text_steps(name.strip().lower() for name in value)
    raise PydanticCustomError(
        "text_steps",
        "`{field}` must be `true`, `false` or a list of {steps}, got {value}",
        {"field": info.field_name, "steps": ", ".join(TEXT_STEPS), "value": _shown(value)},
    )


def whole_number(value: Any) -> Any:
    """JSON has one kind of number: 5.0 is the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_EXPECTED = {
    "bool_parsing": "`true` or `false`",
    "bool_type": "`true` or `false`",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "dict_type": "an object",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "a string",
}


def query_number(query: Mapping[str, str], name: str) -> float | None:
    """A number in a query, None when there is none; `InvalidRequest` says what else is there."""
    if name not in query:
        return None
    try:
        value = float(query[name])
    except ValueError:
        raise InvalidRequest(f"`{name}` must be a number, got {query[name]!r:.60}", name) from None
    if not abs(value) < 1e12:
        raise InvalidRequest(f"`{name}` must be a number below 1e12, got {query[name]!r:.60}", name)
    return value


def query_integer(query: Mapping[str, str], name: str) -> int | None:
    """Like `query_number`, for a whole one."""
    value = query_number(query, name)
    if value is not None and not value.is_integer():
        raise InvalidRequest(f"`{name}` must be a whole number, got {value:g}", name)
    return None if value is None else int(value)


def as_invalid_request(detail: Mapping[str, Any]) -> InvalidRequest:
    """One of pydantic's error details as the engine's error, naming the field."""
    loc = [str(part) for part in detail["loc"]]
    if not loc:
        return InvalidRequest(f"the body must be a JSON object, got {json_type(detail['input'])}")
    name = ".".join(loc)
    if detail["type"] == "missing":
        return InvalidRequest(f"`{name}` is required", loc[0])
    if detail["type"] in _EXPECTED:
        got = json_type(detail["input"])
        return InvalidRequest(f"`{name}` must be {_EXPECTED[detail['type']]}, got {got}", loc[0])
    return InvalidRequest(str(detail["msg"]), loc[0])


def json_type(value: Any) -> str:
    """What JSON calls a value, with its article; short values are shown."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"the number {_number(value)}"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return {"NoneType": "`null`", "list": "a list", "dict": "an object"}[type(value).__name__]


def _shown(value: Any) -> str:
    return f"the list {value!r}"[:200] if isinstance(value, list) else json_type(value)


def _number(value: float) -> str:
    # Python refuses to print integers of thousands of digits, and nobody would read them.
    if isinstance(value, int) and value.bit_length() > 128:
        return "one of more than 38 digits"
    return str(value)


__all__ = [
    "Between",
    "ListOf",
    "above_zero",
    "as_invalid_request",
    "json_type",
    "loudness",
    "query_integer",
    "query_number",
    "text_steps",
    "whole_number",
]
