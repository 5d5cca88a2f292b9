"""Errors as the clients of other services read them, on the paths those clients use.

OpenAI's `error` object is always there; what a path's own clients look for is put beside it, and
fields have the names those clients sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.types import Scope

# What a speech body calls a field -> what their requests call it.
ELEVENLABS = {"input": "text", "language": "language_code", "model": "model_id"}
DEEPGRAM = {"input": "text", "voice": "model"}


def in_dialect(body: dict[str, Any], scope: Scope | None) -> dict[str, Any]:
    """The body of an error, with what the clients of the request's path look for."""
    if scope is None:
        return body
    path = str(scope["path"]).removeprefix("/v1")
    if path == "/speak":
        error = renamed(body["error"], DEEPGRAM)
        return {"error": error} | _deepgram(error, scope)
    if path == "/voices" or path.startswith("/text-to-speech/"):
        error = renamed(body["error"], ELEVENLABS)
        return {"error": error} | _elevenlabs(error)
    return body


def renamed(error: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """An error object with its field called what a service's clients call it."""
    ours = str(error["param"])
    if ours not in names:
        return dict(error)
    theirs = names[ours]
    message = str(error["message"]).replace(f"`{ours}`", f"`{theirs}`")
    return {**error, "param": theirs, "message": message}


def _elevenlabs(error: Mapping[str, Any]) -> dict[str, Any]:
    status = error["code"] or error["type"]
    return {"detail": {"status": status, "message": error["message"], "param": error["param"]}}


def _deepgram(error: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    record = scope.get("state", {}).get("record")
    return {
        "err_code": str(error["code"] or error["type"]).upper(),
        "err_msg": error["message"],
        "request_id": record.id if record else "",
    }


__all__ = ["DEEPGRAM", "ELEVENLABS", "in_dialect", "renamed"]
