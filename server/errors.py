"""The one table from errors to HTTP, and the one shape of an error body.

Everything a client may see when something goes wrong is made here:
`{"error": {"message", "type", "param", "code"}}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from engine import (
    Cancelled,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    GenerationFailed,
    InputTimeout,
    InvalidRequest,
    ModelFileError,
    ModelNotFound,
    Overloaded,
    PayloadTooLarge,
    SlowReader,
    UnknownVoice,
    UnsupportedMode,
)
from server.dialects import in_dialect

UNAVAILABLE_RETRY_S = 5
# Nobody should be told to try again by itself after longer.
LONGEST_RETRY_S = 60
LONGEST_MESSAGE = 2000  # characters


class InvalidApiKey(Exception):
    """The request carries no key, or one this server does not know."""


class SlowRequest(Exception):
    """The request's body did not arrive in time."""


class RateLimited(Exception):
    """An API key is at one of its limits; `headers` tell how much is left."""

    def __init__(self, message: str, retry_after_s: float, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.headers = headers


class VoiceNotFound(InvalidRequest):
    """A route was asked for a saved voice there is not."""


class ConsentNotFound(InvalidRequest):
    """A route was asked for a consent recording there is not."""


class VoiceExists(InvalidRequest):
    """Another saved voice has that name."""


class StoreFull(InvalidRequest):
    """No room for one more voice or consent recording."""


class StoreUnwritable(OSError):
    """The folder of saved voices cannot be written now: a full disk, no permission, a busy lock."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one class of errors is answered.

    `retry` becomes `x-should-retry`; None leaves it to the client library. `private` errors are
    faults of ours whose text is for the log only.
    """

    status: int
    type: str
    code: str | None
    retry: bool | None = None
    private: bool = False


ANSWERS: dict[type[Exception], Answer] = {
    EngineError: Answer(500, "server_error", "server_error", private=True),
    InvalidRequest: Answer(400, "invalid_request_error", None),
    UnsupportedMode: Answer(400, "invalid_request_error", "unsupported"),
    UnknownVoice: Answer(400, "invalid_request_error", "voice_not_found"),
    VoiceNotFound: Answer(404, "invalid_request_error", "voice_not_found"),
    ConsentNotFound: Answer(404, "invalid_request_error", "consent_not_found"),
    VoiceExists: Answer(409, "invalid_request_error", "voice_exists", retry=False),
    StoreFull: Answer(409, "invalid_request_error", "voices_full", retry=False),
    StoreUnwritable: Answer(503, "server_error", "voices_unwritable", retry=False),
    ModelNotFound: Answer(404, "invalid_request_error", "model_not_found"),
    PayloadTooLarge: Answer(413, "invalid_request_error", "payload_too_large"),
    Overloaded: Answer(429, "rate_limit_exceeded", "rate_limit_exceeded", retry=True),
    InvalidApiKey: Answer(401, "invalid_request_error", "invalid_api_key", retry=False),
    RateLimited: Answer(429, "rate_limit_exceeded", "rate_limit_exceeded", retry=True),
    DeadlineExceeded: Answer(504, "server_error", "deadline_exceeded", retry=False),
    EngineUnavailable: Answer(503, "server_error", "unavailable", retry=True),
    GenerationFailed: Answer(500, "server_error", "generation_failed"),
    Cancelled: Answer(499, "invalid_request_error", "cancelled", retry=False),
    SlowRequest: Answer(408, "invalid_request_error", "request_timeout"),
    InputTimeout: Answer(408, "invalid_request_error", "input_timeout", retry=False),
    SlowReader: Answer(408, "invalid_request_error", "slow_reader", retry=False),
    ModelFileError: Answer(500, "server_error", "server_error", retry=False, private=True),
}
UNEXPECTED = Answer(500, "server_error", "server_error", retry=False, private=True)
INTERNAL = "internal error; the server's log has the details under this reply's x-request-id"

# What the engine calls a field, where the wire calls it otherwise.
PARAMS = {
    "text": "input",
    "task": "task_type",
    "reference_text": "ref_text",
    "reference": "ref_audio",
    "reference_codes": "ref_audio",
    "timeout_s": "timeout",
    "first_chunk_frames": "initial_codec_chunk_frames",
}

CODES = {404: "not_found", 405: "method_not_allowed"}


class BodyAborted(Exception):
    """Raised after the status line: the server must cut the body, not end it."""


def answer_for(error: Exception) -> Answer:
    """The table's row for an error, by its nearest class."""
    for cls in type(error).__mro__:
        if cls in ANSWERS:
            return ANSWERS[cls]
    return UNEXPECTED


def error_body(
    message: str,
    type: str,  # noqa: A002
    param: str | None,
    code: str | None,
) -> dict[str, dict[str, object]]:
    """The body of every error, all four keys always present."""
    return {"error": {"message": shortened(message), "type": type, "param": param, "code": code}}


def shortened(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, without its middle when it is longer than `most` characters: what clients send
    comes back in messages and goes to the log, and may be megabytes."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [...] {text[-most // 2 :]}"


def error_object(error: Exception) -> dict[str, object]:
    """What is under `error` in a body or an event; a 500 leaks nothing."""
    answer = answer_for(error)
    message = INTERNAL if answer.private else str(error)
    body = error_body(message, answer.type, _param(error), answer.code)["error"]
    if isinstance(error, Overloaded):
        body |= {"queue_depth": error.queue_depth, "position": error.position}
    return body


def error_response(error: Exception, scope: Scope | None = None) -> JSONResponse:
    """The reply to an error raised before the status line, as the clients of the request's
    path read it."""
    answer = answer_for(error)
    body = in_dialect({"error": error_object(error)}, scope)
    return JSONResponse(body, answer.status, _headers(error, answer))


def _param(error: Exception) -> str | None:
    if isinstance(error, ModelNotFound):
        return "model"
    field = error.field if isinstance(error, InvalidRequest | PayloadTooLarge) else None
    return PARAMS.get(field, field) if field else None


def _headers(error: Exception, answer: Answer) -> dict[str, str]:
    headers = {}
    wait_s = _retry_after_s(error, answer)
    if answer.retry is not None:
        worthwhile = answer.retry and (wait_s or 0) <= LONGEST_RETRY_S
        headers["x-should-retry"] = "true" if worthwhile else "false"
    if wait_s is not None:
        headers["Retry-After"] = str(wait_s)
    if isinstance(error, InvalidApiKey):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        headers |= error.headers
    return headers


def _retry_after_s(error: Exception, answer: Answer) -> int | None:
    if isinstance(error, Overloaded | RateLimited):
        return max(1, math.ceil(error.retry_after_s))
    return UNAVAILABLE_RETRY_S if answer.status == 503 else None


async def on_engine_error(request: Request, error: Exception) -> Response:
    """Exception handler for what `ANSWERS` knows; what it hides from the client goes to the log."""
    record = request.state.record
    record.reason = answer_for(error).code or "invalid_request"
    record.detail = str(error)
    return error_response(error, request.scope)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for the framework's own 404 and 405 (and any other status)."""
    assert isinstance(error, HTTPException)
    message = {
        404: f"no such path: `{request.url.path}`",
        405: f"`{request.method}` is not allowed on `{request.url.path}`",
    }.get(error.status_code, error.detail)
    code = CODES.get(error.status_code)
    body = in_dialect(error_body(message, "invalid_request_error", None, code), request.scope)
    headers = dict(error.headers or {})
    if "GET" in headers.get("Allow", ""):
        headers["Allow"] += ", HEAD"
    return JSONResponse(body, error.status_code, headers)


__all__ = [
    "ANSWERS",
    "Answer",
    "BodyAborted",
    "ConsentNotFound",
    "InvalidApiKey",
    "RateLimited",
    "SlowRequest",
    "StoreFull",
    "StoreUnwritable",
    "VoiceExists",
    "VoiceNotFound",
    "answer_for",
    "error_body",
    "error_object",
    "error_response",
    "on_engine_error",
    "on_http_error",
    "shortened",
]
