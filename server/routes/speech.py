"""`POST /v1/audio/speech`."""

from __future__ import annotations

from fastapi import APIRouter, Request

from server.bodies import read_json
from server.dependencies import CallerDep, RecordDep, ServiceDep
from server.orders import order
from server.replies import SpeechReply
from server.routes.described import SOUND_OR_EVENTS, failures, json_body
from server.schemas.speech import SpeechBody

router = APIRouter()

EXAMPLES = {
    "plain": {
        "summary": "An mp3 in one of the model's voices",
        "value": {"model": "tts-1", "voice": "alloy", "input": "Hello there."},
    },
    "streamed": {
        "summary": "Raw samples while they are made, a little faster",
        "value": {
            "model": "tts-1",
            "voice": "alloy",
            "input": "Hello there.",
            "response_format": "pcm",
            "speed": 1.1,
        },
    },
    "events": {
        "summary": "Server-sent events with slices of an mp3 and the usage at the end",
        "value": {
            "model": "gpt-4o-mini-tts",
            "voice": "coral",
            "input": "Hello there.",
            "instructions": "Speak calmly.",
            "stream_format": "sse",
        },
    },
}


# FastAPI's schema needs the status said: it does not find one in the reply's constructor.
@router.post(
    "/audio/speech",
    status_code=200,
    response_class=SpeechReply,
    responses=SOUND_OR_EVENTS | failures(400, 401, 404, 408, 413, 429, 500, 503, 504),
    openapi_extra=json_body(SpeechBody, EXAMPLES),
)
async def speech(
    request: Request, service: ServiceDep, record: RecordDep, caller: CallerDep
) -> SpeechReply:
    """Speak `input`; the body is the sound, or events with slices of it."""
    data = await read_json(request, service.speech_limit)
    ordered = await order(SpeechBody.checked(data), service, record, caller)
    return SpeechReply(ordered, record, service.metrics)


__all__ = ["router"]
