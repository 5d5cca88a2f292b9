"""The WebSocket of OpenAI's Realtime API: which kind of session, and who speaks in it."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from engine import EngineError, InvalidRequest
from server.live.openai_realtime import OpenAIRealtime, error_event, transcription_refused
from server.live.opening import opened
from server.live.several import Contexts
from server.live.sockets import POLICY
from server.schemas.realtime import served

router = APIRouter()

BETA = "realtime=v1"


@router.websocket("/realtime")
async def realtime(websocket: WebSocket) -> None:
    """OpenAI's dialect: text read aloud."""
    socket = await opened(websocket)
    if socket is None:
        return
    service, asked = socket.service, websocket.query_params
    dialect = OpenAIRealtime(
        socket.manner,
        Contexts(socket.mouth, socket.outbox, service.settings.max_input_chars),
        socket.outbox,
        idle_s=service.settings.live_idle_timeout_s,
        beta=BETA in websocket.headers.get("openai-beta", ""),
    )
    try:
        _refuse_intent(asked.get("intent"))
        model = service.names.model(served(asked.get("model")))
        dialect.begin(asked.get("model") or model.name, model.default_voice)
    except EngineError as error:
        await websocket.send_text(error_event(error))
        await websocket.close(POLICY, "no such session")
        return
    await socket.converse(dialect)


def _refuse_intent(intent: str | None) -> None:
    if intent == "transcription":
        raise transcription_refused("intent")
    if intent not in (None, "", "realtime"):
        raise InvalidRequest(f"`intent` must be left out or realtime, got {intent!r:.60}", "intent")


__all__ = ["router"]
