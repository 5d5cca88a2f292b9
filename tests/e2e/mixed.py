"""A crowd of clients: requests that differ in everything a body can say, and ways to send them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

SPEECH = "/v1/audio/speech"
# `uncompressed` bodies can be compared byte by byte with those of another run.
FORMATS = ("pcm", "wav", "mp3", "flac", "opus", "aac", "ulaw", "alaw")
SHAPING = ("speed", "sample_rate", "loudness_lufs", "stream_format")
TEXTS = (
    "One.",
    "Hello there, how are you today?",
    "The quick brown fox jumps over the lazy dog; it always does.",
    "It is 3.5 miles to Dr. Lee's house. Nobody walks there.",
    "Grüße aus Köln!",
    "你好，世界。今天天气很好。",
)


def mixed(number: int, frames: tuple[int, int], voices: list[str]) -> dict[str, Any]:
    """Body `number` of an endless list that is the same every time.

    Args:
        frames: least and most `max_new_tokens`.
        voices: names to choose from.
    """
    draw = random.Random(number)
    body: dict[str, Any] = {
        "input": draw.choice(TEXTS),
        "voice": voices[number % len(voices)],
        "response_format": FORMATS[number % len(FORMATS)],
        "seed": number,
        "max_new_tokens": draw.randint(*frames),
    }
    if draw.random() < 0.3:
        body["temperature"] = draw.choice([0.0, 0.5, 1.2])
    if draw.random() < 0.7:
        body["stream"] = draw.random() < 0.7
    if draw.random() < 0.3:
        body["speed"] = draw.choice([0.5, 0.9, 1.3, 2.0])
    if draw.random() < 0.2:
        body["sample_rate"] = draw.choice([8_000, 16_000, 44_100, 48_000])
    if draw.random() < 0.1:
        body["loudness_lufs"] = -20
    if draw.random() < 0.2:
        body["stream_format"] = "sse"
    return body


def whole(number: int, frames: tuple[int, int], voices: list[str]) -> dict[str, Any]:
    """The same request as uncompressed samples, sent as they are made."""
    body = mixed(number, frames, voices)
    plain = {name: value for name, value in body.items() if name not in SHAPING}
    return {**plain, "response_format": "pcm", "stream": True}


def client(url: str, timeout: float = 120, key: str = "") -> httpx.AsyncClient:
    """A client that never waits for a connection of its own; `key` is its API key."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"x-api-key": key} if key else None
    return httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, headers=headers)


async def fetch(http: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
    return await http.post(SPEECH, json=body)


async def leave(http: httpx.AsyncClient, body: dict[str, Any], after_bytes: int) -> int:
    """Read a reply until it is longer than `after_bytes`, then leave; returns what was read.

    A buffered reply is left before its head has come.
    """
    read = 0
    if not body.get("stream", False):
        with_limit = asyncio.wait_for(fetch(http, body), 0.01 + after_bytes / 1e6)
        try:
            return len((await with_limit).content)
        except TimeoutError:
            return 0
    async with http.stream("POST", SPEECH, json=body) as reply:
        async for chunk in reply.aiter_raw():
            read += len(chunk)
            if read > after_bytes:
                break
    return read


@dataclass(frozen=True, slots=True)
class Tally:
    """How a crowd was answered. `odd` describes whatever was neither sound nor a proper 429."""

    spoken: int
    refused: int
    odd: tuple[str, ...]


async def crowd(
    url: str,
    body: Callable[[int], dict[str, Any]],
    at_once: int,
    until: Callable[[int], bool],
    key: str = "",
) -> Tally:
    """`at_once` clients that ask again as soon as they were answered, until `until(asked)`."""
    spoken, refused, asked, odd = 0, 0, 0, list[str]()

    async def one(http: httpx.AsyncClient) -> None:
        nonlocal spoken, refused, asked
        while not until(asked):
            asked += 1
            reply = await fetch(http, body(asked))
            if reply.status_code == 200 and reply.content:
                spoken += 1
            elif problem := refusal_problem(reply):
                odd.append(problem)
            else:
                refused += 1
                await asyncio.sleep(0.05)

    async with client(url, key=key) as http:
        await asyncio.gather(*(one(http) for _ in range(at_once)))
    return Tally(spoken, refused, tuple(odd))


def refusal_problem(reply: httpx.Response) -> str:
    """What is wrong with a refusal that should be a 429 with a whole `Retry-After`; or empty."""
    if reply.status_code != 429:
        return f"status {reply.status_code}: {reply.text[:200]}"
    if not reply.headers.get("retry-after", "").isdecimal():
        return f"Retry-After is {reply.headers.get('retry-after')!r}"
    error = reply.json().get("error", {})
    return "" if error.get("code") == "rate_limit_exceeded" else f"the body is {reply.text[:200]}"
