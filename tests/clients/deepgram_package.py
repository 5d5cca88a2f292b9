"""deepgram-sdk: speech over HTTP, and its socket."""

from __future__ import annotations

import asyncio
from typing import Any

from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.errors import BadRequestError
from deepgram.speak.v1.socket_client import V1SocketClient
from deepgram.speak.v1.types import SpeakV1Text

from tests.clients.sounds import TEXT, audible, samples


def _environment(url: str) -> DeepgramClientEnvironment:
    live = url.replace("http", "ws", 1)
    return DeepgramClientEnvironment(base=url, production=live, agent=live, agent_rest=url)


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


def _until(socket: V1SocketClient, kind: str) -> tuple[bytes, Any]:
    """The sound up to a message of a kind, and that message."""
    sound = b""
    for message in socket:
        if isinstance(message, bytes):
            sound += message
        elif message.type == kind:
            return sound, message
    raise AssertionError(f"no {kind} came")


def check_words_one_by_one_are_spoken_and_flushed_once(url: str) -> None:
    client = _client(url)
    for encoding, rate in (("linear16", 24_000), ("mulaw", 8_000)):
        with client.speak.v1.connect(
            model="aura-2-thalia-en", encoding=encoding, sample_rate=rate
        ) as socket:
            assert _until(socket, "Metadata")[1].request_id
            for turn in range(2):
                for word in TEXT.split():
                    socket.send_text(SpeakV1Text(text=f"{word} "))
                socket.send_flush()
                sound, flushed = _until(socket, "Flushed")
                assert flushed.sequence_id == turn and len(sound) > rate / 5


def check_a_clear_ends_the_speech_and_the_next_one_is_spoken(url: str) -> None:
    with _client(url).speak.v1.connect(encoding="linear16", sample_rate="24000") as socket:
        socket.send_text(SpeakV1Text(text=TEXT * 3))
        socket.send_clear()
        _until(socket, "Cleared")
        socket.send_text(SpeakV1Text(text=TEXT))
        socket.send_flush()
        samples(_until(socket, "Flushed")[0])
        socket.send_close()
        assert list(socket) == []
