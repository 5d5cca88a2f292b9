"""`POST /v1/audio/speech`."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

import engine
from engine import Cancelled, InvalidRequest, PayloadTooLarge, UnknownVoice
from server.audio.encoders import FORMATS
from server.dependencies import CallerDep, RecordDep, Service, ServiceDep
from server.replies import Speech, SpeechReply
from server.schemas.speech import SpeechBody, parse_speech

router = APIRouter()

_BODY_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SpeechBody.model_json_schema()}},
    }
}


# FastAPI's schema needs the status said: it does not find one in the reply's constructor.
@router.post(
    "/audio/speech", status_code=200, response_class=SpeechReply, openapi_extra=_BODY_SCHEMA
)
async def speech(
    request: Request, service: ServiceDep, record: RecordDep, caller: CallerDep
) -> SpeechReply:
    """Speak `input`; the body is the sound."""
    settings = service.settings
    raw = await read_body(request, settings.max_body_bytes)
    body = parse_speech(request.headers.get("content-type", ""), raw)
    record.voice = body.voice
    model = service.names.model(body.model)
    audio_format, streams = FORMATS[body.audio_format()], body.streams()
    refuse_missing_encoder(audio_format.name, service.formats)
    spoken = body.to_request(model, service.names, settings.max_input_chars)
    record.voice = spoken.voice or model.default_voice
    start = partial(
        start_speech,
        spoken,
        model,
        service,
        id=record.id,
        tenant=caller.name,
        priority=caller.priority,
        timeout_s=body.timeout_s(settings.default_timeout_s, settings.max_timeout_s),
        streaming=streams,
        redraw=settings.redraw and not streams,
    )
    reply = Speech(start, model, audio_format, streams, settings.send_timeout_s)
    return SpeechReply(reply, record, service.metrics)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; `PayloadTooLarge` as soon as it is known to pass `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise PayloadTooLarge(f"the body is {declared} bytes long; the limit is {limit}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise PayloadTooLarge(f"the body is longer than the limit of {limit} bytes")
    except ClientDisconnect:
        raise Cancelled("the client left before its request was complete") from None
    return bytes(body)


def start_speech(
    request: engine.SpeechRequest, model: engine.ModelInfo, service: Service, **job: Any
) -> engine.Stream | engine.Utterance:
    """Submit to the engine, with `Engine.speak`'s arguments; an unknown voice is refused with the
    aliases listed too."""
    try:
        return service.engine.speak(request, **job)
    except UnknownVoice as error:
        known = [*error.known, *service.names.known_voices(model)]
        raise UnknownVoice(error.voice, set(known), error.field or "voice") from None


def refuse_missing_encoder(name: str, formats: tuple[str, ...]) -> None:
    """400 for a format whose encoder this machine lacks."""
    if name not in formats:
        works = ", ".join(formats)
        raise InvalidRequest(
            f"this server has no encoder for `{name}`; `response_format` may be {works}",
            "response_format",
        )


__all__ = ["router"]
