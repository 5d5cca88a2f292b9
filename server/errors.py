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

from engine import (
    Cancelled,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    GenerationFailed,
    InvalidRequest,
    ModelFileError,
    ModelNotFound,
    Overloaded,
    PayloadTooLarge,
    SlowReader,
    UnknownVoice,
    UnsupportedMode,
)

UNAVAILABLE_RETRY_S = 5
# Nobody should be told to try again by itself after longer.
LONGEST_RETRY_S = 60


class InvalidApiKey(Exception):
    """The request carries no key, or one this server does not know."""


class RateLimited(Exception):
    """An API key is at one of its limits; `headers` tell how much is left."""

    def __init__(self, message: str, retry_after_s: float, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.headers = headers


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
    ModelNotFound: Answer(404, "invalid_request_error", "model_not_found"),
    PayloadTooLarge: Answer(413, "invalid_request_error", "payload_too_large"),
    Overloaded: Answer(429, "rate_limit_exceeded", "rate_limit_exceeded", retry=True),
    InvalidApiKey: Answer(401, "invalid_request_error", "invalid_api_key", retry=False),
    RateLimited: Answer(429, "rate_limit_exceeded", "rate_limit_exceeded", retry=True),
    DeadlineExceeded: Answer(504, "server_error", "deadline_exceeded", retry=False),
    EngineUnavailable: Answer(503, "server_error", "unavailable", retry=True),
    GenerationFailed: Answer(500, "server_error", "generation_failed"),
    Cancelled: Answer(499, "invalid_request_error", "cancelled", retry=False),
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
    "reference_codes": "ref_audio",
    "timeout_s": "timeout",
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
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def error_response(error: Exception) -> JSONResponse:
    """The reply to an error raised before the status line."""
    answer = answer_for(error)
    message = INTERNAL if answer.private else str(error)
    body = error_body(message, answer.type, _param(error), answer.code)
    if isinstance(error, Overloaded):
        body["error"] |= {"queue_depth": error.queue_depth, "position": error.position}
    return JSONResponse(body, answer.status, _headers(error, answer))


def _param(error: Exception) -> str | None:
    if isinstance(error, ModelNotFound):
        return "model"
    field = error.field if isinstance(error, InvalidRequest) else None
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
    """Exception handler for `EngineError`; what it hides from the client goes to the log."""
    record = request.state.record
    record.reason = answer_for(error).code or "invalid_request"
    record.detail = str(error)
    return error_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for the framework's own 404 and 405 (and any other status)."""
    assert isinstance(error, HTTPException)
    message = {
        404: f"no such path: `{request.url.path}`",
        405: f"`{request.method}` is not allowed on `{request.url.path}`",
    }.get(error.status_code, error.detail)
    code = CODES.get(error.status_code)
    body = error_body(message, "invalid_request_error", None, code)
    return JSONResponse(body, error.status_code, error.headers)


__all__ = [
    "ANSWERS",
    "Answer",
    "BodyAborted",
    "InvalidApiKey",
    "RateLimited",
    "answer_for",
    "error_body",
    "error_response",
    "on_engine_error",
    "on_http_error",
]
