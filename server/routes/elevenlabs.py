"""ElevenLabs' routes over HTTP: `POST /v1/text-to-speech/{voice}[/stream]`, `GET /v1/voices`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request

from server.bodies import read_json
from server.dependencies import CallerDep, RecordDep, RequestRecord, Service, ServiceDep
from server.keys import ApiKey
from server.orders import order
from server.replies import SpeechReply
from server.routes.described import SOUND, failures, json_body
from server.schemas.elevenlabs import DEFAULT_OUTPUT, ElevenLabsBody, output_format

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
