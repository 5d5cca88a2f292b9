"""wyoming_openai: what it takes a server for, and the voices it finds there.

The package needs Python 3.12 for its handler; how it finds a backend runs on 3.11 as well, so only
that module is loaded. What its handler sends is in `replays.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import types
from types import ModuleType


def _compatibility() -> ModuleType:
    found = importlib.util.find_spec("wyoming_openai")
    assert found is not None and found.submodule_search_locations
    package = types.ModuleType("wyoming_openai")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["wyoming_openai"] = package
    return importlib.import_module("wyoming_openai.compatibility")


def check_the_backend_it_finds_and_its_voices(url: str) -> None:
    found = _compatibility()

    async def ask() -> tuple[object, list[str]]:
        factory = found.CustomAsyncOpenAI.create_autodetected_factory()
        client = await factory(api_key="", base_url=f"{url}/v1")
        voices = await client.list_supported_voices(["tts-1"], [], ["en"])
        return client.backend, [voice.name for voice in voices]

    backend, voices = asyncio.run(ask())
    assert backend == found.OpenAIBackend.KOKORO_FASTAPI, backend
    assert any("alloy" in name for name in voices), voices
