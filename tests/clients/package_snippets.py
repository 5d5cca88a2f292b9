"""The README's examples that need packages or programs of their own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.clients.openai_node import run_node
from tests.clients.snippets import run_python, snippet
from tests.clients.sounds import TEXT, audible, samples


def check_openai_node(url: str) -> None:
    folder = Path(os.environ["FRAMECAST_NODE"])
    script = folder / "snippet.mjs"
    script.write_text(snippet("openai-node", url), encoding="utf-8")
    run_node(script)
    audible((folder / "hello.mp3").read_bytes())


def check_openai_agents(url: str) -> None:
    names, _ = run_python("openai-agents", url)

    async def speak() -> bytes:
        model, settings = names["provider"].get_tts_model(None), names["settings"]
        async with names["client"]:
            return b"".join([piece async for piece in model.run(TEXT, settings)])

    samples(asyncio.run(speak()))


def check_livekit(url: str) -> None:
    async def speak() -> float:
        tts: Any = run_python("livekit", url)[0]["tts"]
        try:
            return sum([heard.frame.duration async for heard in tts.synthesize(TEXT)])
        finally:
            await tts.aclose()

    assert asyncio.run(speak()) > 0.2


def check_pipecat(url: str) -> None:
    from tests.clients.pipecat_service import heard_of

    async def speak() -> bytes:
        heard = await heard_of(run_python("pipecat", url)[0]["tts"])
        assert not heard.errors
        return heard.sound

    samples(asyncio.run(speak()))


def check_elevenlabs(url: str) -> None:
    audible(run_python("elevenlabs", url)[1]["hello.mp3"])


def check_deepgram(url: str) -> None:
    audible(run_python("deepgram", url)[1]["hello.mp3"])
