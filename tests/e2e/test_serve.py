from __future__ import annotations

import io
import re
import signal

import av
import httpx
import numpy as np
import openai
import pytest

from tests.e2e.conftest import Served, run


def decoded(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
    return np.concatenate(frames)


def test_the_readme_request_answers_with_an_audible_mp3(bundled: Served):
    body = {"model": "tts-1", "input": "Hello there.", "voice": "alloy"}
    reply = httpx.post(f"{bundled.url}/v1/audio/speech", json=body, timeout=120)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "audio/mpeg"
    sound = decoded(reply.content)
    assert len(sound) > 0.3 * 24000
    assert np.abs(sound).max() > 0.02


def test_the_openai_package_works_unmodified(bundled: Served, tmp_path):
    client = openai.OpenAI(base_url=f"{bundled.url}/v1", api_key="none", timeout=120)
    whole = client.audio.speech.create(
        model="tts-1", voice="nova", input="One.", extra_body={"seed": 4}
    )
    assert len(decoded(whole.read())) > 0
    streamed = client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts",
        voice="coral",
        input="One.",
        instructions="Cheerfully.",
        response_format="pcm",
        extra_body={"seed": 4},
    )
    with streamed as reply:
        reply.stream_to_file(tmp_path / "one.pcm")
    assert (tmp_path / "one.pcm").stat().st_size % 3840 == 0
    assert {model.id for model in client.models.list()}
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="tts-1", voice="nobody", input="One.")
    assert caught.value.param == "voice"


def test_streamed_and_buffered_replies_hold_the_same_samples(bundled: Served):
    body = {"input": "The same words.", "voice": "alloy", "seed": 11, "response_format": "pcm"}
    replies = [
        httpx.post(f"{bundled.url}/v1/audio/speech", json={**body, "stream": stream}, timeout=120)
        for stream in (True, False)
    ]
    assert [reply.status_code for reply in replies] == [200, 200]
    first, second = (np.frombuffer(reply.content, "<i2").astype(int) for reply in replies)
    assert len(first) == len(second)
    # Flushes differ, and F32's rounding with them: at most 0.002 of full scale was measured.
    assert np.abs(first - second).max() <= 64


def test_a_long_text_is_spoken_in_parts_as_one_reply(bundled: Served):
    text = " ".join(f"Sentence number {number} of a long text." for number in range(12))
    body = {"input": text, "seed": 3, "response_format": "wav", "stream": False,
            "max_new_tokens": 10}  # fmt: skip
    reply = httpx.post(f"{bundled.url}/v1/audio/speech", json=body, timeout=120)
    assert reply.status_code == 200
    frames = int(reply.headers["x-framecast-frames"])
    assert frames > 10
    assert len(reply.content) == 44 + frames * 3840


def test_terminate_ends_with_exit_code_0():
    served = Served("--slots", 1)
    assert served.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "LFS"),
        (b"<!DOCTYPE html><html></html>" + b" " * 64, "HTML"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 24, "GGUF|header|tensors|keys|metadata"),
    ],
    ids=["empty", "lfs-pointer", "html", "crafted"],
)
def test_a_bad_model_file_ends_the_start_with_exit_code_2(tmp_path, content, message):
    bad = tmp_path / "talker.gguf"
    bad.write_bytes(content)
    done = run("serve", "--port", 0, "--talker", bad, "--codec", bad)
    assert done.returncode == 2
    text = done.stderr.decode()
    assert "talker.gguf" in text
    assert "Traceback" not in text
    assert re.search(message, text)


@pytest.mark.parametrize("cut", [0.1, 0.5, -1], ids=["10%", "50%", "last-byte"])
def test_a_truncated_model_file_ends_the_start_with_exit_code_2(tmp_path, custom_voice, cut):
    whole = custom_voice.talker.read_bytes()
    size = len(whole) - 1 if cut == -1 else int(len(whole) * cut)
    short = tmp_path / "talker.gguf"
    short.write_bytes(whole[:size])
    done = run("say", "Hello.", "-o", tmp_path / "x.wav", "--talker", short, "--codec",
               custom_voice.codec)  # fmt: skip
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"truncated" in done.stderr
    assert not (tmp_path / "x.wav").exists()
