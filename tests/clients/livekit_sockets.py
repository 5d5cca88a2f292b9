"""livekit-plugins-elevenlabs, -deepgram and -cartesia: text in pieces over their sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from livekit.agents import APIConnectOptions
from livekit.agents.tts import TTS
from livekit.plugins import cartesia, deepgram, elevenlabs

from tests.clients.sounds import TEXT

TURNS = 2


async def _seconds(make: Callable[[aiohttp.ClientSession], TTS]) -> list[float]:
    """How long each turn of a conversation is, all of them on one socket."""
    async with aiohttp.ClientSession() as session:
        tts = make(session)
        tts.prewarm()
        try:
            return [await _turn(tts) for _ in range(TURNS)]
        finally:
            await tts.aclose()


async def _turn(tts: TTS) -> float:
    async with tts.stream(conn_options=APIConnectOptions(max_retry=0)) as stream:
        for word in f"{TEXT} {TEXT}".split():
            stream.push_text(f"{word} ")
        stream.end_input()
        return sum([heard.frame.duration async for heard in stream])


def check_elevenlabs_contexts(url: str) -> None:
    for encoding in ("mp3_22050_32", "pcm_24000", "opus_48000_64"):
        for auto_mode in (True, False):

            def make(
                session: aiohttp.ClientSession, encoding: str = encoding, auto: bool = auto_mode
            ) -> TTS:
                return elevenlabs.TTS(
                    voice_id="alloy",
                    base_url=f"{url}/v1",
                    api_key="unused",
                    encoding=encoding,
                    auto_mode=auto,
                    http_session=session,
                )

            assert min(asyncio.run(_seconds(make))) > 0.2


def check_deepgram_words(url: str) -> None:
    def make(session: aiohttp.ClientSession) -> TTS:
        return deepgram.TTS(base_url=f"{url}/v1/speak", api_key="unused", http_session=session)

    assert min(asyncio.run(_seconds(make))) > 0.2


def check_cartesia_contexts(url: str) -> None:
    def make(session: aiohttp.ClientSession) -> TTS:
        return cartesia.TTS(voice="alloy", base_url=url, api_key="unused", http_session=session)

    assert min(asyncio.run(_seconds(make))) > 0.2
