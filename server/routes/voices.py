"""Saved voices: list, upload, look up, delete.

One reply serves three kinds of clients: OpenAI's (`id`, `object`), vLLM-Omni's (`success`,
`voice`) and qwentts.cpp's (`status`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

import engine
from engine import Cancelled, InvalidRequest
from server.bodies import parse_json, read_body
from server.dependencies import CallerDep, RecordDep, Service, ServiceDep
from server.forms import form_file, form_texts, open_form
from server.keys import ANYONE, ApiKey
from server.schemas.voices import VoiceBody
from server.speaking import when_gone
from server.voices.cloning import Draft, renamed
from server.voices.naming import name_key
from server.voices.saved import SavedVoice
from server.voices.sources import decode_inline

T = TypeVar("T")

router = APIRouter()

# The engine's names for what is sent here.
JSON_FIELDS = {
    "ref_audio": "wav_b64",
    "spk": "spk_b64",
    "rvq": "rvq_b64",
    "reference_codes": "rvq_b64",
    "reference_text": "ref_text",
}
FORM_FIELDS = {**JSON_FIELDS, "ref_audio": "audio_sample"}

_JSON = VoiceBody.model_json_schema()
_FORM = {
    **_JSON,
    "properties": {
        **_JSON["properties"],
        "audio_sample": {"type": "string", "format": "binary", "description": "The clip"},
    },
}
_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "application/json": {"schema": _JSON},
        },
    }
}


@router.get("/audio/voices")
async def list_voices(
    service: ServiceDep, caller: CallerDep, legacy: bool = False
) -> dict[str, Any]:
    """Every name `voice` accepts: speakers, aliases, saved voices; `?legacy=true` gives bare
    strings. What saved voices hold is told to callers with a key only, where there are keys."""
    await service.voices.refresh()
    entries = [entry for model in service.names.models for entry in _built_in(model, service)]
    saved = service.voices.registry.voices
    told = _may_know(caller, service)
    shown: list[Any] = [entry["id"] for entry in entries] + [each.name for each in saved]
    if not legacy:
        shown = entries + [_entry(each, told) for each in saved]
    uploaded = [_entry(each, told) for each in saved]
    return {"object": "list", "data": shown, "voices": shown, "uploaded_voices": uploaded}


@router.post("/audio/voices", openapi_extra=_UPLOAD_SCHEMA)
async def create_voice(request: Request, service: ServiceDep, record: RecordDep) -> JSONResponse:
    """Save a voice: from a form with the file `audio_sample`, or from JSON with `wav_b64`, or
    `spk_b64` and `rvq_b64`. When the reply comes, the voice is kept."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = await read_body(request, service.upload_limit)
    if media_type == "multipart/form-data":
        fields = FORM_FIELDS
        body, draft = await _draft_of_form(request, raw, service.settings.max_clip_bytes)
    elif "json" not in media_type:
        raise InvalidRequest(
            "the Content-Type must be `multipart/form-data` or `application/json`, got "
            f"{media_type or 'none'!r}"
        )
    else:
        fields = JSON_FIELDS
        body = VoiceBody.checked(parse_json(media_type, raw))
        body.refuse_wrong_sources(sample=False)
        draft = await asyncio.to_thread(_draft, body, service.settings.max_clip_bytes)
    model = service.names.model(body.model, "base")
    record.model, record.voice = model.name, body.name
    with renamed(fields):
        saving = service.voices.save(draft, model, service.names.reserved())
        saved = await _unless_gone(request, saving)
    entry = _entry(saved, told=True)
    reply = {**entry, "success": True, "status": "registered", "voice": entry}
    warning = {"x-framecast-warning": _ascii(saved)} if saved.voice.warnings else None
    return JSONResponse(reply, headers=warning)


@router.get("/audio/voices/{voice}")
async def get_voice(voice: str, service: ServiceDep) -> dict[str, Any]:
    """One voice, by id or name: a speaker, an alias or a saved one."""
    await service.voices.refresh()
    for model in service.names.models:
        for entry in _built_in(model, service):
            if name_key(entry["id"]) == name_key(voice):
                return entry
    return _entry(service.voices.registry.existing(voice), told=True)


@router.delete("/audio/voices/{voice}")
async def delete_voice(voice: str, service: ServiceDep, record: RecordDep) -> dict[str, Any]:
    """Delete a saved voice, by id or name, and everything the engine made of it."""
    record.voice = voice
    if name_key(voice) in {name_key(name) for name in service.names.reserved()}:
        raise InvalidRequest(f"voice {voice!r} is built in and cannot be deleted", "voice")
    removed = await service.voices.remove(voice)
    return {
        "id": removed.id,
        "name": removed.name,
        "object": "audio.voice.deleted",
        "deleted": True,
        "success": True,
        "status": "deleted",
    }


async def _draft_of_form(request: Request, raw: bytes, most_bytes: int) -> tuple[VoiceBody, Draft]:
    async with open_form(request, raw) as form:
        body = VoiceBody.checked(form_texts(form), form=True)
        body.refuse_wrong_sources(sample="audio_sample" in form)
        draft = await asyncio.to_thread(_draft, body, most_bytes)
        if "audio_sample" not in form:
            return body, draft
        clip, mime_type = await form_file(form, "audio_sample", most_bytes)
    return body, replace(draft, clip=clip, mime_type=mime_type)


async def _unless_gone(request: Request, doing: Awaitable[T]) -> T:
    """What is done for a client that may leave meanwhile; then it is cancelled."""
    task = asyncio.ensure_future(doing)
    gone = asyncio.create_task(when_gone(request.receive, lambda: _cancel(task)))
    try:
        return await task
    except asyncio.CancelledError:
        if not gone.done():
            raise
        raise Cancelled("the client left before its voice was saved") from None
    finally:
        gone.cancel()
        task.cancel()


def _cancel(task: asyncio.Future[T]) -> None:
    task.cancel()


def _draft(body: VoiceBody, most_bytes: int) -> Draft:
    files = {
        name: None if text is None else decode_inline(text, most_bytes, name)
        for name, text in (
            ("wav_b64", body.wav_b64), ("spk_b64", body.spk_b64), ("rvq_b64", body.rvq_b64),
        )
    }  # fmt: skip
    return Draft(
        body.name,
        body.ref_text,
        clip=files["wav_b64"],
        spk=files["spk_b64"],
        rvq=files["rvq_b64"],
        embedding=body.speaker_embedding,
        tail_silence_s=body.ref_tail_silence,
        consent=body.consent,
        description=body.speaker_description,
        overwrite=body.overwrite,
    )


def _built_in(model: engine.ModelInfo, service: Service) -> list[dict[str, Any]]:
    common = {"object": "voice", "model": model.name}
    speakers = [{"id": name, "name": name, **common, "kind": "speaker"} for name in model.speakers]
    aliases = [
        {"id": name, "name": name, **common, "kind": "alias", "alias_of": target}
        for name, target in service.names.aliases(model).items()
    ]
    return speakers + aliases


def _entry(saved: SavedVoice, told: bool) -> dict[str, Any]:
    voice = saved.voice
    entry = {
        "id": saved.id,
        "name": saved.name,
        "object": "audio.voice",
        "type": "audio_sample",
        "kind": "registered",
        "created_at": saved.created_at,
        "model": voice.model,
        "in_context": voice.in_context,
    }
    if not told:
        return entry
    details = {
        "ref_text": voice.transcript,
        "speaker_description": saved.description,
        "consent": saved.consent,
        "mime_type": saved.mime_type,
        "file_size": saved.file_size,
        "warnings": list(voice.warnings) or None,
    }
    return entry | {name: value for name, value in details.items() if value is not None}


def _may_know(caller: ApiKey, service: Service) -> bool:
    return caller is not ANYONE or not service.settings.all_keys()


def _ascii(saved: SavedVoice) -> str:
    text = "; ".join(saved.voice.warnings)
    return text.encode("ascii", "backslashreplace").decode().replace("\n", " ")


__all__ = ["router"]
