"""deepgram-sdk: speech over HTTP."""

from __future__ import annotations

import asyncio

from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.errors import BadRequestError

from tests.clients.sounds import TEXT, audible, samples


def _environment(url: str) -> DeepgramClientEnvironment:
    return DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)


def _client(url: str) -> DeepgramClient:
    return DeepgramClient(api_key="unused", environment=_environment(url))


def check_every_encoding(url: str) -> None:
    audio = _client(url).speak.v1.audio
    for encoding in ("mp3", "opus", "flac", "aac", "linear16", "mulaw", "alaw"):
        audible(b"".join(audio.generate(text=TEXT, encoding=encoding)))
    raw = audio.generate(
        text=TEXT, encoding="linear16", container="none", sample_rate=16_000, speed=1.2
    )
    samples(b"".join(raw), rate=16_000)


def check_their_voices_speak(url: str) -> None:
    audio = _client(url).speak.v1.audio
    audible(b"".join(audio.generate(text=TEXT, model="aura-2-thalia-en")))


def check_the_async_client(url: str) -> None:
    async def ask() -> bytes:
        client = AsyncDeepgramClient(api_key="unused", environment=_environment(url))
        return b"".join([piece async for piece in client.speak.v1.audio.generate(text=TEXT)])

    audible(asyncio.run(ask()))


def check_a_bad_request_is_an_error_with_a_message(url: str) -> None:
    try:
        b"".join(_client(url).speak.v1.audio.generate(text=" "))
    except BadRequestError as error:
        assert error.body["err_msg"] and error.body["request_id"]
    else:
        raise AssertionError("a blank text was accepted")
