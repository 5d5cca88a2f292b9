"""Bodies that trickle in, stop, or say two lengths, over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

import server.framing
from server.settings import Settings
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import SPEECH, Live

BODY = json.dumps({"input": "Hello.", "response_format": "pcm", "stream": False}).encode()
HEAD = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
WITH_LENGTH = f"{HEAD}Content-Length: {len(BODY)}\r\n\r\n".encode()


@pytest.fixture
def hasty(fake: FakeEngine) -> Iterator[Live]:
    with Live(fake, Settings(drain_timeout_s=1, body_timeout_s=0.3)) as running:
        yield running


@contextlib.contextmanager
def connected(live: Live) -> Iterator[socket.socket]:
    with socket.create_connection(live.socket.getsockname()[:2], timeout=20) as client:
        yield client


def read(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """A reply that the server ends by closing: status, headers and body."""
    reply = b""
    while data := client.recv(65536):
        reply += data
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}, body


def error(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)["error"]
    return found


@pytest.mark.parametrize("sent", [b"", BODY[:5]], ids=["nothing", "some"])
def test_a_body_that_stops_gets_a_408_and_its_connection_is_closed(
    hasty: Live, fake: FakeEngine, sent: bytes
) -> None:
    with connected(hasty) as client:
        client.sendall(WITH_LENGTH + sent)
        status, headers, body = read(client)
    assert (status, headers["connection"]) == (408, "close")
    assert error(body)["code"] == "request_timeout"
    assert "x-request-id" in headers
    assert fake.requests == []


def test_a_body_that_trickles_gets_a_408_however_steady_it_is(hasty: Live) -> None:
    with connected(hasty) as client:
        client.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        client.settimeout(0.02)
        while True:
            client.sendall(b"1\r\n{\r\n")
            with contextlib.suppress(TimeoutError):
                assert client.recv(12) == b"HTTP/1.1 408"
                break


def test_a_large_body_gets_more_time_as_it_arrives(
    hasty: Live, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.framing, "BYTES_PER_S", 1)
    with connected(hasty) as client:
        client.sendall(WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        client.sendall(BODY[:20])
        time.sleep(2 * 0.3)
        client.sendall(BODY[20:])
        status, _, body = read(client)
    assert (status, body) == (200, pcm16(5))


def test_a_reply_may_take_longer_than_a_body(hasty: Live, fake: FakeEngine) -> None:
    fake.script = Script(frames=3, at_once=1)
    with connected(hasty) as client:
        client.sendall(WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + BODY)
        assert fake.wait_for(1)
        time.sleep(2 * 0.3)
        fake.advance(3)
        status, _, body = read(client)
    assert (status, body) == (200, pcm16(3))


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    live: Live, fake: FakeEngine
) -> None:
    smuggled = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    head = f"{HEAD}Content-Length: {len(smuggled)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with connected(live) as client:
        client.sendall(head + smuggled)
        status, headers, body = read(client)
    assert (status, headers["connection"]) == (400, "close")
    assert "Transfer-Encoding" in error(body)["message"]
    assert body.count(b"HTTP/1.1") == 0


def test_who_asks_before_sending_a_body_hears_a_refusal_instead_of_go_on(live: Live) -> None:
    head = f"{HEAD}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 99999999\r\n\r\n"
    with connected(live) as client:
        client.sendall(head.encode())
        status, _, body = read(client)
    assert (status, error(body)["code"]) == (413, "payload_too_large")


def test_who_asks_before_sending_a_body_is_told_to_go_on(live: Live) -> None:
    with connected(live) as client:
        asks = b"\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        client.sendall(WITH_LENGTH.replace(b"\r\n\r\n", asks))
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(BODY)
        status, _, body = read(client)
    assert (status, body) == (200, pcm16(5))


def test_requests_sent_at_once_are_answered_in_order(live: Live, fake: FakeEngine) -> None:
    last = WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with connected(live) as client:
        client.sendall(WITH_LENGTH + BODY + b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n" + last + BODY)
        _, _, body = read(client)
    sound = pcm16(5)
    assert body.startswith(sound) and body.endswith(sound)
    between = body.removeprefix(sound).removesuffix(sound)
    assert between.count(b"HTTP/1.1 200 OK") == 2 and b'{"status":"ready"}' in between
