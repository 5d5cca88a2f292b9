"""The openai package, with nothing but its base URL changed."""

from __future__ import annotations

import asyncio
import base64
import json

import openai

from tests.clients.sounds import TEXT, audible, samples, seconds

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")


def _client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def check_every_format_by_a_plain_call(url: str) -> None:
    with _client(url) as client:
        for name in FORMATS:
            reply = client.audio.speech.create(
                model="tts-1", voice="alloy", input=TEXT, response_format=name
            )
            (samples if name == "pcm" else audible)(reply.content)


def check_sound_arrives_in_pieces(url: str) -> None:
    with (
        _client(url) as client,
        client.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts",
            voice="coral",
            input=TEXT,
            instructions="Speak calmly.",
            response_format="pcm",
        ) as reply,
    ):
        samples(b"".join(reply.iter_bytes(chunk_size=1024)))


def check_the_async_client(url: str) -> None:
    async def ask() -> tuple[bytes, bytes]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client:
            speech = client.audio.speech
            whole = await speech.create(model="tts-1-hd", voice="nova", input=TEXT)
            streaming = speech.with_streaming_response
            async with streaming.create(
                model="tts-1", voice="onyx", input=TEXT, response_format="opus"
            ) as reply:
                return whole.content, b"".join([piece async for piece in reply.iter_bytes()])

    for body in asyncio.run(ask()):
        audible(body)


def check_events(url: str) -> None:
    with (
        _client(url) as client,
        client.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts", voice="sage", input=TEXT, stream_format="sse"
        ) as reply,
    ):
        lines = [line for line in reply.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    audible(b"".join(base64.b64decode(event["audio"]) for event in events[:-1]))
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] > 0


def check_speed(url: str) -> None:
    with _client(url) as client:
        lengths = [
            seconds(
                client.audio.speech.create(
                    model="tts-1",
                    voice="alloy",
                    input=TEXT,
                    response_format="wav",
                    speed=speed,
                    extra_body={"seed": 3},
                ).content
            )
            for speed in (1.0, 2.0, 0.5)
        ]
    assert abs(lengths[1] - lengths[0] / 2) < 0.03 * lengths[0]
    assert abs(lengths[2] - lengths[0] * 2) < 0.03 * lengths[0] * 2


def check_errors_have_their_classes(url: str) -> None:
    with _client(url) as client:
        try:
            client.audio.speech.create(model="tts-1", voice="nobody", input=TEXT)
        except openai.BadRequestError as error:
            assert error.param == "voice" and error.type == "invalid_request_error"
        else:
            raise AssertionError("an unknown voice was accepted")


def check_models_are_listed(url: str) -> None:
    with _client(url) as client:
        names = [model.id for model in client.models.list()]
        assert names and client.models.retrieve(names[0]).id == names[0]
        assert client.models.retrieve("tts-1").id == "tts-1"
