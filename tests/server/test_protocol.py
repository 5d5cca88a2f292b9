from __future__ import annotations

import json
import logging
import socket
import time

import httpx
import pytest
from websockets.sync.client import connect

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


def answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and body of a reply that the server ends by closing."""
    reply = b""
    while data := client.recv(65536):
        reply += data
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"Host: y\r\n\r\n", 400),
        (HEAD + b"a b: c\r\n\r\n", 400),
        (HEAD + b"a: b\0c\r\n\r\n", 400),
        (HEAD + b"Content-Length : 5\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("GET /h\u00e4lth HTTP/1.1\r\n\r\n".encode(), 400),
    ],
    ids=[
        "tls", "no-version", "no-host", "two-hosts", "blank-in-a-name", "nul", "blank-before-colon",
        "negative-length", "two-lengths", "huge-length", "coded-body", "not-ascii",
    ],
)  # fmt: skip
def test_what_is_not_http_is_refused_in_the_error_shape(
    live: Live, sent: bytes, status: int
) -> None:
    with connected(live) as client:
        client.sendall(sent)
        got, body = answer(client)
    assert got == status
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error" and set(error) == {
        "message", "type", "param", "code",
    }  # fmt: skip


def test_a_head_that_grows_too_long_is_named_as_such(live: Live) -> None:
    with connected(live) as client:
        client.sendall(HEAD + b"x-filler: " + b"a" * 1_000_000)
        reply = client.recv(65536)
    assert reply.startswith(b"HTTP/1.1 431")


def test_a_body_that_breaks_after_the_answer_ends_the_connection_quietly(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), connected(live) as client:
        client.sendall(
            b"POST /nope HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 404")
        client.sendall(b"zz\r\n")
        assert client.recv(65536) == b""
    # Where asyncio says that a protocol has failed.
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_reply_in_http_1_0_is_whole_and_ends_its_connection(live: Live) -> None:
    body = json.dumps({"input": "Hello.", "response_format": "pcm"}).encode()
    head = f"POST {SPEECH} HTTP/1.0\r\nContent-Type: application/json\r\n"
    with connected(live) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert answer(client) == (200, pcm16(5))


def test_a_client_that_ends_its_side_is_taken_to_have_left(live: Live, fake: FakeEngine) -> None:
    fake.script = Script(frames=3, at_once=1)
    whole = {"input": "Hello.", "response_format": "mp3", "stream": False}
    body = json.dumps(whole).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with connected(live) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert fake.wait_for(1)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(65536) == b""
    assert fake.wait_for(0) and len(fake.cancelled) == 1


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


def test_a_websocket_lives_longer_than_headers_may_take(impatient: None, live: Live) -> None:
    url = live.url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
    with connect(url) as talking:
        talking.send('{"type": "session.config"}')
        assert json.loads(talking.recv())["type"] == "session.configured"
        time.sleep(2 * server.protocol.HEADER_TIMEOUT_S)
        talking.send('{"type": "session.config"}')
        assert json.loads(talking.recv(timeout=20))["type"] == "session.configured"
