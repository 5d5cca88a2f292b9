"""Pure ASGI middleware that asks for an API key and holds it to its limits."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.dependencies import RequestRecord
from server.errors import InvalidApiKey, RateLimited, answer_for, error_response
from server.keys import ANYONE, ApiKey, KeyRing, given_keys
from server.limits import Account
from server.settings import Settings

Kind = Literal["open", "metrics", "lists", "work"]

PROBES = ("/health", "/ready")
# With and without `/v1`.
LISTS = (
    "/", "/models", "/audio/models", "/audio/voices", "/voices", "/test", "/docs", "/redoc",
    "/openapi.json",
)  # fmt: skip
_KEY_IN_MESSAGE = re.compile(r"(/v1)?/text-to-speech/[^/]+/(multi-)?stream-input")


class KeyGate:
    """Lets in whoever has a key and is within its limits; without any keys, everyone.

    What is not known to be open is work, so that a new route is closed by default. Limits hold
    for work only. A socket whose key may come in its first message finds `identify` in its state,
    which takes that key and holds a place until the socket ends; it raises what the gate raises.

    Args:
        keys: with their limits; names are unique.
        protected: kinds of requests besides work that need a key.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[ApiKey],
        protected: Sequence[Kind] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self._ring = KeyRing(keys)
        self._protected = {"work", *protected}
        self._accounts = {key.name: Account(key, clock) for key in keys}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        record: RequestRecord = scope["state"]["record"]
        try:
            with self._admitted(scope, record) as headers:
                await self.app(scope, receive, _with_headers(send, headers))
        except (InvalidApiKey, RateLimited) as error:
            record.reason = answer_for(error).code
            record.detail = str(error)
            await error_response(error, scope)(scope, receive, send)

    @contextlib.contextmanager
    def _admitted(self, scope: Scope, record: RequestRecord) -> Iterator[Mapping[str, str]]:
        kind = _kind(scope.get("method", "GET"), scope["path"])
        headers = Headers(scope=scope)
        if self._ring.keys and _key_may_follow(scope) and not given_keys(headers):
            with contextlib.ExitStack() as places:
                identify = partial(self._identify, scope["state"], record, places)
                scope["state"] |= {"caller": ANYONE, "identify": identify}
                yield {}
            return
        caller = self._caller(headers, kind)
        scope["state"]["caller"] = caller
        record.key = caller.name or None
        if caller is ANYONE or kind != "work":
            yield {}
            return
        with self._accounts[caller.name].visit(record) as limits:
            yield limits

    def _identify(
        self, state: dict[str, Any], record: RequestRecord, places: contextlib.ExitStack, key: str
    ) -> ApiKey:
        given = key.encode("ascii", "backslashreplace").decode()
        caller = self._caller({"xi-api-key": given}, "work")
        places.enter_context(self._accounts[caller.name].visit(record))
        state["caller"] = caller
        record.key = caller.name
        return caller

    def _caller(self, headers: Mapping[str, str], kind: Kind) -> ApiKey:
        caller = self._ring.find(headers)
        if caller is not None:
            return caller
        if not self._ring.keys or kind not in self._protected:
            return ANYONE
        if given_keys(headers):
            raise InvalidApiKey("the API key is not one of this server's")
        raise InvalidApiKey("this server needs an API key: send `Authorization: Bearer KEY`")


def protected_kinds(settings: Settings) -> tuple[Kind, ...]:
    """What besides work needs a key, as the settings say."""
    wanted: dict[Kind, bool] = {
        "lists": settings.protect_lists,
        "metrics": settings.protect_metrics,
    }
    return tuple(kind for kind, protect in wanted.items() if protect)


def _kind(method: str, path: str) -> Kind:
    # A browser asks what it may send before it sends its key.
    if path in PROBES or method == "OPTIONS":
        return "open"
    if path == "/metrics":
        return "metrics"
    path = path.removeprefix("/v1") or "/"
    listed = path in LISTS or path.startswith("/models/")
    return "lists" if listed and method in ("GET", "HEAD") else "work"


def _key_may_follow(scope: Scope) -> bool:
    # In the first message; such a socket holds nothing until then.
    return scope["type"] == "websocket" and _KEY_IN_MESSAGE.fullmatch(scope["path"]) is not None


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with_headers


__all__ = ["KeyGate", "protected_kinds"]
