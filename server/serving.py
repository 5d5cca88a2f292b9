"""Running the app: one process, one socket, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import platform
import socket
import time
from pathlib import Path

import uvicorn
from fastapi import FastAPI

import engine
from server.app import create_app
from server.dependencies import Service
from server.names import Names
from server.protocol import Protocol
from server.settings import Settings
from server.version import version

log = logging.getLogger(__name__)

# WebSockets are closed next, and first their clients are told why.
_LAST_WORDS_S = 0.2


class Server(uvicorn.Server):
    """uvicorn, which at a signal first turns `/ready` false and lets the active requests end
    while it still listens, and which stops by itself when the engine's worker is dead."""

    worker_died = False

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                log_config=None,
                access_log=False,
                server_header=False,
                ws_per_message_deflate=False,  # sound hardly gets smaller, and it costs the loop
            )
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
        # What still runs ends with an error of ours: a 503, or a body that is cut.
        await self._service.engine.aclose()
        await asyncio.sleep(_LAST_WORDS_S)
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


def report(loaded: engine.Engine) -> None:
    """Log what is about to be served, and on what: one line, then one per model."""
    stats, config = asyncio.run(loaded.stats()), loaded.config
    facts: dict[str, object] = {
        "device": loaded.device,
        "device_name": device_name(loaded.device),
        "dtype": loaded.dtype,
        "threads": threads(),
        "slots": stats.slots,
        "kv_positions": config.kv_positions,
        "max_queue": config.max_queue,
        "memory_bytes": stats.memory_bytes,
    }
    log.info("framecast %s", version(), extra={"fields": facts})
    for model in loaded.models:
        facts = {
            "task": model.task,
            "size": model.size,
            "speakers": len(model.speakers),
            "languages": len(model.languages),
        }
        log.info("model %s", model.name, extra={"fields": facts})


def device_name(device: str) -> str:
    """What the maker calls it."""
    import torch  # noqa: PLC0415  # loaded by the engine already

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return cpu_name(Path("/proc/cpuinfo")) if device == "cpu" else platform.machine()


def cpu_name(cpuinfo: Path) -> str:
    """The model name in Linux's table of processors; elsewhere what Python knows."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def threads() -> int:
    """CPU threads one operation may use."""
    import torch  # noqa: PLC0415

    return torch.get_num_threads()


def allow_many_connections() -> None:
    """Raise this process's soft limit of open files to the hard one: each listener is a file, and
    the usual 1024 are soon taken by clients that only connect."""
    try:
        import resource  # noqa: PLC0415  # not on Windows
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems state a hard limit they do not grant.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve(loaded: engine.Engine, settings: Settings, bound: socket.socket) -> int:
    """Serve an engine until a signal; returns the exit code: 0, or 1 when the worker died.

    Raises:
        InvalidRequest: a setting contradicts the loaded models.
    """
    Names(loaded.models, settings.voice_aliases, settings.strict_models)
    server = Server(create_app(lambda: loaded, settings), settings)
    report(loaded)
    allow_many_connections()
    log.info("listening on %s", address(bound))
    server.run(sockets=[bound])
    return 1 if server.worker_died or not server.started else 0


__all__ = ["Server", "address", "allow_many_connections", "listen", "report", "serve"]
