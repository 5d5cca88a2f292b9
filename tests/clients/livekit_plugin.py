"""livekit-plugins-openai: events by default, bare sound for the older models."""

from __future__ import annotations

import asyncio

from livekit.agents import APIConnectOptions
from livekit.plugins import openai

from tests.clients.sounds import TEXT


async def _seconds(url: str, **options: object) -> float:
    tts = openai.TTS(base_url=f"{url}/v1", api_key="unused", **options)  # type: ignore[arg-type]
    tts.prewarm()
    try:
        stream = tts.synthesize(TEXT, conn_options=APIConnectOptions(max_retry=0))
        return sum([heard.frame.duration async for heard in stream])
    finally:
        await tts.aclose()


def check_events_in_every_format(url: str) -> None:
    for name in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
        spoken = asyncio.run(_seconds(url, response_format=name))
        assert spoken > 0.2, f"{name}: {spoken:.2f} s"


def check_the_older_models_get_bare_sound(url: str) -> None:
    assert asyncio.run(_seconds(url, model="tts-1", voice="alloy", speed=1.2)) > 0.2
