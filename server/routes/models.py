"""What is served: the models, in the shapes OpenAI's clients and Open WebUI read."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

import engine
from engine import ModelNotFound
from server.dependencies import ServiceDep
from server.names import is_openai_model

router = APIRouter()


@router.get("/models")
async def list_models(service: ServiceDep) -> dict[str, Any]:
    """The loaded models."""
    models = service.names.models
    return {"object": "list", "data": [_model(model, model.name) for model in models]}


@router.get("/models/{name:path}")
async def get_model(name: str, service: ServiceDep) -> dict[str, Any]:
    """One loaded model, by its own name or by an alias of the default one."""
    for model in service.names.models:
        if model.name.lower() == name.lower():
            return _model(model, model.name)
    if is_openai_model(name):
        return _model(service.names.models[0], name)
    served = ", ".join(model.name for model in service.names.models)
    raise ModelNotFound(f"model {name!r} is not served here; served: {served}")


@router.get("/audio/models")
async def list_audio_models(service: ServiceDep) -> dict[str, Any]:
    """The loaded models with what each can do; Open WebUI reads `models`."""
    entries = [_model(model, model.name) | _abilities(model) for model in service.names.models]
    return {"object": "list", "data": entries, "models": entries}


def _model(model: engine.ModelInfo, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": model.created, "owned_by": "framecast"}


def _abilities(model: engine.ModelInfo) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "languages": ["auto", *model.languages],
        "default_voice": model.default_voice,
        "accepts_instructions": model.accepts_instructions,
        "sample_rate": model.sample_rate,
    }


__all__ = ["router"]
