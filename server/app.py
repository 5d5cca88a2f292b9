"""The ASGI application: `create_app` puts the parts together, the lifespan runs the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import engine
from engine import EngineError, InvalidRequest
from server.audio.encoders import available_formats
from server.dependencies import Service
from server.errors import StoreUnwritable, on_engine_error, on_http_error
from server.framing import BodyLimits
from server.gate import KeyGate, protected_kinds
from server.metrics import Metrics
from server.middleware import ForgivingPaths, HeadAsGet, RequestRecords
from server.names import Names
from server.routes import (
    batch,
    cartesia,
    consents,
    deepgram,
    elevenlabs,
    live,
    models,
    probes,
    realtime,
    speech,
    voices,
)
from server.routes.described import as_answered, failures
from server.routes.page import Page
from server.settings import Settings
from server.version import version
from server.voices.cloning import Voices, open_registry

if TYPE_CHECKING:
    from server.tracing import Tracing

EXPOSED_HEADERS = (
    "x-request-id",
    "x-should-retry",
    "retry-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-framecast-warning",
    "x-framecast-seed",
    "x-framecast-finish-reason",
    "x-framecast-frames",
    "x-framecast-queue-ms",
    "x-framecast-first-audio-ms",
    "x-framecast-total-ms",
)


def create_app(engine_factory: Callable[[], engine.Engine], settings: Settings) -> FastAPI:
    """An app that builds its engine at start-up, warms it up while it already answers
    `/health`, and closes it at shutdown.

    Args:
        engine_factory: called once, in a thread, before the first request; what it raises ends
            the start-up.
        settings: the server's settings; nothing else is read from the environment.
    """
    metrics = Metrics()
    tracing = _tracing(settings.otlp_endpoint)
    formats = available_formats()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loaded = await asyncio.to_thread(engine_factory)
        metrics.describe(loaded)
        async with contextlib.AsyncExitStack() as stack:
            if tracing is not None:
                stack.push_async_callback(tracing.aclose)
            stack.push_async_callback(loaded.aclose)
            registry = open_registry(settings)
            await asyncio.to_thread(registry.restore)
            names = Names(loaded.models, settings.voice_aliases, settings.strict_models, registry)
            names.warn_of_unresolved()
            saved = Voices(loaded, settings, registry)
            service = Service(loaded, settings, names, saved, metrics, formats)
            app.state.service = service
            warm_up = asyncio.create_task(asyncio.to_thread(service.warm_up))
            yield
            await service.drain()
        await warm_up

    app = FastAPI(title="Framecast", version=version(), lifespan=lifespan, redirect_slashes=False)
    _add_routes(app)
    as_answered(app)
    app.add_exception_handler(EngineError, on_engine_error)
    app.add_exception_handler(StoreUnwritable, on_engine_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, _on_bad_query)
    # The last one added is the outermost.
    app.add_middleware(HeadAsGet)
    app.add_middleware(KeyGate, keys=settings.all_keys(), protected=protected_kinds(settings))
    app.add_middleware(BodyLimits, timeout_s=settings.body_timeout_s)
    app.add_middleware(Page)
    app.add_middleware(RequestRecords, metrics=metrics, tracing=tracing)
    app.add_middleware(ForgivingPaths)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "DELETE", "OPTIONS"],
        allow_headers=["*"],
        expose_headers=EXPOSED_HEADERS,
    )
    return app


def _tracing(endpoint: str) -> Tracing | None:
    if not endpoint:
        return None
    from server.tracing import open_tracing  # noqa: PLC0415  (needs an extra)

    return open_tracing(endpoint)


def _add_routes(app: FastAPI) -> None:
    app.include_router(probes.router)
    served = APIRouter()
    for part in (speech, batch, elevenlabs, deepgram, live, realtime, cartesia):
        served.include_router(part.router)
    served.include_router(models.router, responses=failures(400, 401, 404, 500))
    saved = failures(400, 401, 404, 408, 409, 413, 429, 500, 503)
    for part in (voices, consents):
        served.include_router(part.router, responses=saved)
    app.include_router(served, prefix="/v1")
    app.include_router(served, include_in_schema=False)
    app.add_api_route("/v1", probes.root, include_in_schema=False)
    app.add_api_route("/", probes.root, include_in_schema=False)
    app.add_api_route("/v1/test", probes.probe, include_in_schema=False)
    app.add_api_websocket_route("/{path:path}", live.unknown)


async def _on_bad_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    detail = error.errors()[0]
    name = str(detail["loc"][-1])
    return await on_engine_error(request, InvalidRequest(f"`{name}`: {detail['msg']}", name))


__all__ = ["create_app"]
