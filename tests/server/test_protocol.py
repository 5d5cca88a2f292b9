from __future__ import annotations

import socket
import time

import httpx
import pytest

import server.protocol
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import SPEECH, Live

HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"


def connected(live: Live) -> socket.socket:
    return socket.create_connection(live.socket.getsockname()[:2], timeout=20)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.protocol, "HEADER_TIMEOUT_S", 0.3)


@pytest.mark.parametrize("sent", [b"", HEAD[:9], HEAD], ids=["nothing", "half-a-line", "no-end"])
def test_a_connection_that_never_finishes_a_request_is_closed(
    impatient: None, live: Live, sent: bytes
) -> None:
    with connected(live) as client:
        client.sendall(sent)
        assert client.recv(1) == b""


def test_a_second_request_that_is_never_finished_is_given_up_too(
    impatient: None, live: Live
) -> None:
    with connected(live) as client:
        client.sendall(HEAD + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(HEAD)
        while client.recv(65536):
            pass


def test_headers_without_end_are_refused_by_size(live: Live) -> None:
    with connected(live) as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        flood = b"x-filler: " + b"a" * 60_000 + b"\r\n"
        with pytest.raises(OSError):
            for _ in range(200):
                client.sendall(flood)
                client.settimeout(0.05)
                try:
                    if client.recv(65536).startswith(b"HTTP/1.1 400"):
                        raise ConnectionResetError("refused, as it should be")
                except TimeoutError:
                    continue


def test_a_reply_that_takes_longer_than_headers_may_is_not_cut(
    impatient: None, live: Live, fake: FakeEngine, http: httpx.Client
) -> None:
    fake.script = Script(frames=3, at_once=1)
    body = {"input": "Hello.", "response_format": "pcm"}
    with http.stream("POST", SPEECH, json=body) as reply:
        pieces = reply.iter_raw()
        sound = next(pieces)
        time.sleep(2 * server.protocol.HEADER_TIMEOUT_S)
        fake.advance(3)
        sound += b"".join(pieces)
    assert sound == pcm16(3)
