"""cartesia: contexts on its socket."""

from __future__ import annotations

import asyncio
from typing import Any

from cartesia import AsyncCartesia, Cartesia

from tests.clients.sounds import TEXT, samples

RAW: Any = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
# A voice of theirs, which the package sends when none was chosen.
UNKNOWN = "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"


def _options(url: str) -> dict[str, Any]:
    return {
        "api_key": "unused", "base_url": url, "websocket_base_url": url.replace("http", "ws", 1),
    }  # fmt: skip


def check_a_text_in_pieces_is_spoken(url: str) -> None:
    with Cartesia(**_options(url)).tts.websocket_connect() as connection:
        for voice in ("alloy", UNKNOWN):
            context = connection.context(
                model_id="sonic-3", voice=voice, output_format=RAW, add_timestamps=True
            )
            for word in TEXT.split():
                context.push(f"{word} ")
            context.push("", flush=True)
            context.push("Good night.")
            context.no_more_inputs()
            events = list(context.receive())
            samples(b"".join(event.audio for event in events if event.type == "chunk"))
            ends = [event.type for event in events if event.type != "chunk"]
            assert ends == ["flush_done", "done"], ends


def check_a_text_is_spoken_as_version_2_asked_for_it(url: str) -> None:
    socket = Cartesia(**_options(url)).tts.websocket()
    try:
        heard = socket.send(
            model_id="sonic-2",
            transcript=TEXT,
            voice={"mode": "id", "id": "nova"},
            output_format={**RAW, "encoding": "pcm_f32le", "sample_rate": 44_100},
            stream=False,
        )
        assert len(heard.audio) % 4 == 0 and len(heard.audio) / 4 / 44_100 > 0.2
    finally:
        socket.close()


def check_contexts_talk_at_the_same_time_and_one_is_cancelled(url: str) -> None:
    async def talk() -> list[bytes]:
        async with AsyncCartesia(**_options(url)).tts.websocket_connect() as connection:
            contexts = [
                connection.context(model_id="sonic-3", voice="alloy", output_format=RAW)
                for _ in range(3)
            ]
            for context in contexts:
                await context.push(TEXT * 3)
            await contexts[0].cancel()
            for context in contexts[1:]:
                await context.no_more_inputs()
            return await asyncio.gather(*(_heard(context) for context in contexts[1:]))

    for sound in asyncio.run(talk()):
        samples(sound)


def check_an_unknown_voice_is_an_error_with_a_message(url: str) -> None:
    with Cartesia(**_options(url)).tts.websocket_connect() as connection:
        context = connection.context(model_id="sonic-3", voice="nobody", output_format=RAW)
        context.push(TEXT)
        (error,) = context.receive()
        assert error.type == "error" and error.status_code == 400 and "nobody" in error.message


async def _heard(context: Any) -> bytes:
    return b"".join([event.audio async for event in context.receive() if event.type == "chunk"])
