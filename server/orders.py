"""From a checked body to a speech the engine can start, for every route that speaks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import engine
from engine import InvalidRequest, UnknownVoice
from server.audio.formats import AudioFormat
from server.dependencies import RequestRecord, Service
from server.keys import ApiKey
from server.schemas.speech import SpeechBody
from server.speaking import Speech
from server.voices.cloning import refuse_unable


async def order(
    body: SpeechBody,
    service: Service,
    record: RequestRecord,
    caller: ApiKey,
    *,
    streams: bool | None = None,
    audio_format: AudioFormat | None = None,
    warnings: tuple[str, ...] = (),
) -> Speech:
    """Resolve the names of a body, get its reference sound and say how it is to be spoken;
    `InvalidRequest` and `ModelNotFound` name the field.

    Args:
        streams: sound while it is made; None as the body says.
        audio_format: in place of the body's.
        warnings: told the listener beside those of the engine.
    """
    settings = service.settings
    shape = body.shape(settings.loudness_lufs)
    if audio_format is not None:
        shape = replace(shape, format=audio_format)
    refuse_missing_encoder(shape.format.name, service.formats)
    streams = body.streams() if streams is None else streams
    events = body.events(settings.stream_is_sse)
    model, spoken = await resolve(body, service, record)
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
    timeout_s = settings.send_timeout_s
    return Speech(start, model, shape, streams, events, timeout_s, warnings, body.return_text)


async def resolve(
    body: SpeechBody, service: Service, record: RequestRecord
) -> tuple[engine.ModelInfo, engine.SpeechRequest]:
    """The model a body means, and what the engine is asked for; errors as of `order`."""
    record.voice = body.voice
    if body.voice is not None:
        await service.voices.refresh()
    reference = body.reference()
    model = service.names.model(body.model, body.wanted_task(service.names))
    if reference is not None:
        refuse_unable(model, True, reference.field)
    spoken = body.to_request(model, service.names, service.settings.max_input_chars)
    if not isinstance(spoken.voice, engine.Voice):
        record.voice = spoken.voice or model.default_voice
    if reference is not None:
        spoken = replace(spoken, reference=await service.voices.reference(reference))
    return model, spoken


def start_speech(
    request: engine.SpeechRequest, model: engine.ModelInfo, service: Service, **job: Any
) -> engine.Stream | engine.Utterance:
    """Submit to the engine, with `Engine.speak`'s arguments; an unknown voice is refused with the
    aliases listed too."""
    try:
        return service.engine.speak(request, **job)
    except UnknownVoice as error:
        raise with_aliases(error, model, service) from None


def with_aliases(error: UnknownVoice, model: engine.ModelInfo, service: Service) -> UnknownVoice:
    """The same error with the names of aliases and saved voices listed too."""
    known = [*error.known, *service.names.known_voices(model)]
    return UnknownVoice(error.voice, set(known), error.field or "voice")


def refuse_missing_encoder(name: str, formats: tuple[str, ...]) -> None:
    """400 for a format whose encoder this machine lacks."""
    if name not in formats:
        works = ", ".join(formats)
        raise InvalidRequest(
            f"this server has no encoder for `{name}`; `response_format` may be {works}",
            "response_format",
        )


__all__ = ["order", "refuse_missing_encoder", "resolve", "start_speech", "with_aliases"]
