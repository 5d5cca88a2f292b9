"""vLLM-Omni's dialect over a real socket, with a fake engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import engine
from server.live import vllm_omni
from server.settings import Settings
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import Live
from tests.waiting import eventually

PATIENCE_S = 20
CONFIG = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
Dial = Callable[..., AbstractContextManager["Client"]]


class Client:
    """Sends and reads whole messages; sound is collected aside."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.sound = b""

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def config(self, **fields: Any) -> dict[str, Any]:
        self.socket.send(json.dumps(CONFIG | fields))
        return self.read()

    def frame(self) -> str | bytes:
        return self.socket.recv(PATIENCE_S)

    def read(self) -> dict[str, Any]:
        """The next JSON message."""
        while isinstance(frame := self.frame(), bytes):
            self.sound += frame
        message: dict[str, Any] = json.loads(frame)
        return message

    def until(self, kind: str) -> list[dict[str, Any]]:
        """All messages up to one of a kind."""
        messages = [self.read()]
        while messages[-1]["type"] != kind:
            messages.append(self.read())
        return messages

    def closed(self) -> tuple[int, str]:
        """The close code and reason, after whatever comes before it."""
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                self.frame()
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, caught.value.rcvd.reason

    def cut(self) -> bool:
        """Whether the connection ends before the utterance does."""
        try:
            self.until("session.done")
        except ConnectionClosed:
            return True
        return False


@contextmanager
def dialled(url: str, **options: Any) -> Iterator[Client]:
    address = url.replace("http", "ws") + "/v1/audio/speech/stream"
    with connect(address, **options) as socket:
        yield Client(socket)


@pytest.fixture
def dial(serve: Callable[..., Live]) -> Dial:
    return lambda **options: dialled(serve().url, **options)


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


# Speaking


def test_one_utterance_is_fed_as_text_comes_and_ends_once(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=4)
    with dial() as client:
        assert client.config(voice="Vivian", seed=3) == {"type": "session.configured"}
        client.send("input.text", text="Hello")
        start = client.read()
        assert start == {
            "type": "audio.start",
            "utterance_index": 0,
            "sentence_index": 0,
            "sentence_text": "Hello",
            "format": "pcm",
            "sample_rate": 24_000,
            "channels": 1,
        }
        client.send("input.text", text=" there.")
        client.send("input.done")
        done, end = client.until("session.done")
        assert client.sound == pcm16(4)
        assert done == {
            "type": "audio.done",
            "utterance_index": 0,
            "sentence_index": 0,
            "total_bytes": len(client.sound),
            "error": False,
            "finish_reason": "stop",
        }
        assert end == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}
    assert [live.text for live in fake.lives] == ["Hello there."]
    assert fake.requests[0].voice == "Vivian"
    assert fake.requests[0].sampling.seed == 3


def test_sentences_are_segments_of_their_own_when_asked(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=2)
    with dial() as client:
        client.config(split_granularity="sentence")
        for piece in ("Dr. Lee paid 3", ".5. And", " then?"):
            client.send("input.text", text=piece)
        client.send("input.done")
        messages = client.until("session.done")
        starts = [each for each in messages if each["type"] == "audio.start"]
        assert [each["sentence_text"] for each in starts] == ["Dr. Lee paid 3.5.", "And then?"]
        assert [each["sentence_index"] for each in starts] == [0, 1]
        assert messages[-1]["total_sentences"] == 2
        assert client.sound == pcm16(2) * 2


def test_without_stream_audio_each_segment_is_one_whole_file(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=3)
    with dial() as client:
        client.config(stream_audio=False, response_format=None, split_granularity="clause")
        client.send("input.text", text="One, two.")
        client.send("input.done")
        frames = [client.frame() for _ in range(7)]
        files = [frame for frame in frames if isinstance(frame, bytes)]
        assert len(files) == 2
        for file in files:
            assert file[:4] == b"RIFF" and file.endswith(pcm16(3))


def test_a_session_says_several_utterances_and_may_change_its_voice_between(
    dial: Dial, fake: FakeEngine
) -> None:
    with dial() as client:
        client.config(voice="ryan")
        client.send("input.text", text="One.")
        client.send("input.done")
        assert client.config(voice="aiden")["type"] in ("audio.start", "session.configured")
        client.send("input.text", text="Two.")
        client.send("input.done")
        first = client.until("session.done")
        assert first[-1]["utterance_index"] == 0
        assert client.until("session.done")[-1]["utterance_index"] == 1
    assert [request.voice for request in fake.requests] == ["ryan", "aiden"]


def test_a_config_in_the_middle_of_an_utterance_is_refused(dial: Dial, fake: FakeEngine) -> None:
    with dial() as client:
        client.config(split_granularity="sentence")
        client.send("input.text", text="One")
        error = client.config(voice="aiden")
        assert error["type"] == "error" and "input.done" in error["message"]
        client.send("input.cancel")
        client.until("session.cancelled")
        assert client.config(voice="aiden") == {"type": "session.configured"}


def test_an_empty_flush_keeps_a_session_alive(dial: Dial, fake: FakeEngine) -> None:
    with dial() as client:
        client.config()
        for index in range(2):
            client.send("input.done")
            assert client.read() == {
                "type": "session.done", "utterance_index": index, "total_sentences": 0,
            }  # fmt: skip
    assert fake.requests == []


# Cancel


@pytest.mark.parametrize("granularity", ["none", "sentence"])
def test_a_cancel_is_acknowledged_and_nothing_follows(
    dial: Dial, fake: FakeEngine, granularity: str
) -> None:
    fake.script = Script(frames=99, at_once=2)
    with dial() as client:
        client.config(split_granularity=granularity)
        client.send("input.text", text="One is long. Two")
        client.until("audio.start")
        client.send("input.cancel")
        client.until("session.cancelled")
        assert fake.wait_for(0)
        fake.script = Script(frames=2)
        client.sound = b""
        client.send("input.text", text="Three.")
        client.send("input.done")
        assert kinds(client.until("session.done")) == ["audio.start", "audio.done", "session.done"]
        assert client.sound == pcm16(2)


def test_a_cancel_with_nothing_to_cancel_is_acknowledged(dial: Dial) -> None:
    with dial() as client:
        client.config()
        client.send("input.cancel")
        assert client.read() == {"type": "session.cancelled", "utterance_index": 0}


def test_a_client_that_leaves_frees_everything(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial() as client:
        client.config()
        client.send("input.text", text="Hello")
        client.until("audio.start")
        assert fake.active == 1
    assert fake.wait_for(0)


# What is wrong


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ('"x"', "JSON object"),
        ("[" * 9000, "not JSON"),
        ('{"type": "input.text"}', "needs `text`"),
        ('{"type": "input.text", "text": 5}', "needs `text`"),
        ('{"type": "input.text", "text": null}', "needs `text`"),
        ('{"type": "dance"}', "unknown message type 'dance'"),
        ('{"type": ["input.text"]}', "unknown message type"),
        ("{}", "unknown message type None"),
        ('{"type": "session.config", "voice": "zz"}', "unknown voice"),
        ('{"type": "session.config", "speed": 9}', "`speed`"),
        ('{"type": "session.config", "split_granularity": "word"}', "`split_granularity`"),
        ('{"type": "session.config", "stream_audio": "yes"}', "`stream_audio`"),
        ('{"type": "session.config", "response_format": "mp4"}', "`response_format`"),
        ('{"type": "session.config", "word_timestamps": true}', "`word_timestamps`"),
        ('{"type": "session.config", "non_streaming_mode": 1}', "non_streaming_mode"),
        (json.dumps({"type": "input.text", "text": "x" * 131_072}), "131072 characters"),
    ],
)  # fmt: skip
def test_a_bad_message_is_told_and_the_session_goes_on(
    serve: Callable[..., Live], message: str, says: str
) -> None:
    with dialled(serve().url) as client:
        client.config()
        client.socket.send(message)
        error = client.read()
        assert error["type"] == "error" and says in error["message"]
        assert set(error["error"]) == {"message", "type", "param", "code"}
        client.send("input.text", text="Hello.")
        client.send("input.done")
        assert client.until("session.done")[-1]["total_sentences"] == 1


def test_half_a_character_is_no_fault_of_ours(dial: Dial) -> None:
    with dial() as client:
        client.config()
        client.send("input.text", text="\ud800 Hello.")
        client.send("input.done")
        assert client.until("session.done")[-1]["total_sentences"] == 1


@pytest.mark.parametrize("granularity", ["none", "sentence"])
def test_a_time_limit_holds_for_each_segment(
    dial: Dial, fake: FakeEngine, granularity: str
) -> None:
    with dial() as client:
        assert "at most 3600" in client.config(timeout=4000)["message"]
    with dial() as client:
        assert client.config(timeout=7, split_granularity=granularity) == {
            "type": "session.configured"
        }
        client.send("input.text", text="Hello.")
        client.send("input.done")
        client.until("session.done")
        assert [each["timeout_s"] for each in fake.envelopes] == [7.0]


def test_what_has_no_effect_in_a_session_is_told(dial: Dial) -> None:
    with dial() as client:
        told = client.config(return_text=True, stream_format="sse", stream=False)
        assert told == {
            "type": "session.configured",
            "warnings": ["no effect here: `stream_format`", "no effect here: `return_text`"],
        }


def test_unknown_fields_are_ignored(dial: Dial) -> None:
    with dial() as client:
        assert client.config(timestamp_type="word", dance=True)["type"] == "session.configured"


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "input.text", "text": "Hi."}',
        "{",
        '{"type": "session.config", "top_k": 0.5}',
    ],
)
def test_a_session_without_a_config_is_refused(dial: Dial, message: str) -> None:
    with dial() as client:
        client.socket.send(message)
        assert client.read()["type"] == "error"
        assert client.closed()[0] == 1008


def test_a_binary_message_closes_the_socket(dial: Dial) -> None:
    with dial() as client:
        client.config()
        client.socket.send(b"sound")
        assert client.closed()[0] == 1003


def test_what_the_engine_refuses_is_told_and_the_session_goes_on(
    dial: Dial, fake: FakeEngine
) -> None:
    with dial() as client:
        client.config()
        fake.script = Script(refuse=engine.Overloaded("full", 2.0, 9))
        client.send("input.text", text="Hello.")
        error = client.read()
        assert error["error"]["code"] == "rate_limit_exceeded"
        assert error["error"]["queue_depth"] == 9
        fake.script = Script()
        client.send("input.text", text="Hello.")
        client.send("input.done")
        assert client.until("session.done")[-1]["total_sentences"] == 1


def test_an_utterance_that_fails_is_told_before_its_end(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=2, fail=engine.GenerationFailed("nothing usable"))
    with dial() as client:
        client.config(split_granularity="sentence")
        client.send("input.text", text="Hello.")
        client.send("input.done")
        messages = client.until("session.done")
        assert kinds(messages) == ["audio.start", "error", "audio.done", "session.done"]
        assert messages[1]["message"] == "nothing usable"
        assert messages[2]["error"] is True


# Ends


def test_a_session_closes_when_asked_after_what_was_flushed(dial: Dial, fake: FakeEngine) -> None:
    with dial() as client:
        client.config()
        client.send("input.text", text="Hello.")
        client.send("input.done")
        client.send("session.close")
        assert client.until("session.done")
        assert client.closed() == (1000, "session.close")


def test_a_session_that_closes_says_what_was_flushed_and_drops_what_was_not(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=3, at_once=1)
    with dial() as client:
        client.config()
        client.send("input.text", text="Hello.")
        client.send("input.done")
        client.send("input.text", text="Not this.")
        client.send("session.close")
        assert eventually(lambda: len(fake.lives) == 2 and len(fake.cancelled) == 1)
        fake.advance(9)
        messages = client.until("session.done")
        assert [each["type"] for each in messages] == ["audio.start", "audio.done", "session.done"]
        assert client.sound == pcm16(3)
        assert client.closed() == (1000, "session.close")


def test_a_session_closes_when_no_config_comes(dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_omni, "CONFIG_S", 0.1)
    with dial() as client:
        assert "session.config" in client.read()["message"]
        assert client.closed()[0] == 1008


def test_a_session_closes_when_nothing_happens_but_not_while_it_speaks(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.script = Script(frames=3, at_once=1)
    with dialled(serve(live_idle_timeout_s=0.2).url) as client:
        client.config(split_granularity="sentence")
        client.send("input.text", text="Hello.")
        client.send("input.done")
        client.until("audio.start")
        with pytest.raises(TimeoutError):
            while True:
                client.socket.recv(1.0)
        fake.advance(9)
        messages = client.until("error")
        assert "0.2 s" in messages[-1]["message"]
        assert client.closed() == (1000, "idle")


def test_idle_time_begins_with_the_end_of_speech(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.script = Script(frames=3, at_once=1)
    with dialled(serve(live_idle_timeout_s=0.6).url) as client:
        client.config()
        client.send("input.text", text="Hello.")
        client.send("input.done")
        client.until("audio.start")
        time.sleep(0.5)
        speaks = time.monotonic()
        fake.advance(9)
        client.until("error")
        assert time.monotonic() - speaks > 0.5
        assert client.closed() == (1000, "idle")


def test_a_shutdown_ends_open_sessions_in_time(fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    with Live(fake, Settings(drain_timeout_s=1)) as running, dialled(running.url) as client:
        client.config()
        client.send("input.text", text="Hello")
        client.until("audio.start")
        running.server.should_exit = True
        assert client.closed()[0] in (1001, 1012)
    assert fake.wait_for(0)


# Keys and origins


def offer(*names: str) -> dict[str, Any]:
    return {"subprotocols": list(names)}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"additional_headers": {"Authorization": "Bearer sesame"}}, None),
        ({"additional_headers": {"Authorization": "Api-Key sesame"}}, None),
        ({"additional_headers": {"xi-api-key": "sesame"}}, None),
        (offer("realtime", "openai-insecure-api-key.sesame"), "realtime"),
        (offer("openai-insecure-api-key.sesame", "realtime", "x"), "realtime"),
        (offer("mine", "openai-insecure-api-key.sesame"), "mine"),
    ],
)
def test_a_key_may_come_in_a_header_or_a_subprotocol(
    serve: Callable[..., Live], options: dict[str, Any], chosen: str | None
) -> None:
    with dialled(serve(api_keys="sesame").url, **options) as client:
        assert client.config()["type"] == "session.configured"
        assert client.socket.subprotocol == chosen


@pytest.mark.parametrize(
    "options", [{}, offer("realtime"), offer("realtime", "openai-insecure-api-key.wrong")]
)
def test_without_a_key_the_handshake_is_refused(
    serve: Callable[..., Live], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidStatus) as caught, dialled(serve(api_keys="sesame").url, **options):
        pass
    assert caught.value.response.status_code == 401
    assert json.loads(caught.value.response.body)["error"]["code"] == "invalid_api_key"


def test_a_key_at_its_limit_of_concurrency_may_not_open_another_socket(
    serve: Callable[..., Live],
) -> None:
    url = serve(api_keys="sesame", key_concurrency=1).url
    header = {"additional_headers": {"Authorization": "Bearer sesame"}}
    with dialled(url, **header) as client:
        client.config()
        with pytest.raises(InvalidStatus) as caught, dialled(url, **header):
            pass
        assert caught.value.response.status_code == 429
    assert eventually(lambda: reopened(url, header))


def reopened(url: str, options: dict[str, Any]) -> bool:
    try:
        with dialled(url, **options):
            return True
    except InvalidStatus:
        return False


def test_pages_of_other_origins_may_not_call_where_that_is_set(serve: Callable[..., Live]) -> None:
    url = serve(cors_origins="https://good.example").url
    with dialled(url, origin="https://good.example") as client:
        client.config()
    with dialled(url, origin=url) as client:  # the server's own page
        client.config()
    with pytest.raises(InvalidStatus), dialled(url, origin="https://evil.example"):
        pass
