"""Running the app: one process, one socket, a graceful end."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time

import uvicorn
from fastapi import FastAPI

import engine
from server.app import create_app
from server.dependencies import Service
from server.settings import Settings

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn, which at a signal first turns `/ready` false and lets the active requests end
    while it still listens, and which stops by itself when the engine's worker is dead."""

    worker_died = False

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
        )
        self._app = app
        self._drain_timeout_s = settings.drain_timeout_s

    @property
    def _service(self) -> Service:
        service: Service = self._app.state.service
        return service

    async def on_tick(self, counter: int) -> bool:
        leave = await super().on_tick(counter)
        # Ten ticks a second.
        if counter % 10 == 0 and not (health := await self._service.engine.health()).alive:
            log.error("the worker is dead, so this process ends: %s", health.reason)
            self.worker_died = leave = True
        return leave

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        started = time.monotonic()
        drained = asyncio.create_task(self._service.drain())
        while not drained.done() and not self.force_exit:
            await asyncio.wait({drained}, timeout=0.1)
        drained.cancel()
        left = self._drain_timeout_s - (time.monotonic() - started)
        self.config.timeout_graceful_shutdown = max(1, math.ceil(left))
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket that does not accept yet; `OSError` when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def address(bound: socket.socket) -> str:
    """The URL a bound socket answers at."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(loaded: engine.Engine, settings: Settings, bound: socket.socket) -> int:
    """Serve an engine until a signal; returns the exit code: 0, or 1 when the worker died."""
    server = Server(create_app(lambda: loaded, settings), settings)
    log.info("listening on %s", address(bound))
    server.run(sockets=[bound])
    return 1 if server.worker_died or not server.started else 0


__all__ = ["Server", "address", "listen", "serve"]
