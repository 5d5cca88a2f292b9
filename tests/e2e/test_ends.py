"""How a serving process ends: killed, told to stop, or with its device gone."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import torch

import engine
from tests.e2e.conftest import PATIENCE_S, Served, run
from tests.e2e.losing import GOOD_FRAMES

SPEECH = "/v1/audio/speech"
FRAME_BYTES = 1920 * 2

Serve = Callable[..., Served]


@pytest.fixture
def serve(custom_voice: engine.ModelFiles) -> Iterator[Serve]:
    """Serve the tiny model, which speaks until its frame limit; what still runs is killed."""
    running: list[Served] = []

    def begin(*arguments: object, **how: str) -> Served:
        files = ("--talker", custom_voice.talker, "--codec", custom_voice.codec)
        running.append(Served("--slots", 1, *files, *arguments, **how))
        return running[-1]

    yield begin
    for served in running:
        if served.process.poll() is None:
            served.stop(signal.SIGKILL)


def speech(frames: int) -> dict[str, Any]:
    return {"input": "One.", "seed": 1, "response_format": "pcm", "max_new_tokens": frames}


@contextlib.contextmanager
def listening(served: Served, frames: int) -> Iterator[http.client.HTTPResponse]:
    """An open streamed reply whose first sound has arrived."""
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=PATIENCE_S)
    headers = {"content-type": "application/json"}
    connection.request("POST", SPEECH, json.dumps(speech(frames)), headers)
    reply = connection.getresponse()
    assert reply.status == 200
    assert len(reply.read(100)) == 100
    with contextlib.closing(connection):
        yield reply


def is_cut(reply: http.client.HTTPResponse) -> bool:
    """Read to the end; whether that is no clean one."""
    try:
        reply.read()
    except (http.client.IncompleteRead, ConnectionResetError):
        return True
    return False


def test_a_killed_server_cuts_its_streams_and_its_successor_serves_on_the_same_port(serve: Serve):
    served = serve()
    with listening(served, 2000) as reply:
        assert served.stop(signal.SIGKILL) == -signal.SIGKILL
        assert is_cut(reply)
    again = serve("--port", served.url.rpartition(":")[2])
    assert again.url == served.url
    answer = httpx.post(again.url + SPEECH, json=speech(4), timeout=PATIENCE_S)
    assert len(answer.content) == 4 * FRAME_BYTES
    assert again.stop() == 0


def test_terminate_lets_a_stream_finish_and_does_not_wait_for_idle_connections(serve: Serve):
    served = serve("--drain-timeout-s", 60)
    with httpx.Client(base_url=served.url) as idle, listening(served, 200) as reply:
        assert idle.get("/health").status_code == 200  # and the connection stays open
        served.process.send_signal(signal.SIGTERM)
        assert len(reply.read()) + 100 == 200 * FRAME_BYTES
        assert served.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in served.text


def test_terminate_cuts_what_is_not_over_in_time_and_refuses_what_waits(serve: Serve):
    served = serve("--drain-timeout-s", 1)
    replies: list[httpx.Response] = []

    def ask() -> None:
        replies.append(httpx.post(served.url + SPEECH, json=speech(4), timeout=PATIENCE_S))

    with listening(served, 2000) as reply:
        waiting = threading.Thread(target=ask)
        waiting.start()
        while "framecast_queue_depth 1.0" not in httpx.get(f"{served.url}/metrics").text:
            assert waiting.is_alive()
        served.process.send_signal(signal.SIGTERM)
        assert is_cut(reply)
        waiting.join(PATIENCE_S)
    assert replies[0].status_code == 503
    assert replies[0].json()["error"]["code"] == "unavailable"
    assert replies[0].headers["retry-after"].isdecimal()
    assert served.process.wait(PATIENCE_S) == 0


def test_a_lost_device_cuts_the_stream_and_ends_the_process_with_exit_code_1(serve: Serve):
    served = serve(module="tests.e2e.losing")
    with listening(served, GOOD_FRAMES + 20) as reply:
        assert is_cut(reply)
    assert served.process.wait(PATIENCE_S) == 1
    assert "the worker is dead" in served.text


def test_a_device_that_is_not_there_ends_the_start_and_nothing_falls_back_to_another():
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    done = run("serve", "--port", 0, "--device", missing)
    assert done.returncode == 2
    assert f"device '{missing}' is not available".encode() in done.stderr
