"""The whole server against the official package: a request over HTTP, the sound in the reply."""

from __future__ import annotations

import io
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

import engine
from server.settings import Settings
from tests.checkpoints import make_checkpoint
from tests.parity.adapter import recorded_codes
from tests.parity.cases import BY_NAME, Parity, Say
from tests.server.conftest import Live

# Half a step of 16 bits on top of what floats may differ by.
TOLERANCE = 1e-4 + 0.5 / 32767
NAMES = ("custom_large_uses_instructions", "custom_small_drops_instructions", "voice_design")


@dataclass(frozen=True)
class Served:
    parity: Parity
    stored: dict[str, np.ndarray]
    client: httpx.Client


@pytest.fixture(scope="module", params=NAMES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    found = BY_NAME[request.param]
    with np.load(found.path) as file:
        stored = dict(file)
    parity = found.seeded(int(stored["seed"]))
    root: Path = tmp_path_factory.mktemp(parity.name)
    checkpoint = make_checkpoint(
        parity.case, root / "checkpoint", dtype=parity.dtype, shards=parity.shards
    )
    files = engine.convert_checkpoint(checkpoint, root / "gguf", "f32")
    config = engine.EngineConfig(device="cpu", dtype="f32", slots=2, nan_fill=True)
    with (
        Live(engine.load(files, config), Settings()) as live,
        httpx.Client(base_url=live.url, timeout=60) as client,
    ):
        while client.get("/ready").status_code != 200:
            time.sleep(0.05)  # the warm-up makes frames too, which are not the ones to record
        yield Served(parity, stored, client)


def body(say: Say, **fields: object) -> dict[str, object]:
    request = {
        "input": say.text,
        "voice": say.speaker,
        "language": say.language,
        "instructions": say.instructions,
        "non_streaming_mode": say.non_streaming,
        "temperature": 0,
        "repetition_penalty": say.repetition_penalty,
        "max_new_tokens": say.frames,
    }
    return {**request, **fields}


def samples(reply: httpx.Response) -> np.ndarray:
    assert reply.status_code == 200, reply.text
    content = reply.content
    if reply.headers["content-type"] == "audio/wav":
        assert content[:4] == b"RIFF"
        with wave.open(io.BytesIO(content)) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        content = content[44:]
    return np.frombuffer(content, "<i2").astype(np.float32) / 32767


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "buffered"])
@pytest.mark.parametrize("audio_format", ["wav", "pcm"])
def test_the_reply_holds_the_official_codes_and_sound(
    served: Served, audio_format: str, stream: bool
) -> None:
    say = served.parity.says[0]
    with recorded_codes() as frames:
        reply = served.client.post(
            "/v1/audio/speech", json=body(say, response_format=audio_format, stream=stream)
        )
    assert frames == served.stored["0.codes"].tolist()
    sound = samples(reply)
    assert len(sound) == len(frames) * 1920
    assert ("content-length" in reply.headers) or stream
    for part, place in (("head", slice(None, 2 * 1920)), ("tail", slice(-10 * 1920, None))):
        assert np.abs(sound[place] - served.stored[f"0.audio_{part}"]).max() <= TOLERANCE
    assert ("x-framecast-warning" in reply.headers) == (
        say.instructions is not None and served.parity.case.size == "0b6"
    )
