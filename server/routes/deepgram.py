"""Deepgram's `/v1/speak`, over HTTP and as a WebSocket."""

from __future__ import annotations

from fastapi import APIRouter, Query, Request, WebSocket

from engine import EngineError
from server.bodies import read_json
from server.dependencies import CallerDep, RecordDep, ServiceDep
from server.live.deepgram import IDLE_S, Deepgram
from server.live.opening import PLACEHOLDER, arrived
from server.live.sockets import Limits
from server.orders import order
from server.replies import SpeechReply
from server.routes.described import SOUND, failures, json_body
from server.schemas.deepgram import DeepgramBody, deepgram_speech, live_query

router = APIRouter()

EXAMPLES = {"plain": {"summary": "A text", "value": {"text": "Hello there."}}}


@router.post(
    "/speak",
    status_code=200,
    response_class=SpeechReply,
    responses=SOUND | failures(400, 401, 404, 408, 413, 429, 500, 503, 504, path="/speak"),
    openapi_extra=json_body(DeepgramBody, EXAMPLES),
)
async def speak(
    request: Request,
    *,
    service: ServiceDep,
    record: RecordDep,
    caller: CallerDep,
    model: str | None = Query(None, description="a voice, ours or Deepgram's, or a served model"),
    encoding: str | None = Query(None, description="linear16, mulaw, alaw, mp3, opus, flac or aac"),
    container: str | None = Query(None, description="wav, ogg or none"),
    sample_rate: str | None = Query(None, description="8000 to 48000"),
    bit_rate: str | None = Query(None, description="bits per second of mp3, opus and aac"),
    speed: str | None = Query(None, description="0.25 to 4"),
) -> SpeechReply:
    """Speak `text`; sound is sent while it is made."""
    data = await read_json(request, service.settings.max_body_bytes)
    asked = deepgram_speech(request.query_params, data, service.names)
    ordered = await order(
        asked.body,
        service,
        record,
        caller,
        streams=True,
        audio_format=asked.format,
        warnings=asked.warnings,
    )
    headers = {
        "dg-request-id": record.id,
        "dg-model-name": ordered.model.name,
        "dg-char-count": str(len(asked.body.input)),
    }
    return SpeechReply(ordered, record, service.metrics, headers)


@router.websocket("/speak")
async def speak_live(websocket: WebSocket) -> None:
    """Text as it is written, in `Speak` messages."""
    socket = arrived(websocket)
    try:
        socket.refuse_origin()
        query = live_query(websocket.query_params)
        asked = deepgram_speech(query, {"text": PLACEHOLDER}, socket.service.names)
        manner = await socket.manner(asked.body, audio_format=asked.format)
    except EngineError as error:
        await socket.deny(error, "dg-error")
        return
    await socket.accept(dg_request_id=socket.record.id)
    settings = socket.service.settings
    dialect = Deepgram(
        manner,
        socket.mouth,
        socket.outbox,
        Limits(max(settings.live_idle_timeout_s, IDLE_S), settings.max_input_chars),
        request_id=socket.record.id,
        model=manner.request.model or "",
        warnings=asked.warnings,
    )
    await socket.converse(dialect)


__all__ = ["router"]
