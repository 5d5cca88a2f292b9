"""Cartesia's dialect over a real socket, with a fake engine, and under any messages without one."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

import engine
from server.live import cartesia
from server.live.cartesia import Cartesia
from server.live.events import Event
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.several import Contexts
from server.schemas.cartesia import CartesiaBody
from tests.fakes import FakeEngine, Script, base_info, pcm16
from tests.server.conftest import Live
from tests.server.live.calling import Caller, called
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import PATIENCE_S, eventually, run

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
BODY = {
    "context_id": "c", "model_id": "sonic-3", "voice": {"mode": "id", "id": "vivian"},
    "output_format": RAW, "language": "en",
}  # fmt: skip


class Client(Caller):
    """Speaks in contexts."""

    def speak(self, text: str, **fields: Any) -> None:
        self.send(**(BODY | {"transcript": text} | fields))

    def upto(self, *kinds: str, context: str = "c") -> list[dict[str, Any]]:
        """A context's messages, up to the first of a kind; those of others are left out."""
        messages = self.until(lambda m: m["type"] in kinds and m["context_id"] == context)
        return [each for each in messages if each["context_id"] == context]


def sound(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(m["data"]) for m in messages if m["type"] == "chunk")


def made(fake: FakeEngine) -> bool:
    """Whether nothing is left to be made, once what can be made is made."""
    fake.advance(100)
    return fake.active == 0


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    """The types in order, runs of chunks as one."""
    found: list[str] = []
    for message in messages:
        if found[-1:] != [message["type"]]:
            found.append(message["type"])
    return found


@contextmanager
def dialled(url: str, path: str = "/tts/websocket", **options: Any) -> Iterator[Client]:
    with called(url, path, **options) as caller:
        yield Client(caller.socket)


@pytest.fixture
def client(serve: Callable[..., Live]) -> Iterator[Client]:
    with dialled(serve().url) as connected:
        yield connected


# Speaking


def test_a_whole_text_is_spoken_as_a_request_would_be_and_ends_once(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=3)
    client.speak("Hello there.")
    messages = client.upto("done")
    assert kinds(messages) == ["chunk", "done"] and sound(messages) == pcm16(3)
    chunk, done = messages[0], messages[-1]
    assert chunk.pop("data") and chunk.pop("step_time") >= 0
    assert chunk == {
        "type": "chunk", "context_id": "c", "status_code": 206, "done": False, "flush_id": 1,
    }  # fmt: skip
    assert done == {"type": "done", "context_id": "c", "status_code": 200, "done": True}
    assert [request.text for request in fake.requests] == ["Hello there."]
    assert fake.requests[0].voice == "vivian" and fake.requests[0].language == "en"
    assert fake.lives == []


def test_what_continues_is_fed_as_it_comes_and_ends_with_the_last_message(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=2)
    client.speak("Hel", **{"continue": True})
    assert client.read()["type"] == "chunk"
    client.speak("lo there", **{"continue": True})
    client.speak("", **{"continue": False})
    assert kinds(client.upto("done")) == ["chunk", "done"]
    assert [live.text for live in fake.lives] == ["Hello there"]


def test_every_flush_is_answered_once_after_its_last_sound(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=2)
    client.speak("One.", **{"continue": True, "flush": True})
    client.speak("", **{"continue": True, "flush": True})
    client.speak("Two.", flush=True)
    messages = client.upto("done")
    assert kinds(messages) == ["chunk", "flush_done", "chunk", "flush_done", "done"]
    ends = [each for each in messages if each["type"] == "flush_done"]
    assert [each["flush_id"] for each in ends] == [1, 2, 3]
    assert ends[0] == {
        "type": "flush_done", "context_id": "c", "status_code": 206, "done": False,
        "flush_done": True, "flush_id": 1,
    }  # fmt: skip
    chunks = [each["flush_id"] for each in messages if each["type"] == "chunk"]
    assert set(chunks) == {1, 3} and chunks == sorted(chunks)


def test_without_buffering_each_message_is_spoken_for_itself(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=1)
    for text in ("One. ", "Two. "):
        client.speak(text, max_buffer_delay_ms=0, **{"continue": True})
    client.speak(" ", max_buffer_delay_ms=0)
    messages = client.upto("done")
    assert kinds(messages) == ["chunk", "flush_done", "chunk", "flush_done", "done"]
    assert [request.text for request in fake.requests] == ["One.", "Two."]


def test_text_is_spoken_to_its_end_once_the_delay_has_passed(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=4)
    client.speak("One.", max_buffer_delay_ms=1, **{"continue": True})
    assert client.read()["type"] == "chunk"
    # The fake makes one frame for a text that is open, and the others once it is not.
    assert client.read()["type"] == "chunk"
    client.speak("Two.", max_buffer_delay_ms=5000, **{"continue": True})
    client.speak("")
    assert kinds(client.upto("done")) == ["chunk", "done"]
    assert [live.text for live in fake.lives] == ["One.", "Two."]


def test_contexts_talk_at_the_same_time(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=2)
    for name in ("a", "b"):
        client.speak("Hello", context_id=name, **{"continue": True})
    for name in ("a", "b"):
        client.speak(" there.", context_id=name)
    found = [client.read() for _ in range(4)]
    while sum(each["type"] == "done" for each in found) < 2:
        found.append(client.read())
    for name in ("a", "b"):
        assert kinds([m for m in found if m["context_id"] == name]) == ["chunk", "done"]


def test_a_context_without_an_id_gets_one(client: Client) -> None:
    client.speak("Hello.", context_id=None)
    first = client.read()
    assert len(first["context_id"]) == 36
    assert client.upto("done", context=first["context_id"])


def test_more_text_before_the_end_is_spoken_behind_it(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=2, at_once=1)
    client.speak("One.")
    client.speak("Two.", voice="ryan")
    assert fake.wait_for(2)
    fake.advance(3)
    assert kinds(client.upto("done")) == ["chunk", "done"]
    assert kinds(client.upto("done")) == ["chunk", "done"]
    assert [request.voice for request in fake.requests] == ["vivian", "ryan"]


@pytest.mark.parametrize(
    ("encoding", "rate", "bytes_per_sample"),
    [("pcm_s16le", 16_000, 2), ("pcm_f32le", 44_100, 4), ("pcm_mulaw", 8_000, 1),
     ("pcm_alaw", 48_000, 1)],
)  # fmt: skip
def test_samples_come_in_the_encoding_and_rate_that_were_asked_for(
    client: Client, fake: FakeEngine, encoding: str, rate: int, bytes_per_sample: int
) -> None:
    fake.script = Script(frames=10)
    client.speak("Hello.", output_format={**RAW, "encoding": encoding, "sample_rate": rate})
    heard = sound(client.upto("done"))
    assert len(heard) == pytest.approx(0.8 * rate * bytes_per_sample, rel=0.02)
    if encoding == "pcm_f32le":
        assert np.abs(np.frombuffer(heard, "<f4")).max() == pytest.approx(0.316, abs=0.02)


def test_the_sentence_of_a_setting_without_effect_comes_with_the_end(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(warnings=("a word of the engine",))
    client.speak(
        "Hello.",
        voice={"mode": "id", "id": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b", "x": 1},
        add_timestamps=True,
        pronunciation_dict_id="p",
        generation_config={"speed": 1.5, "emotion": "sad", "volume": 2},
    )
    messages = client.upto("done")
    assert kinds(messages) == ["chunk", "done"]
    voice, unused, told = messages[-1]["warnings"]
    assert "the default voice speaks" in voice and told == "a word of the engine"
    assert unused == (
        "no effect here: `add_timestamps`, `pronunciation_dict_id`, `voice.x`,"
        " `generation_config.volume`"
    )
    assert fake.requests[0].voice is None and fake.requests[0].instructions == "sad"


def test_an_end_that_was_none_of_the_texts_is_told(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(reason=engine.FinishReason.LOOP)
    client.speak("Hello.")
    assert client.upto("done")[-1]["warnings"] == ["the speech was ended by `loop`"]
    fake.script = Script()
    client.speak("Hello.")
    assert "warnings" not in client.upto("done")[-1]


def test_a_text_without_buffering_is_spoken_behind_one_that_was_fed(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=2)
    client.speak("One", **{"continue": True})
    client.speak("Two.", max_buffer_delay_ms=0, **{"continue": True})
    assert kinds(client.upto("flush_done")) == ["chunk", "flush_done"]
    assert [live.text for live in fake.lives] == ["One"]
    assert [request.text for request in fake.requests] == ["One", "Two."]


def test_a_voice_may_be_a_vector_of_a_base_model(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.models = (base_info(),)
    with dialled(serve().url) as client:
        client.speak("Hello.", voice={"mode": "embedding", "embedding": [0.5] * 8})
        assert client.upto("done")
        assert fake.requests[0].speaker_embedding is not None


# Cancel


def test_a_cancel_is_acknowledged_and_nothing_follows(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=2)
    client.speak("One is long.")
    client.speak("Two", context_id="d", **{"continue": True})
    assert client.upto("chunk")
    client.send(context_id="c", cancel=True)
    done = client.upto("done")[-1]
    assert done == {"type": "done", "context_id": "c", "status_code": 499, "done": True}
    assert fake.wait_for(1)
    fake.script = Script(frames=1)
    client.speak("", context_id="d")
    assert eventually(lambda: made(fake))
    messages = [client.read()]
    while messages[-1]["type"] != "done":
        messages.append(client.read())
    assert {each["context_id"] for each in messages} == {"d"}
    client.speak("Three.")
    assert kinds(client.upto("done")) == ["chunk", "done"]


def test_a_cancel_with_nothing_to_cancel_is_acknowledged(client: Client) -> None:
    client.socket.send('{"context_id": "x", "cancel": true}')
    assert client.read()["status_code"] == 499


def test_text_that_waits_for_more_is_forgotten_by_a_cancel(
    client: Client, fake: FakeEngine
) -> None:
    client.speak("...", max_buffer_delay_ms=1, **{"continue": True})
    client.socket.send('{"context_id": "c", "cancel": true}')
    assert client.read()["status_code"] == 499
    client.speak("One.")
    assert client.upto("done") and len(fake.requests) == 1


def test_a_client_that_leaves_frees_everything(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dialled(serve().url) as client:
        client.speak("One", **{"continue": True})
        client.speak("Two.", context_id="d")
        client.upto("chunk")
        assert fake.wait_for(2)
    assert fake.wait_for(0)


# What is wrong


@pytest.mark.parametrize(
    ("message", "param", "says"),
    [
        ("{", None, "not JSON"),
        ("[1]", None, "JSON object"),
        ('{"context_id": 5}', "context_id", "1 to 256 characters"),
        ('{"context_id": ""}', "context_id", "1 to 256 characters"),
        ('{"cancel": true}', "context_id", "1 to 256 characters"),
        (json.dumps({"context_id": "x" * 257}), "context_id", "1 to 256 characters"),
        (json.dumps({"transcript": "x" * 600_000}), None, "524288 characters"),
    ],
)
def test_a_message_of_no_context_is_told_and_the_socket_goes_on(
    client: Client, message: str, param: str | None, says: str
) -> None:
    client.socket.send(message)
    error = client.read()
    assert error["type"] == "error" and error["context_id"] is None and error["done"] is True
    assert error["status_code"] == 400 and error["param"] == param
    assert says in error["error"] == error["message"]
    client.speak("Hello.")
    assert client.upto("done")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"transcript": 5}, "`transcript` must be a string"),
        ({"continue": 1}, "`continue` must be `true` or `false`"),
        ({"voice": {"mode": "id", "id": "zz"}}, "unknown voice 'zz'; available voices: aiden,"),
        ({"voice": 5}, "`voice` must be a string"),
        ({"voice": {"id": 5}}, "`voice.id` must be a string"),
        ({"voice": {"mode": "name"}}, "`voice.mode` must be `id` or `embedding`"),
        ({"voice": {"mode": "embedding"}}, "`voice.embedding` is required"),
        ({"model_id": 5}, "`model_id` must be a string"),
        ({"language": "xx"}, "language"),
        ({"output_format": 5}, "`output_format` must be an object"),
        ({"output_format": {"container": "wav"}}, "`output_format.container` must be `raw`"),
        ({"output_format": {"encoding": "mp3"}}, "one of pcm_s16le, pcm_f32le, pcm_mulaw,"),
        ({"output_format": {"sample_rate": 96_000}}, "`sample_rate` must be between 8000 and"),
        ({"max_buffer_delay_ms": 9000}, "`max_buffer_delay_ms` must be between 0 and 5000"),
        ({"generation_config": {"speed": 9}}, "`generation_config.speed` must be between 0.25"),
        ({"transcript": "a" * 20_001}, "the limit is 20000"),
    ],
)
def test_what_is_wrong_in_a_context_ends_it_and_the_socket_goes_on(
    client: Client, fields: dict[str, Any], says: str
) -> None:
    client.speak("Hello.", **fields)
    error = client.read()
    assert error["type"] == "error" and error["context_id"] == "c" and error["done"] is True
    assert error["status_code"] == 400 and says in error["error"]
    client.speak("Hello.")
    assert kinds(client.upto("done")) == ["chunk", "done"]


def test_settings_may_not_change_in_the_middle_of_a_text(client: Client) -> None:
    client.speak("Hello", **{"continue": True})
    client.speak("", voice="ryan", **{"continue": True})
    client.speak(" there.", voice="ryan", **{"continue": True})
    error = client.upto("error")[-1]
    assert "`voice` cannot change" in error["error"] and error["param"] == "voice"


def test_settings_may_change_between_texts(client: Client, fake: FakeEngine) -> None:
    client.speak("One.", max_buffer_delay_ms=0, **{"continue": True})
    client.upto("flush_done")
    client.speak("Two.", voice="ryan")
    assert kinds(client.upto("done")) == ["chunk", "done"]
    assert [request.voice for request in fake.requests] == ["vivian", "ryan"]


def test_a_text_that_changes_one_setting_keeps_those_it_leaves_out(
    client: Client, fake: FakeEngine
) -> None:
    client.speak("One.", **{"continue": True, "flush": True})
    client.upto("flush_done")
    changes: tuple[dict[str, Any], ...] = (
        {"voice": "ryan"}, {"generation_config": {"emotion": "sad"}}, {"add_timestamps": True},
    )  # fmt: skip
    for change in changes:
        client.send(context_id="c", transcript="Two.", flush=True, **{"continue": True}, **change)
        client.upto("flush_done")
    client.send(context_id="c", transcript="Three.")
    assert "add_timestamps" in client.upto("done")[-1]["warnings"][0]
    said = [(request.voice, request.language, request.instructions) for request in fake.requests]
    sad = ("ryan", "en", "sad")
    assert said == [("vivian", "en", None), ("ryan", "en", None), sad, sad, sad]


def test_a_text_that_fails_is_told_and_its_context_is_over(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=1, fail=engine.GenerationFailed("no"))
    client.speak("One.", **{"continue": True, "flush": True})
    messages = client.upto("error")
    assert kinds(messages) == ["chunk", "error"]
    assert messages[-1]["status_code"] == 500
    assert messages[-1]["error_code"] == "generation_failed"
    assert messages[-1]["title"] == "Generation failed"
    fake.script = Script(refuse=engine.Overloaded("full", 1.0, 3))
    client.speak("Two.")
    assert client.upto("error")[-1]["status_code"] == 429
    fake.script = Script(frames=1)
    client.speak("Three.")
    assert kinds(client.upto("done")) == ["chunk", "done"]


def test_there_may_not_be_too_many_contexts(client: Client, fake: FakeEngine) -> None:
    for number in range(17):
        client.speak("...", context_id=str(number), **{"continue": True})
    assert "16 are being spoken" in client.upto("error", context="16")[-1]["error"]


# The socket


def test_an_idle_socket_is_closed(
    serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cartesia, "IDLE_S", 0.05)
    with dialled(serve(live_idle_timeout_s=0.05).url) as client:
        assert client.closed() == (1000, "idle", [])


def test_it_answers_under_v1_too_and_asks_for_a_key(serve: Callable[..., Live]) -> None:
    url = serve(api_keys="sesame").url
    header = {"additional_headers": {"X-API-Key": "sesame"}}
    with dialled(url, "/v1/tts/websocket?cartesia_version=2025-04-16", **header) as client:
        client.speak("Hello.")
        assert client.upto("done")


def test_pages_of_other_origins_may_not_call_where_that_is_set(serve: Callable[..., Live]) -> None:
    url = serve(cors_origins="https://good.example").url
    with pytest.raises(InvalidStatus, match="400"), dialled(url, origin="https://evil.example"):
        pass


# Any order of messages

TEXTS = ["Hel", "lo. ", "Yes", "", " ", "...", "One. Two. ", "word " * 90]
FIELDS = st.fixed_dictionaries(
    {"context_id": st.sampled_from(["a", "b"]), "transcript": st.sampled_from(TEXTS)},
    optional={
        "continue": st.booleans(),
        "flush": st.booleans(),
        "max_buffer_delay_ms": st.sampled_from([0, 1, 5000, -1]),
        "voice": st.sampled_from(["aiden", "ryan", "zz", 5]),
    },
).map(json.dumps)
STOP = {"cancel": True}
CANCEL = st.sampled_from(["a", "b"]).map(lambda name: json.dumps({"context_id": name} | STOP))
BAD = st.sampled_from(["{", "[]", "{}", "null", '{"cancel": 1}', '"\\ud800"']) | st.text(max_size=5)


class Session:
    """The dialect over a fake engine, without a socket."""

    def __init__(self, script: Script) -> None:
        self.fake = FakeEngine(script)
        self.outbox = Outbox()
        contexts = Contexts(FakeMouth(self.fake), self.outbox, 1000)
        self.dialect = Cartesia(self.configure, contexts, self.outbox, idle_s=30)
        self.sent: list[dict[str, Any]] = []

    async def configure(self, body: CartesiaBody) -> tuple[Manner, tuple[str, ...]]:
        request = engine.SpeechRequest("", voice=str(body.voice or "aiden"))
        self.fake.check(request)
        await asyncio.sleep(0)
        return Manner(request, PCM), ()

    async def write(self, event: Event) -> None:
        for frame in self.dialect.frames(event):
            self.sent.append(json.loads(frame))
            await asyncio.sleep(0)

    async def finish(self) -> None:
        self.fake.script = Script(frames=1)
        end = time.monotonic() + PATIENCE_S
        while self.dialect.speaking:
            assert time.monotonic() < end
            self.fake.advance(9)
            await asyncio.sleep(0.001)
        await self.outbox.drained()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(FIELDS, FIELDS, CANCEL, BAD, st.just("make")), max_size=16),
    st.sampled_from(
        [
            Script(frames=2),
            Script(frames=3, at_once=0),
            Script(frames=1, fail=engine.GenerationFailed("no")),
        ]
    ),
)
def test_any_sequence_of_messages_ends_with_nothing_held(messages, script) -> None:
    run(talk(messages, script))


async def talk(messages: list[str], script: Script) -> None:
    session = Session(script)
    writer = asyncio.create_task(session.outbox.run(session.write))
    for each in messages:
        if each == "make":
            session.fake.advance(1)
            await asyncio.sleep(0)
        else:
            await session.dialect.receive(each)
    # What a context is left with is its own end, and then nothing.
    for name in ("a", "b"):
        await session.dialect.receive(json.dumps({"context_id": name}))
    await session.finish()
    assert not writer.done()
    assert session.dialect._lines == session.dialect._found == {}
    await session.dialect.aclose()
    writer.cancel()
    assert session.fake.active == 0
    for name in ("a", "b"):
        check([each for each in session.sent if each["context_id"] == name], messages, name)


def check(sent: list[dict[str, Any]], messages: list[str], name: str) -> None:
    """The flushes of a context count up, and it is told of its end last."""
    assert sent[-1]["done"] is True
    flushes = 0
    for each in sent:
        if each["type"] == "flush_done":
            flushes += 1
            assert each["flush_id"] == flushes
        elif each["type"] == "chunk":
            assert each["flush_id"] == flushes + 1
        elif each["type"] in ("done", "error") and each["done"]:
            # Another text of the same name counts on, or begins anew.
            flushes = flushes if each["status_code"] == 200 else 0
    cancels = messages.count(json.dumps({"context_id": name} | STOP))
    assert sum(each.get("status_code") == 499 for each in sent) == cancels
