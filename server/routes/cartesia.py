"""Cartesia's WebSocket, `/tts/websocket`."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from server.live.cartesia import Cartesia
from server.live.opening import PLACEHOLDER, opened
from server.live.segment import Manner
from server.live.several import Contexts
from server.schemas.cartesia import CartesiaBody

router = APIRouter()


@router.websocket("/tts/websocket")
async def tts_websocket(websocket: WebSocket) -> None:
    """Cartesia's dialect."""
    socket = await opened(websocket)
    if socket is None:
        return
    service = socket.service

    async def configure(body: CartesiaBody) -> tuple[Manner, tuple[str, ...]]:
        audio_format = body.audio_format()
        speech, warnings = body.to_speech(PLACEHOLDER, service.names)
        return await socket.manner(speech, audio_format=audio_format), warnings

    contexts = Contexts(socket.mouth, socket.outbox, service.settings.max_input_chars)
    dialect = Cartesia(
        configure,
        contexts,
        socket.outbox,
        idle_s=service.settings.live_idle_timeout_s,
        connection=socket.record.id,
    )
    await socket.converse(dialect)


__all__ = ["router"]
