"""Is it alive, may it get traffic, what is it doing, and who are we."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from server.dependencies import ServiceDep
from server.errors import UNAVAILABLE_RETRY_S
from server.metrics import Snapshot
from server.version import version

router = APIRouter()


@router.get("/health", responses={503: {"description": "the worker is dead: restart"}})
async def health(service: ServiceDep) -> JSONResponse:
    """200 while the worker lives, also during the warm-up; 503 asks for a restart."""
    state = await service.engine.health()
    body = {"status": "ok" if state.alive else "dead", "ready": state.ready, "reason": state.reason}
    return JSONResponse(body, 200 if state.alive else 503)


@router.get("/ready", responses={503: {"description": "warming up, draining or dead"}})
async def ready(service: ServiceDep) -> JSONResponse:
    """200 when traffic is welcome: warm and not shutting down."""
    reason = await service.not_ready_because()
    if not reason:
        return JSONResponse({"status": "ready"})
    body = {"status": "not ready", "reason": reason}
    return JSONResponse(body, 503, {"Retry-After": str(UNAVAILABLE_RETRY_S)})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: ServiceDep) -> Response:
    """Prometheus text; the worker is not asked, so a busy one does not hold it up."""
    ready = not await service.not_ready_because()
    snapshot = Snapshot(await service.engine.stats(), ready, service.draining)
    text = service.metrics.render(snapshot)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


async def root() -> dict[str, Any]:
    """Who answers here; some clients open their connection with it."""
    return {"name": "framecast", "version": version()}


async def probe() -> dict[str, str]:
    """Tells wyoming_openai that voices are listed under /v1/audio/voices."""
    return {"status": "ok"}


__all__ = ["probe", "root", "router"]
