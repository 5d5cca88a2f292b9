"""What `/docs` says about bodies, sound and errors; the routes say which of it is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from server.audio.formats import FORMATS
from server.dialects import in_dialect
from server.errors import error_body

_BINARY = {"schema": {"type": "string", "format": "binary"}}

_DONE = (
    'data: {"type":"speech.audio.delta","audio":"SUQzBAAA..."}\n\n'
    'data: {"type":"speech.audio.done","usage":{"input_tokens":21,"output_tokens":38,'
    '"total_tokens":59},"finish_reason":"stop"}\n\n'
)
# Without a schema, which tools read as that of one event and not of the text.
_EVENTS = {"examples": {"events": {"value": _DONE}}}

_SOUND_HEADERS = {
    "x-request-id": "the request's id, as in the server's log",
    "x-framecast-seed": "the seed that repeats this reply",
    "x-framecast-warning": "what of the request had no effect",
    "x-framecast-finish-reason": "stop, length, loop or silence; replies sent whole only",
    "x-framecast-frames": "frames of 80 ms; replies sent whole only",
    "x-framecast-queue-ms": "time in the queue; replies sent whole only",
    "x-framecast-first-audio-ms": "time to the first sound; replies sent whole only",
    "x-framecast-total-ms": "time to the last sound; replies sent whole only",
}

Responses = dict[int | str, dict[str, Any]]


def _sound(content: dict[str, Any]) -> Responses:
    headers = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in _SOUND_HEADERS.items()
    }
    return {200: {"description": "The sound", "content": content, "headers": headers}}


_CONTAINERS: dict[str, Any] = {entry.media_type: _BINARY for entry in FORMATS.values()}
SOUND = _sound(_CONTAINERS)
SOUND_OR_EVENTS = _sound(_CONTAINERS | {"text/event-stream": _EVENTS})

# Status -> what it means, then examples: name -> message, type, param, code.
_FAILURES: dict[int, tuple[str, dict[str, tuple[str, str, str | None, str | None]]]] = {
    400: (
        "`param` names the field that is wrong, or that the model cannot serve",
        {
            "field": (
                "`speed` must be between 0.25 and 4, got 9.0",
                "invalid_request_error", "speed", None,
            ),
            "voice": (
                "unknown voice 'zz'; available: alloy, vivian",
                "invalid_request_error", "voice", "voice_not_found",
            ),
            "model": (
                "`speaker_embedding` needs a Base model; 'talker' is a custom_voice model",
                "invalid_request_error", "speaker_embedding", "unsupported",
            ),
        },
    ),
    401: (
        "no key, or one this server does not know",
        {
            "key": (
                "the API key is not one of this server's",
                "invalid_request_error", None, "invalid_api_key",
            )
        },
    ),
    404: (
        "no such model (setting `strict_models`), voice or path",
        {
            "model": (
                "model 'other' is not served here; served: talker",
                "invalid_request_error", "model", "model_not_found",
            )
        },
    ),
    408: (
        "the client read nothing for `send_timeout_s`; the reply is cut",
        {
            "slow": (
                "the client read nothing for 30 s", "invalid_request_error", None, "slow_reader",
            )
        },
    ),
    409: (
        "another saved voice has that name, or the store is full",
        {
            "taken": (
                "there is a voice 'Anna' already; send `overwrite` to replace it",
                "invalid_request_error", "name", "voice_exists",
            )
        },
    ),
    413: (
        "the body is too large",
        {
            "size": (
                "the body is longer than the limit of 1048576 bytes",
                "invalid_request_error", None, "payload_too_large",
            )
        },
    ),
    429: (
        "the server is full, or the key is at a limit; come back after `Retry-After` seconds",
        {
            "full": (
                "the queue is full", "rate_limit_exceeded", None, "rate_limit_exceeded",
            )
        },
    ),
    500: (
        "the model made nothing usable, or a fault of the server",
        {
            "empty": (
                "the model produced no audio", "server_error", None, "generation_failed",
            )
        },
    ),
    503: (
        "starting, shutting down, or the worker is dead; come back after `Retry-After` seconds",
        {"draining": ("the engine is draining", "server_error", None, "unavailable")},
    ),
    504: (
        "`timeout` passed before the first byte",
        {
            "late": (
                "the request took longer than 1 s", "server_error", None, "deadline_exceeded",
            )
        },
    ),
}  # fmt: skip

_NULLABLE = {"type": ["string", "null"]}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _NULLABLE,
                "code": _NULLABLE,
            },
        }
    },
}


def failures(*statuses: int, path: str = "") -> Responses:
    """The errors a route answers with, for its `responses`.

    Args:
        path: of the route, where its clients read errors in another shape.
    """
    return {status: _failure(status, path) for status in statuses}


def as_answered(app: FastAPI) -> None:
    """Make the schema say what is sent: FastAPI puts a 422 in (a wrong parameter is a 400 here)
    and drops every `null` of the examples."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                for reply in operation["responses"].values():
                    _put_nulls_back(reply)
        for name in ("HTTPValidationError", "ValidationError"):
            schema.get("components", {}).get("schemas", {}).pop(name, None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def json_body(model: type[BaseModel], examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A JSON body that a route reads by itself, for its `openapi_extra`.

    Args:
        examples: name to `summary` and `value`.
    """
    schema = model.model_json_schema()
    content = {"schema": _inlined(schema, schema.pop("$defs", {})), "examples": examples}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def _inlined(node: Any, parts: Mapping[str, Any]) -> Any:
    # A reference starts at the root of the whole document, where these parts are not.
    if isinstance(node, list):
        return [_inlined(each, parts) for each in node]
    if not isinstance(node, dict):
        return node
    rest = {name: _inlined(each, parts) for name, each in node.items() if name != "$ref"}
    if "$ref" not in node:
        return rest
    return {**_inlined(parts[node["$ref"].rpartition("/")[2]], parts), **rest}


def _put_nulls_back(reply: dict[str, Any]) -> None:
    told = reply.get("content", {}).get("application/json", {})
    for example in told.get("examples", {}).values():
        value = example["value"]
        value["error"] = {"param": None, "code": None} | value["error"]
        if "detail" in value:
            value["detail"] = {"param": None} | value["detail"]


def _failure(status: int, path: str) -> dict[str, Any]:
    text, examples = _FAILURES[status]
    shown = {
        name: {"value": in_dialect(error_body(*parts), {"path": path})}
        for name, parts in examples.items()
    }
    return {
        "description": text,
        "content": {"application/json": {"schema": _ERROR_SCHEMA, "examples": shown}},
    }


__all__ = ["SOUND", "SOUND_OR_EVENTS", "Responses", "as_answered", "failures", "json_body"]
