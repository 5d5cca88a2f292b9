"""Cloned voices on a real server: the documented commands, and a kill in mid-upload."""

from __future__ import annotations

import io
import itertools
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

import engine
from tests.e2e.conftest import Served, run

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SAID = "What the clip says."
PATIENCE_S = 120


def clip(hertz: float = 220.0, seconds: float = 1.0) -> bytes:
    t = np.arange(round(24_000 * seconds)) / 24_000
    out = io.BytesIO()
    soundfile.write(out, 0.3 * np.sin(2 * np.pi * hertz * t), 24_000, format="WAV")
    return out.getvalue()


def upload(url: str, name: str, hertz: float = 220.0) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/audio/voices",
        data={"name": name, "ref_text": SAID},
        files={"audio_sample": ("clip.wav", clip(hertz), "audio/wav")},
        timeout=PATIENCE_S,
    )


def saved(url: str) -> dict[str, Any]:
    listed = httpx.get(f"{url}/v1/audio/voices", timeout=PATIENCE_S).json()["uploaded_voices"]
    return {each["name"]: each for each in listed}


def spoken(url: str, voice: str) -> bytes:
    body = {"input": "Hi.", "voice": voice, "seed": 5, "max_new_tokens": 4,
            "response_format": "pcm", "stream": False}  # fmt: skip
    reply = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=PATIENCE_S)
    assert reply.status_code == 200, reply.text
    return reply.content


@pytest.fixture(scope="module")
def serve(base: engine.ModelFiles) -> Iterator[Callable[[Path], Served]]:
    """Start servers of the tiny Base model on a folder of voices."""
    servers: list[Served] = []

    def start(folder: Path) -> Served:
        model = ("--talker", base.talker, "--codec", base.codec, "--kv-positions", 512)
        device = ("--slots", 2, "--device", "cpu", "--dtype", "f32")
        servers.append(Served(*model, *device, "--voices-dir", folder))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="module")
def server(serve: Callable[[Path], Served], folder: Path) -> Served:
    return serve(folder)


def test_after_a_kill_during_uploads_every_acknowledged_voice_is_there_and_no_half_file(
    serve: Callable[[Path], Served], tmp_path: Path
) -> None:
    server, acknowledged, enough = serve(tmp_path), {}, threading.Event()
    numbers = itertools.count()

    def keep_uploading() -> None:
        while True:
            number = next(numbers)
            try:
                reply = upload(server.url, f"Voice {number}", 100 + number)
            except httpx.HTTPError:
                return
            assert reply.status_code == 200, reply.text
            acknowledged[f"Voice {number}"] = reply.json()["id"]
            if len(acknowledged) >= 12:
                enough.set()

    upload(server.url, "Anna")
    before = spoken(server.url, "Anna")
    uploaders = [threading.Thread(target=keep_uploading) for _ in range(6)]
    for each in uploaders:
        each.start()
    assert enough.wait(PATIENCE_S)
    server.process.kill()
    server.process.wait(PATIENCE_S)
    for each in uploaders:
        each.join(PATIENCE_S)
    successor = serve(tmp_path)
    there = saved(successor.url)
    assert {name: there.get(name, {}).get("id") for name in acknowledged} == acknowledged
    assert len(list(tmp_path.glob("*.safetensors"))) == len(there)
    assert not list(tmp_path.glob(".*.tmp")) and not list(tmp_path.glob("*.broken"))
    after = spoken(successor.url, "anna")
    samples = [np.frombuffer(each, "<i2").astype(int) for each in (before, after)]
    assert len(before) == 4 * 3840 == len(after)
    assert np.abs(samples[0] - samples[1]).max() <= 1


def test_twenty_parallel_uploads_are_all_kept(server: Served) -> None:
    replies: dict[int, int] = {}

    def one(number: int) -> None:
        replies[number] = upload(server.url, f"Voice {number}", 100 + number).status_code

    uploaders = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for each in uploaders:
        each.start()
    for each in uploaders:
        each.join(PATIENCE_S)
    assert replies == dict.fromkeys(range(20), 200)
    assert set(saved(server.url)) == {f"Voice {number}" for number in range(20)}


def commands() -> list[str]:
    """The commands for the shell in the README's part about voices, without `framecast`."""
    part = README.partition("\n## Voices\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    return [block for block in blocks if "curl" in block]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_documented_commands_work(server: Served, tmp_path: Path) -> None:
    (tmp_path / "anna.wav").write_bytes(clip(seconds=2))
    (tmp_path / "yes.wav").write_bytes(clip(330))
    (tmp_path / "freeman.spk").write_bytes(engine.pack_spk(np.linspace(-1, 1, 64)))
    codes = np.arange(4 * 12).reshape(4, 12)
    (tmp_path / "freeman.rvq").write_bytes(engine.pack_rvq(codes, 64))
    assert len(commands()) == 4
    for command in commands():
        script = command.replace("localhost:8000", server.url.removeprefix("http://"))
        assert script != command
        script = script.replace("curl -s", "curl -s --fail-with-body")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if "hello.mp3" in command:
            assert len((tmp_path / "hello.mp3").read_bytes()) > 500
            (tmp_path / "hello.mp3").unlink()
    assert "Anna" in saved(server.url) and "freeman" not in saved(server.url)


def test_the_command_line_changes_what_a_running_server_offers(
    server: Served, folder: Path, base: engine.ModelFiles, tmp_path: Path
) -> None:
    clip_file, whole = tmp_path / "x.wav", tmp_path / "x.safetensors"
    clip_file.write_bytes(clip())
    model = ("--talker", base.talker, "--codec", base.codec, "--device", "cpu")

    def voices(*arguments: object) -> None:
        done = run("voices", *arguments, "--voices-dir", folder)
        assert done.returncode == 0, done.stderr

    voices("add", "Berta", clip_file, "--ref-text", SAID, *model)
    assert spoken(server.url, "Berta")
    voices("export", "Berta", "-o", whole)
    voices("remove", "Berta")
    assert "Berta" not in saved(server.url)
    voices("import", whole, "--name", "Carla")
    assert spoken(server.url, "Carla")
