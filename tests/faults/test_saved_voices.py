"""Faults of cloned voices that only show with a real engine under the server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import engine
from server.app import create_app
from server.settings import Settings
from tests.faults.speaking import balanced
from tests.server.clips import clip

pytestmark = pytest.mark.anyio

SPEECH, VOICES = "/v1/audio/speech", "/v1/audio/voices"
SAID = "What the clip says."
Start = Callable[..., engine.Engine]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextlib.asynccontextmanager
async def server(loaded: engine.Engine, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(lambda: loaded, Settings(voices_dir=folder))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://test", timeout=60
        ) as client:
            yield client


async def say(client: httpx.AsyncClient, **fields: Any) -> bytes:
    body = {"input": "Hello.", "seed": 7, "max_new_tokens": 4, "response_format": "pcm",
            "stream": False, **fields}  # fmt: skip
    reply = await client.post(SPEECH, json=body)
    assert reply.status_code == 200, reply.text
    return reply.content


async def save(client: httpx.AsyncClient, name: str, sound: bytes, **fields: str) -> None:
    reply = await client.post(
        VOICES, data={"name": name, **fields}, files={"audio_sample": ("x.wav", sound)}
    )
    assert reply.status_code == 200, reply.text


def inline(sound: bytes) -> str:
    return base64.b64encode(sound).decode()


def same(left: bytes, right: bytes) -> bool:
    one, other = (np.frombuffer(each, "<i2").astype(int) for each in (left, right))
    return len(one) == len(other) and bool(np.abs(one - other).max() <= 1)


async def test_a_saved_voice_used_twenty_times_is_encoded_once(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    loaded = start(base)
    async with server(loaded, tmp_path) as client:
        await save(client, "Anna", clip(), ref_text=SAID)
        after_saving = (await loaded.stats()).voice_encodes
        for _ in range(20):
            await say(client, voice="Anna")
        assert (await loaded.stats()).voice_encodes == after_saving == 2  # a vector, and codes
        assert balanced(loaded)


async def test_one_inline_clip_in_many_requests_at_once_is_encoded_once(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    loaded = start(base)
    async with server(loaded, tmp_path) as client:
        fields = {"ref_audio": inline(clip()), "ref_text": SAID}
        first, *others = await asyncio.gather(*(say(client, **fields) for _ in range(8)))
        labelled = await say(
            client, ref_audio=f"data:audio/x;base64,{inline(clip())}", ref_text=SAID
        )
        assert all(same(first, other) for other in (*others, labelled))
        assert (await loaded.stats()).voice_encodes == 2
        assert balanced(loaded)


async def test_saved_and_inline_uses_of_a_clip_sound_the_same_cached_or_not(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    fields = {"ref_audio": inline(clip()), "ref_text": SAID}
    loaded = start(base)
    async with server(loaded, tmp_path) as client:
        await save(client, "Anna", clip(), ref_text=SAID)
        await save(client, "Berta", clip(), ref_text=SAID)
        heard = [await say(client, voice="Anna"), await say(client, voice="Berta"),
                 await say(client, **fields), await say(client, **fields)]  # fmt: skip
    async with server(start(base, voice_cache_bytes=0), tmp_path) as client:
        heard += [await say(client, voice="Anna"), await say(client, **fields)]
    assert all(same(heard[0], each) for each in heard[1:])


async def test_deleting_a_voice_forgets_all_that_was_made_of_it(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    loaded = start(base)
    async with server(loaded, tmp_path) as client:
        loaded.warm_up()
        before = (await loaded.stats()).voice_cache_bytes
        await save(client, "Anna", clip(), ref_text=SAID)
        await say(client, voice="Anna")
        assert (await loaded.stats()).voice_cache_bytes > before
        assert (await client.delete(f"{VOICES}/Anna")).status_code == 200
        assert (await loaded.stats()).voice_cache_bytes == before


async def test_parallel_requests_of_two_saved_voices_equal_their_solo_runs(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    async with server(start(base), tmp_path) as client:
        await save(client, "Anna", clip(hertz=150), ref_text=SAID)
        await save(client, "Berta", clip(hertz=400))
        alone = {name: await say(client, voice=name) for name in ("Anna", "Berta")}
        names = ["Anna", "Berta"] * 4
        together = await asyncio.gather(*(say(client, voice=name) for name in names))
    assert not same(alone["Anna"], alone["Berta"])
    assert all(same(alone[name], heard) for name, heard in zip(names, together, strict=True))


async def test_a_transcript_that_cannot_fit_its_clip_is_refused_at_upload_and_told_inline(
    start: Start, base: engine.ModelFiles, tmp_path: Path
) -> None:
    story = "Once upon a time there was a story that took much longer than its clip. " * 3
    async with server(start(base), tmp_path) as client:
        upload = await client.post(
            VOICES,
            data={"name": "Anna", "ref_text": story},
            files={"audio_sample": ("x.wav", clip())},
        )
        fields = {"input": "Hi.", "max_new_tokens": 4, "ref_audio": inline(clip()),
                  "ref_text": story}  # fmt: skip
        spoken = await client.post(SPEECH, json=fields)
    assert upload.status_code == 400 and upload.json()["error"]["param"] == "ref_text"
    assert spoken.status_code == 200 and "ref_text" in spoken.headers["x-framecast-warning"]


@pytest.mark.parametrize("path", [SPEECH, VOICES])
async def test_200_megabytes_are_refused_after_no_more_than_the_limit(
    start: Start, base: engine.ModelFiles, tmp_path: Path, path: str
) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for piece in [b'{"input":"Hi.","ref_audio":"data:;base64,', *[b"A" * 2**20] * 200]:
            read += len(piece)
            yield piece

    headers = {"content-type": "application/json"}
    async with server(start(base), tmp_path) as client:
        declared = headers | {"content-length": "209715200"}
        assert (await client.post(path, content=body(), headers=declared)).status_code == 413
        assert read == 0
        assert (await client.post(path, content=body(), headers=headers)).status_code == 413
        assert read < 17 * 2**20
