"""Pure ASGI middleware for what a request carries: a body that ends in time, and one length."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import InvalidRequest
from server.dependencies import RequestRecord
from server.errors import BodyAborted, SlowRequest, answer_for, error_response

# A large body gets a second more for so many bytes: only who is slower than this for long is late.
BYTES_PER_S = 16 * 1024


class BodyLimits:
    """Answers 408 when a body takes too long to arrive, and 400 when its length is ambiguous.

    Args:
        timeout_s: seconds a body may take, and one more for every `BYTES_PER_S` bytes of it.
    """

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self.app = app
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record: RequestRecord = scope["state"]["record"]
        try:
            _refuse_two_lengths(Headers(scope=scope))
            await self.app(scope, _in_time(receive, self.timeout_s), send)
        except (SlowRequest, _TwoLengths) as error:
            record.reason = answer_for(error).code or "invalid_request"
            record.detail = str(error)
            if record.status:
                raise BodyAborted("the request's body came too late") from None
            # What is left of the body must not be taken for another request.
            response = error_response(error)
            response.headers["connection"] = "close"
            await response(scope, receive, send)


class _TwoLengths(InvalidRequest):
    pass


def _refuse_two_lengths(headers: Headers) -> None:
    # A proxy may have believed the other one, and then sees requests where there are none.
    if "content-length" in headers and "transfer-encoding" in headers:
        raise _TwoLengths("a request has `Content-Length` or `Transfer-Encoding`, not both")


def _in_time(receive: Receive, timeout_s: float) -> Receive:
    loop = asyncio.get_running_loop()
    end, over = loop.time() + timeout_s, False

    async def receive_in_time() -> Message:
        nonlocal end, over
        if over:
            return await receive()
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError:
            raise SlowRequest("the request's body took too long to arrive") from None
        end += len(message.get("body", b"")) / BYTES_PER_S
        over = not message.get("more_body", False)
        return message

    return receive_in_time


__all__ = ["BYTES_PER_S", "BodyLimits"]
