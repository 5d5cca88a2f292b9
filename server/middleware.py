"""Pure ASGI middleware: forgiving paths, HEAD, and one record (id, log line, metric) per
request."""

from __future__ import annotations

import logging
import re
import uuid
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.dependencies import RequestRecord
from server.errors import BodyAborted, error_response, shortened
from server.logs import LONGEST_FIELD, request_fields
from server.metrics import Metrics

if TYPE_CHECKING:
    from server.tracing import Tracing

log = logging.getLogger("server.requests")

_SANE_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_SLASHES = re.compile(r"//+")
SWITCHED = 101  # what a WebSocket's record has for a status once it is accepted
_HEADS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
PROBES = ("/health", "/ready", "/metrics")


class ForgivingPaths:
    """Doubled slashes become one and a trailing one is dropped, without a redirect."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            path = _SLASHES.sub("/", scope["path"])
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await self.app(scope, receive, send)


class HeadAsGet:
    """Answers HEAD like GET; the body is left out by the server, as for every HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # In place, so that the router's findings reach the middleware around this one.
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head:
            scope["method"] = "GET"
        try:
            await self.app(scope, receive, send)
        finally:
            if is_head:
                scope["method"] = "HEAD"


class RequestRecords:
    """Gives each request an id and a record; answers what nobody caught with a bare 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        record = RequestRecord(_request_id(Headers(scope=scope)))
        scope.setdefault("state", {})["record"] = record

        async def send_with_id(message: Message) -> None:
            if message["type"] in _HEADS:
                record.status = message.get("status", SWITCHED)
                message.setdefault("headers", [])
                MutableHeaders(scope=message)["x-request-id"] = record.id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except BodyAborted:
            raise
        except Exception as error:
            log.exception("request %s failed", record.id)
            record.reason = "server_error"
            if scope["type"] == "websocket" and record.status == SWITCHED:
                await send({"type": "websocket.close", "code": 1011})
                return
            if record.status:
                raise BodyAborted("an internal error after the status line") from None
            await error_response(error, scope)(scope, receive, send_with_id)
        finally:
            self._book(scope, record)

    def _book(self, scope: Scope, record: RequestRecord) -> None:
        # Clients choose paths freely: only the routes we have may become label values.
        # One route answers with and without `/v1`.
        path = getattr(scope.get("route"), "path", "other")
        route = path.removeprefix("/v1") or "/"
        self.metrics.requests.labels(route, str(record.status), record.reason or "").inc()
        fields = request_fields(record)
        is_probe = scope["path"] in PROBES
        level = logging.DEBUG if is_probe else logging.INFO
        asked = shortened(scope["path"].encode("unicode_escape").decode(), LONGEST_FIELD)
        method = scope.get("method", "WEBSOCKET")
        log.log(level, "%s %s", method, asked, extra={"fields": fields})
        if self.tracing is not None and not is_probe and scope["type"] == "http":
            self.tracing.book(scope, route, record)


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


__all__ = ["ForgivingPaths", "HeadAsGet", "RequestRecords"]
