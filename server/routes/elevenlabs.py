"""ElevenLabs' routes: `POST /v1/text-to-speech/{voice}[/stream]`, `GET /v1/voices`, and the
WebSockets `/v1/text-to-speech/{voice}/stream-input` and `/multi-stream-input`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request, WebSocket

from engine import EngineError
from server.bodies import read_json
from server.dependencies import CallerDep, RecordDep, RequestRecord, Service, ServiceDep
from server.keys import ApiKey
from server.live.elevenlabs import Configure, ElevenLabs
from server.live.opening import PLACEHOLDER, Opened, arrived
from server.live.segment import Manner
from server.live.sockets import Limits
from server.orders import order
from server.replies import SpeechReply
from server.routes.described import SOUND, failures, json_body
from server.schemas.elevenlabs import (
    DEFAULT_OUTPUT,
    LIVE_WITHOUT_EFFECT,
    ElevenLabsBody,
    inactivity_s,
    live_fields,
    live_output,
    output_format,
)

router = APIRouter()

EXAMPLES = {
    "plain": {
        "summary": "A text in one of the voices of `GET /v1/voices`",
        "value": {"text": "Hello there.", "model_id": "eleven_multilingual_v2"},
    }
}
_DESCRIPTION: dict[str, Any] = {
    "status_code": 200,
    "response_class": SpeechReply,
    "responses": SOUND
    | failures(400, 401, 404, 408, 413, 429, 500, 503, 504, path="/text-to-speech/"),
    "openapi_extra": json_body(ElevenLabsBody, EXAMPLES),
}
_OUTPUT = Query(DEFAULT_OUTPUT, alias="output_format", description="codec_rate[_kbit/s]")


@router.post("/text-to-speech/{voice}", **_DESCRIPTION)
async def text_to_speech(
    voice: str,
    request: Request,
    *,
    service: ServiceDep,
    record: RecordDep,
    caller: CallerDep,
    output: str = _OUTPUT,
) -> SpeechReply:
    """Speak `text`; the reply is sent whole."""
    return await _reply(
        request, voice, output, service=service, record=record, caller=caller, streams=False
    )


@router.post("/text-to-speech/{voice}/stream", **_DESCRIPTION)
async def stream(
    voice: str,
    request: Request,
    *,
    service: ServiceDep,
    record: RecordDep,
    caller: CallerDep,
    output: str = _OUTPUT,
) -> SpeechReply:
    """Speak `text`; sound is sent while it is made."""
    return await _reply(
        request, voice, output, service=service, record=record, caller=caller, streams=True
    )


@router.websocket("/text-to-speech/{voice}/stream-input")
async def stream_input(websocket: WebSocket, voice: str) -> None:
    """One context, which an empty text ends together with the socket."""
    await _talk(websocket, voice, several=False)


@router.websocket("/text-to-speech/{voice}/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str) -> None:
    """Several contexts, by their `context_id`."""
    await _talk(websocket, voice, several=True)


@router.get("/voices", responses=failures(401, path="/voices"))
async def voices(service: ServiceDep) -> dict[str, Any]:
    """Every name that `{voice}` accepts, as ElevenLabs lists its own."""
    await service.voices.refresh()
    listed = [
        {
            "voice_id": name,
            "name": name,
            "category": "premade",
            "labels": {"model": model.name},
            "description": None,
            "preview_url": None,
            "settings": None,
        }
        for model in service.names.models
        for name in service.names.known_voices(model)
    ]
    return {"voices": listed}


async def _talk(websocket: WebSocket, voice: str, *, several: bool) -> None:
    socket = arrived(websocket)
    settings = socket.service.settings
    identify = websocket.scope["state"].get("identify")
    try:
        socket.refuse_origin()
        idle_s = inactivity_s(websocket.query_params, settings.live_idle_timeout_s)
        configure = _configure(socket, voice)
        if identify is None:
            await configure({})
    except EngineError as error:
        await socket.deny(error)
        return
    await socket.accept()

    def admit(key: str) -> None:
        socket.mouth.caller = identify(key)

    dialect = ElevenLabs(
        configure,
        socket.mouth,
        socket.outbox,
        Limits(idle_s, settings.max_input_chars),
        several=several,
        identify=admit if identify else None,
    )
    await socket.converse(dialect)


def _configure(socket: Opened, voice: str) -> Configure:
    query = socket.websocket.query_params
    fields = live_fields(query)
    audio_format, rate = live_output(query.get("output_format", DEFAULT_OUTPUT))

    async def configure(data: dict[str, Any]) -> tuple[Manner, tuple[str, ...]]:
        asked = {n: data[n] for n in ("voice_settings", *LIVE_WITHOUT_EFFECT) if data.get(n)}
        body = ElevenLabsBody.checked({**fields, **asked, "text": PLACEHOLDER})
        manner = await socket.manner(body.to_speech(voice, rate), audio_format=audio_format)
        return manner, body.without_effect()

    return configure


async def _reply(
    request: Request,
    voice: str,
    output: str,
    *,
    service: Service,
    record: RequestRecord,
    caller: ApiKey,
    streams: bool,
) -> SpeechReply:
    data = await read_json(request, service.settings.max_body_bytes)
    body = ElevenLabsBody.checked(data)
    audio_format, rate = output_format(output)
    ordered = await order(
        body.to_speech(voice, rate),
        service,
        record,
        caller,
        streams=streams,
        audio_format=audio_format,
        warnings=body.without_effect(),
    )
    return SpeechReply(ordered, record, service.metrics)


__all__ = ["router"]
