"""Consent recordings, in OpenAI's shape: who agreed to have their voice cloned."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from engine import InvalidRequest
from server.bodies import read_body, read_json
from server.dependencies import ServiceDep
from server.forms import form_file, form_texts, open_form
from server.routes.described import json_body
from server.schemas.voices import ConsentBody, ConsentChange
from server.voices.cloning import renamed
from server.voices.saved import Consent

router = APIRouter()

_RENAMED = {"plain": {"summary": "Another label", "value": {"name": "Anna, May 2026"}}}
_TEXTS = ConsentBody.model_json_schema()
_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    **_TEXTS,
                    "required": [*_TEXTS["required"], "recording"],
                    "properties": {
                        **_TEXTS["properties"],
                        "recording": {"type": "string", "format": "binary"},
                    },
                }
            }
        },
    }
}


@router.post("/audio/voice_consents", openapi_extra=_UPLOAD_SCHEMA)
async def create_consent(request: Request, service: ServiceDep) -> dict[str, Any]:
    """Keep the recording of somebody who agrees to have their voice cloned."""
    most = service.settings.max_clip_bytes
    raw = await read_body(request, service.upload_limit)
    async with open_form(request, raw) as form:
        recording, mime_type = await form_file(form, "recording", most)
        body = ConsentBody.checked(form_texts(form))
    with renamed({"ref_audio": "recording"}):
        await service.voices.clip(recording)
    registry = service.voices.registry
    consent = await service.voices.write(
        lambda: registry.add_consent(body.name, body.language, recording, mime_type)
    )
    return _entry(consent)


@router.get("/audio/voice_consents")
async def list_consents(
    service: ServiceDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """Consent recordings, the oldest first, without the sound."""
    await service.voices.refresh()
    every = [_entry(each) for each in service.voices.registry.consents]
    start = _place_after(after, [each["id"] for each in every]) if after else 0
    page = every[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(every),
    }


@router.get("/audio/voice_consents/{consent}")
async def get_consent(consent: str, service: ServiceDep) -> dict[str, Any]:
    """One consent recording by id, without the sound."""
    await service.voices.refresh()
    return _entry(service.voices.registry.consent(consent))


@router.post("/audio/voice_consents/{consent}", openapi_extra=json_body(ConsentChange, _RENAMED))
async def rename_consent(consent: str, request: Request, service: ServiceDep) -> dict[str, Any]:
    """Give a consent recording another `name`."""
    change = ConsentChange.checked(await read_json(request, service.settings.max_body_bytes))
    await service.voices.refresh()
    registry = service.voices.registry
    renamed_one = await service.voices.write(lambda: registry.rename_consent(consent, change.name))
    return _entry(renamed_one)


@router.delete("/audio/voice_consents/{consent}")
async def delete_consent(consent: str, service: ServiceDep) -> dict[str, Any]:
    """Delete a consent recording; voices saved with it stay."""
    registry = service.voices.registry
    removed = await service.voices.write(lambda: registry.remove_consent(consent))
    return {"id": removed.id, "object": "audio.voice_consent", "deleted": True}


def _place_after(after: str, ids: list[str]) -> int:
    if after not in ids:
        raise InvalidRequest(
            f"`after` must be the id of a consent recording of this list, got {after[:40]!r}",
            "after",
        )
    return ids.index(after) + 1


def _entry(consent: Consent) -> dict[str, Any]:
    return {
        "id": consent.id,
        "object": "audio.voice_consent",
        "name": consent.name,
        "language": consent.language,
        "created_at": consent.created_at,
    }


__all__ = ["router"]
