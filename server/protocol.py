"""uvicorn's h11 protocol with a limit on the time a request's headers may take, and with the
server's error body for what is no HTTP request.

h11 bounds their size (16 KiB by default). Without a limit on time as well, connections that never
finish a request are kept for ever.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from server.errors import error_body

HEADER_TIMEOUT_S = 20.0


class Protocol(H11Protocol):
    """Closes a connection that has not sent a whole request head in time."""

    _deadline: asyncio.TimerHandle | None = None
    _upgraded = False  # to a WebSocket, which another protocol serves from then on

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)
        self._rest()

    def send_400_response(self, msg: str) -> None:
        """Answer what h11 could not read, and close; called while its error is handled."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(sys.exc_info()[1])
        self.transport.close()

    def _refuse(self, error: BaseException | None) -> None:
        status = getattr(error, "error_status_hint", 400)
        message = f"this is not a request that HTTP/1.1 allows: {error}"
        body = json.dumps(error_body(message, "invalid_request_error", None, None)).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        head = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self._deadline is None and not (self._upgraded or self.transport.is_closing()):
            self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._give_up)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


__all__ = ["HEADER_TIMEOUT_S", "Protocol"]
