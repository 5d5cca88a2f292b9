"""What a listener on a real socket gets, and what is let go of when it leaves."""

import http.client
import json
import logging
import socket
import threading
import time

import httpx
import pytest

import engine
from server.audio.sound import SoundMaker
from server.settings import Settings
from tests.fakes import SAMPLES_PER_FRAME, FakeEngine, Script, pcm16
from tests.server.conftest import SPEECH, Live
from tests.waiting import eventually

FRAME_BYTES = 2 * SAMPLES_PER_FRAME
WAV = {"input": "Hello there.", "response_format": "wav"}
PCM = {"input": "Hello there.", "response_format": "pcm"}
MP3 = {"input": "Hello there."}
WHOLE = {**MP3, "stream": False}


def post(live: Live, body: dict) -> socket.socket:
    """A client that has sent its request and reads by itself."""
    host, port = live.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=10)
    payload = json.dumps(body).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return client


def read_until(client: socket.socket, marker: bytes) -> bytes:
    received = b""
    while marker not in received:
        chunk = client.recv(65_536)
        assert chunk, received
        received += chunk
    return received


def test_a_stream_is_sent_while_it_is_made_behind_one_open_header(fake, http):
    fake.script = Script(frames=4, at_once=1)
    with http.stream("POST", SPEECH, json=WAV) as reply:
        assert "content-length" not in reply.headers
        assert reply.headers["x-framecast-seed"] == "1234"
        assert "x-framecast-finish-reason" not in reply.headers
        chunks = reply.iter_raw()
        first = next(chunks)
        assert first[:4] == b"RIFF" and first[4:8] == first[40:44] == b"\xff\xff\xff\xff"
        assert len(first) == 44 + FRAME_BYTES
        fake.advance(10)
        assert first[44:] + b"".join(chunks) == pcm16(4)
    assert fake.wait_for(active=0)


def test_streamed_and_buffered_pcm_are_the_same_bytes(fake, http):
    fake.script = Script(frames=3, at_once=1)
    with http.stream("POST", SPEECH, json=PCM) as reply:
        chunks = reply.iter_raw()
        streamed = next(chunks)
        fake.advance(10)
        streamed += b"".join(chunks)
    fake.script = Script(frames=3)
    buffered = http.post(SPEECH, json={**PCM, "stream": False})
    assert streamed == buffered.content == pcm16(3)


def test_every_write_holds_whole_samples(fake, live):
    fake.script = Script(frames=3, at_once=1)
    client = post(live, PCM)
    received = read_until(client, b"\r\n\r\n")
    while len(received) < FRAME_BYTES:
        received += client.recv(65_536)
    fake.advance(10)
    while not received.endswith(b"0\r\n\r\n"):
        received += client.recv(65_536)
    client.close()
    body, sizes = received.partition(b"\r\n\r\n")[2], []
    while body:
        size, _, rest = body.partition(b"\r\n")
        sizes.append(int(size, 16))
        body = rest[sizes[-1] + 2 :]
    assert len(sizes) >= 3 and sizes[-1] == 0
    assert all(size % 2 == 0 for size in sizes) and sum(sizes) == 3 * FRAME_BYTES


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_every_format_has_sent_something_while_the_second_frame_is_awaited(fake, http, name):
    fake.script = Script(frames=12, at_once=1)
    with http.stream("POST", SPEECH, json={**MP3, "response_format": name}) as reply:
        assert "content-length" not in reply.headers
        chunks = reply.iter_raw()
        assert next(chunks)
        assert fake.frames_total == 1
        fake.advance(20)
        assert len(list(chunks)) >= 1


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "ulaw"])
def test_streamed_and_buffered_replies_of_a_codec_are_the_same_bytes(fake, http, name):
    fake.script = Script(frames=6, at_once=1)
    with http.stream("POST", SPEECH, json={**MP3, "response_format": name}) as reply:
        chunks = reply.iter_raw()
        streamed = next(chunks)
        fake.advance(20)
        streamed += b"".join(chunks)
    fake.script = Script(frames=6)
    whole = http.post(SPEECH, json={**WHOLE, "response_format": name})
    assert "x-framecast-finish-reason" in whole.headers
    assert whole.content == streamed


@pytest.mark.parametrize("name", ["mp3", "opus", "flac"])
def test_a_coded_reply_that_fails_halfway_is_cut_too(fake, http, name):
    fake.script = Script(frames=6, at_once=3, fail=engine.GenerationFailed("NaN"))
    with http.stream("POST", SPEECH, json={**MP3, "response_format": name}) as reply:
        chunks = reply.iter_raw()
        assert next(chunks)
        fake.advance(20)
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            list(chunks)


def test_a_failure_before_the_first_byte_of_a_container_is_still_a_json_error(fake, http):
    # Slowing speech down takes more than one frame before anything comes out.
    fake.script = Script(frames=1, at_once=1, fail=engine.GenerationFailed("NaN"))
    ended = threading.Thread(target=lambda: fake.wait_for(active=1) and fake.advance(5))
    ended.start()
    reply = http.post(SPEECH, json={**PCM, "speed": 0.25})
    ended.join()
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "generation_failed")


@pytest.mark.parametrize("error", [engine.GenerationFailed("NaN"), engine.EngineUnavailable("x")])
def test_a_failure_after_the_first_sound_cuts_the_body(fake, http, error):
    fake.script = Script(frames=2, at_once=1, fail=error)
    with http.stream("POST", SPEECH, json=WAV) as reply:
        assert reply.status_code == 200
        chunks = reply.iter_raw()
        assert next(chunks).startswith(b"RIFF")
        fake.advance(10)
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            list(chunks)


def test_a_cut_body_is_incomplete_for_the_standard_library_too(fake, live):
    fake.script = Script(frames=2, at_once=1, fail=engine.GenerationFailed("NaN"))
    connection = http.client.HTTPConnection(live.url.removeprefix("http://"), timeout=10)
    connection.request("POST", SPEECH, json.dumps(PCM), {"content-type": "application/json"})
    reply = connection.getresponse()
    assert reply.read(100)
    fake.advance(10)
    with pytest.raises(http.client.IncompleteRead):
        reply.read()
    connection.close()


@pytest.mark.parametrize(
    ("body", "at_once"),
    [
        pytest.param(PCM, 0, id="streamed, before the first sound"),
        pytest.param(WHOLE, 0, id="buffered, before the first sound"),
        pytest.param(WHOLE, 2, id="buffered, halfway"),
        pytest.param(MP3, 2, id="streamed mp3, halfway"),
        pytest.param({**MP3, "speed": 0.5}, 2, id="streamed slow mp3, halfway"),
        pytest.param({**PCM, "stream": False}, 2, id="buffered pcm, halfway"),
    ],
)
def test_a_client_that_leaves_before_its_reply_frees_its_slot(fake, live, body, at_once):
    fake.script = Script(frames=50, at_once=at_once)
    client = post(live, body)
    assert fake.wait_for(active=1)
    client.close()
    assert fake.wait_for(active=0)
    assert len(fake.cancelled) == 1


def test_a_client_that_leaves_during_its_stream_frees_its_slot(fake, live):
    fake.script = Script(frames=50, at_once=1)
    client = post(live, WAV)
    read_until(client, b"RIFF")
    client.close()
    assert fake.wait_for(active=0)
    assert len(fake.cancelled) == 1


def test_the_server_is_well_after_clients_that_left(fake, live, http):
    fake.script = Script(frames=50, at_once=1)
    clients = [post(live, PCM) for _ in range(10)]
    assert fake.wait_for(active=10)
    for client in clients:
        client.close()
    assert fake.wait_for(active=0)
    fake.script = Script(frames=2)
    assert http.post(SPEECH, json=PCM).content == pcm16(2)


def test_a_client_that_stops_reading_is_given_up(fake: FakeEngine, caplog):
    fake.script = Script(frames=100_000, at_once=1)
    settings = Settings(send_timeout_s=0.05, drain_timeout_s=1)
    with caplog.at_level(logging.INFO), Live(fake, settings) as live:
        client = post(live, PCM)
        read_until(client, b"200 OK")
        for _ in range(500):  # more than the buffers of the kernel hold
            fake.advance(50)
            if fake.wait_for(active=0, timeout_s=0.01):
                break
        assert fake.active == 0
        client.close()
    fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert "slow_reader" in [each.get("reason") for each in fields]


def test_parallel_listeners_each_get_their_own_sound(fake, live):
    fake.script = Script(frames=6, at_once=1)
    replies: list[bytes] = []

    def listen() -> None:
        replies.append(httpx.post(live.url + SPEECH, json=PCM, timeout=10).content)

    threads = [threading.Thread(target=listen) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert fake.wait_for(active=8)
    for _ in range(6):
        fake.advance()
    for thread in threads:
        thread.join(timeout=10)
    assert replies == [pcm16(6)] * 8


def test_health_answers_while_replies_are_open(fake, live, http):
    fake.script = Script(frames=50, at_once=1)
    client = post(live, WHOLE)
    assert fake.wait_for(active=1)
    assert http.get("/health").status_code == 200
    client.close()
    assert fake.wait_for(active=0)


def log_of(caplog) -> dict:
    """The fields of the line about the one request for speech."""
    [line] = [r for r in caplog.records if r.name == "server.requests"]
    return line.fields


def test_a_streamed_reply_tells_what_its_listener_heard(fake, live, http, caplog):
    fake.script = Script(frames=3, at_once=1)
    with caplog.at_level(logging.INFO, "server.requests"):
        with http.stream("POST", SPEECH, json=PCM) as reply:
            chunks = reply.iter_raw()
            next(chunks)
            time.sleep(0.1)  # longer than the 80 ms that the listener has
            fake.advance(10)
            list(chunks)
        metrics = http.get("/metrics").text
    underruns = log_of(caplog)["underruns"]
    assert underruns >= 1
    assert f"framecast_listener_underruns_total {underruns}.0" in metrics
    assert "framecast_listener_gap_seconds_count 1.0" in metrics


def test_a_listener_who_leaves_is_counted_with_what_it_got(fake, live, http, caplog):
    fake.script = Script(frames=50, at_once=2)
    with caplog.at_level(logging.INFO, "server.requests"):
        client = post(live, PCM)
        read_until(client, b"200 OK")
        client.close()
        assert fake.wait_for(active=0)
        assert eventually(lambda: any(r.name == "server.requests" for r in caplog.records))
    fields = log_of(caplog)
    assert (fields["status"], fields["reason"], fields["frames"]) == (200, "cancelled", 2)
    assert "framecast_listener_gap_seconds_count 1.0" in http.get("/metrics").text


@pytest.mark.parametrize("body", [WHOLE, {**PCM, "stream": False}])
def test_a_reply_sent_whole_has_no_listener(fake, http, caplog, body):
    with caplog.at_level(logging.INFO, "server.requests"):
        http.post(SPEECH, json=body)
        metrics = http.get("/metrics").text
    assert "underruns" not in log_of(caplog)
    assert "framecast_listener_gap_seconds_count 0.0" in metrics


@pytest.mark.parametrize("name", ["mp3", "opus", "flac"])
def test_encoders_of_listeners_who_left_are_let_go_of(fake, live, monkeypatch, name):
    made: list[SoundMaker] = []
    opened = SoundMaker.__init__

    def remember(self: SoundMaker, *arguments: object, **options: object) -> None:
        made.append(self)
        opened(self, *arguments, **options)

    monkeypatch.setattr(SoundMaker, "__init__", remember)
    fake.script = Script(frames=50, at_once=2)
    clients = [post(live, {**MP3, "response_format": name}) for _ in range(20)]
    for client in clients:
        read_until(client, b"200 OK")
        client.close()
    assert fake.wait_for(active=0)
    assert len(made) == 20
    assert eventually(lambda: all(maker.closed for maker in made))
