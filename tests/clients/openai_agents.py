"""openai-agents: the text-to-speech model of its voice pipeline."""

from __future__ import annotations

import asyncio

from agents.voice import OpenAIVoiceModelProvider, TTSModelSettings
from openai import AsyncOpenAI

from tests.clients.sounds import TEXT, samples


def check_the_voice_pipelines_speech(url: str) -> None:
    async def ask() -> bytes:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client:
            provider = OpenAIVoiceModelProvider(openai_client=client)
            model = provider.get_tts_model(None)
            pieces = model.run(TEXT, TTSModelSettings(voice="coral", speed=1.5))
            return b"".join([piece async for piece in pieces])

    samples(asyncio.run(ask()))
