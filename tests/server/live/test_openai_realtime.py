"""OpenAI's Realtime dialect over a real socket, with a fake engine, and under any messages without
one."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

import engine
from server.live import openai_realtime
from server.live.conversation import MOST_ITEMS
from server.live.events import Event
from server.live.openai_realtime import OpenAIRealtime
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.several import Contexts
from server.live.sockets import Close
from server.schemas.speech import SpeechBody
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import Live
from tests.server.live.calling import Caller, called
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import PATIENCE_S, eventually, run

INSTRUCTIONS = "Speak the message aloud, word for word.\n\nDelivery style: calm, slow"
SESSION = {
    "type": "realtime",
    "output_modalities": ["audio"],
    "instructions": INSTRUCTIONS,
    "tools": [],
    "tool_choice": "none",
    "audio": {
        "input": {"turn_detection": None, "transcription": None},
        "output": {"voice": "vivian", "format": {"type": "audio/pcm", "rate": 24_000}},
    },
}
WHOLE = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]


def user(text: Any, **fields: Any) -> dict[str, Any]:
    part = {"type": "input_text", "text": text}
    return {"type": "message", "role": "user", "content": [part]} | fields


class Client(Caller):
    """The first message it reads is `created`."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__(socket)
        self.created = self.read()

    def event(self, kind: str, **fields: Any) -> None:
        self.send(type=kind, **fields)

    def update(self, **session: Any) -> dict[str, Any]:
        self.event("session.update", session=session)
        return self.read()

    def say(self, *texts: str, **fields: Any) -> None:
        given = {"conversation": "none", "input": [user(text) for text in texts]}
        self.event("response.create", response=given | fields)

    def upto(self, kind: str) -> list[dict[str, Any]]:
        return self.until(lambda message: message["type"] == kind)


def sound(messages: list[dict[str, Any]], kind: str = "response.output_audio.delta") -> bytes:
    return b"".join(base64.b64decode(m["delta"]) for m in messages if m["type"] == kind)


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    """The types in order, runs of one as one."""
    found: list[str] = []
    for message in messages:
        if found[-1:] != [message["type"]]:
            found.append(message["type"])
    return found


@contextmanager
def dialled(url: str, query: str = "model=gpt-realtime", **options: Any) -> Iterator[Client]:
    with called(url, f"/v1/realtime?{query}", **options) as caller:
        yield Client(caller.socket)


@pytest.fixture
def client(serve: Callable[..., Live]) -> Iterator[Client]:
    with dialled(serve().url) as connected:
        yield connected


# Sessions


def test_a_session_is_told_at_once_and_as_it_is_changed(client: Client) -> None:
    created = client.created
    assert created["type"] == "session.created" and created["event_id"].startswith("event_")
    session = created["session"]
    assert session.pop("id").startswith("sess_")
    output = {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "aiden", "speed": 1.0}
    assert session == {
        "object": "realtime.session",
        "type": "realtime",
        "model": "gpt-realtime",
        "output_modalities": ["audio"],
        "instructions": "",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "audio": {"input": {}, "output": output},
    }
    updated = client.update(**SESSION, language="german")
    assert updated["type"] == "session.updated"
    assert updated["session"]["instructions"] == INSTRUCTIONS
    assert updated["session"]["language"] == "german"
    assert updated["session"]["audio"] == {
        "input": {"turn_detection": None, "transcription": None},
        "output": output | {"voice": "vivian"},
    }
    again = client.update(type="realtime", audio={"output": {"speed": 1.5}})["session"]
    assert again["audio"]["output"] == output | {"voice": "vivian", "speed": 1.5}
    default = client.update(type="realtime", audio={"output": {"voice": None}}, language=None)
    assert default["session"]["audio"]["output"]["voice"] is None
    assert "language" not in default["session"]


# Speaking


def test_a_response_speaks_the_users_text_and_nothing_else(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=3)
    client.update(**SESSION)
    text = " Is 3.5 more than three? Say no!"
    client.say(text, output_modalities=["audio"], tools=[], tool_choice="none", metadata={"k": "v"})
    messages = client.upto("response.done")
    assert kinds(messages) == WHOLE
    assert sound(messages) == pcm16(3)
    assert [request.text for request in fake.requests] == [text.strip()]
    assert fake.requests[0].voice == "vivian"
    assert fake.requests[0].instructions == "calm, slow"
    assert messages[-3]["part"] == {"type": "audio", "transcript": text}
    transcripts = [m for m in messages if "audio_transcript" in m["type"]]
    assert [m.get("delta", m.get("transcript")) for m in transcripts] == [text, text]
    response = messages[-1]["response"]
    assert response["status"] == "completed"
    assert response["status_details"] == {"type": "completed"}
    assert response["metadata"] == {"k": "v"} and response["conversation_id"] is None
    assert response["finish_reason"] == "stop"
    assert response["usage"] == {"input_tokens": 0, "output_tokens": 3, "total_tokens": 3}
    assert response["audio"]["output"]["voice"] == "vivian"
    (item,) = response["output"]
    assert item["content"] == [{"type": "output_audio", "transcript": text}]
    assert item == messages[-2]["item"] and item["status"] == "completed"
    for message in messages[1:-1]:
        assert message["response_id"] == response["id"]
        assert message["output_index"] == 0
    assert len({message["event_id"] for message in messages}) == len(messages)


def test_an_item_and_then_a_bare_response_speak_the_item_once(
    client: Client, fake: FakeEngine
) -> None:
    client.event("conversation.item.create", item=user("You are helpful.", role="system"))
    client.event("conversation.item.create", item=user("Hello.", id="mine"))
    first = client.read()
    assert first["type"] == "conversation.item.added" and first["previous_item_id"] is None
    assert client.read()["type"] == "conversation.item.done"
    added, done = client.read(), client.read()
    assert (added["item"]["id"], added["previous_item_id"]) == ("mine", first["item"]["id"])
    assert done["item"] == added["item"] and done["item"]["status"] == "completed"
    client.event("response.create")
    messages = client.upto("response.done")
    assert messages[-1]["response"]["conversation_id"].startswith("conv_")
    assert [request.text for request in fake.requests] == ["Hello."]
    client.event("response.create", event_id="e1")
    error = client.read()["error"]
    assert "nothing to speak" in error["message"] and error["event_id"] == "e1"
    client.event("conversation.item.create", item=user("Good bye."))
    client.event("response.create", response=None)
    client.upto("response.done")
    assert [request.text for request in fake.requests] == ["Hello.", "Good bye."]


def test_items_have_a_place_may_be_referred_to_and_deleted(
    client: Client, fake: FakeEngine
) -> None:
    for item_id, place in (("b", None), ("a", "root"), ("c", "a")):
        client.event(
            "conversation.item.create", item=user(item_id, id=item_id), previous_item_id=place
        )
        assert client.upto("conversation.item.done")
    client.event("conversation.item.delete", item_id="b")
    assert client.read()["item_id"] == "b"
    client.event("response.create", response={})
    client.upto("response.done")
    reference = {"type": "item_reference", "id": "c"}
    client.event("response.create", response={"input": [reference, user("d")]})
    client.upto("response.done")
    assert [request.text for request in fake.requests] == ["a\nc", "c\nd"]


def test_the_oldest_items_are_forgotten(client: Client) -> None:
    for number in range(MOST_ITEMS + 1):
        client.event("conversation.item.create", item=user("x", id=str(number)))
        client.upto("conversation.item.done")
    client.event("conversation.item.delete", item_id="0")
    assert "no item '0'" in client.read()["error"]["message"]
    client.event("conversation.item.delete", item_id="1")
    assert client.read()["type"] == "conversation.item.deleted"


@pytest.mark.parametrize(
    ("kind", "bytes_per_second"),
    [("audio/pcm", 48_000), ("audio/pcmu", 8000), ("audio/pcma", 8000)],
)
def test_sound_comes_in_the_format_that_was_asked_for(
    client: Client, fake: FakeEngine, kind: str, bytes_per_second: int
) -> None:
    fake.script = Script(frames=10)
    told = client.update(type="realtime", audio={"output": {"format": {"type": kind}}})
    assert told["session"]["audio"]["output"]["format"] == {"type": kind}
    client.say("Hello.")
    heard = sound(client.upto("response.done"))
    assert len(heard) == pytest.approx(0.8 * bytes_per_second, rel=0.02)


def test_a_response_may_have_a_voice_and_a_length_of_its_own(
    client: Client, fake: FakeEngine
) -> None:
    client.say("One.", audio={"output": {"voice": {"id": "ryan"}}}, max_output_tokens=7)
    told = client.upto("response.done")[-1]["response"]
    assert told["audio"]["output"]["voice"] == "ryan" and told["max_output_tokens"] == 7
    client.say("Two.", max_output_tokens="inf")
    client.upto("response.done")
    first, second = fake.requests
    assert (first.voice, first.sampling.max_new_tokens) == ("ryan", 7)
    assert second.voice == "aiden" and second.sampling.max_new_tokens != 7


def test_a_text_that_was_cut_short_is_incomplete(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(reason=engine.FinishReason.LENGTH, warnings=("a word of the engine",))
    client.say("Hello.")
    response = client.upto("response.done")[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["status_details"]["reason"] == "max_output_tokens"
    assert response["output"][0]["status"] == "incomplete"
    assert response["warnings"] == ["a word of the engine"]


def test_responses_are_spoken_at_the_same_time(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=3, at_once=1)
    client.say("One.")
    client.say("Two.")
    assert fake.wait_for(2)
    fake.advance(9)
    first = client.upto("response.done")
    second = client.upto("response.done")
    ids = {m["response"]["id"] for m in first + second if m["type"] == "response.done"}
    assert len(ids) == 2
    for each in ids:
        mine = [m for m in first + second if m.get("response_id") == each]
        assert sound(mine) == pcm16(3)


# Cancel


def test_a_cancelled_response_ends_and_nothing_follows(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=2)
    client.say("One is long.")
    client.upto("response.output_audio.delta")
    client.event("response.cancel")
    messages = client.upto("response.done")
    ends = [kind for kind in kinds(messages) if kind != "response.output_audio.delta"]
    assert ends == WHOLE[5:]
    response = messages[-1]["response"]
    assert response["status"] == "cancelled"
    assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert response["output"][0]["status"] == "incomplete"
    assert fake.wait_for(0)
    fake.script = Script(frames=2)
    client.say("Two.")
    messages = client.upto("response.done")
    assert kinds(messages) == WHOLE and sound(messages) == pcm16(2)


def test_one_of_several_responses_may_be_cancelled(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(frames=5, at_once=0)
    client.say("One.")
    first = client.read()["response"]["id"]
    client.say("Two.")
    second = client.read()["response"]["id"]
    assert fake.wait_for(2)
    client.event("response.cancel", response_id=first)
    assert fake.wait_for(1)
    done = client.upto("response.done")[-1]["response"]
    # It had not begun, so it has no message.
    assert (done["id"], done["status"], done["output"]) == (first, "cancelled", [])
    fake.advance(9)
    messages = client.upto("response.done")
    assert {m["response_id"] for m in messages[:-1]} == {second}
    assert messages[-1]["response"]["status"] == "completed"


def test_a_cancel_with_nothing_to_cancel_has_a_code_of_its_own(client: Client) -> None:
    client.event("response.cancel", event_id="e1")
    error = client.read()["error"]
    assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "e1")


def test_a_client_that_leaves_frees_everything(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dialled(serve().url) as client:
        client.say("One.")
        client.upto("response.output_audio.delta")
        assert fake.active == 1
    assert fake.wait_for(0)


# What is wrong


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ("{}", "type None are not served"),
        ('{"type": "input_audio_buffer.append", "audio": ""}', "'input_audio_buffer.append' are"),
        ('{"type": "session.update"}', "`session` must be an object"),
        ('{"type": "session.update", "session": {"audio": 5}}', "`audio` must be an object"),
        ('{"type": "session.update", "session": {"audio": {"output": 5}}}', "`audio.output` must"),
        ('{"type": "session.update", "session": {"type": "x"}}', "`type` must be one of realtime"),
        ('{"type": "session.update", "session": {"voice": "zz"}}', "unknown voice 'zz'"),
        ('{"type": "session.update", "session": {"speed": 9}}', "`audio.output.speed` must be"),
        ('{"type": "session.update", "session": {"speed": "x"}}', "`audio.output.speed` must be"),
        ('{"type": "session.update", "session": {"modalities": ["text"]}}', "text alone is not"),
        ('{"type": "session.update", "session": {"modalities": 5}}', "text alone is not"),
        ('{"type": "session.update", "session": {"output_audio_format": "mp3"}}', "audio/pcmu"),
        ('{"type": "session.update", "session": {"output_audio_format": 5}}', "audio/pcmu"),
        ('{"type": "session.update", "session": {"tool_choice": "required"}}', "one of auto, none"),
        ('{"type": "session.update", "session": {"max_output_tokens": 0}}', "from 1 to 4096"),
        ('{"type": "session.update", "session": {"max_output_tokens": true}}', "from 1 to 4096"),
        ('{"type": "session.update", "session": {"instructions": 5}}', "`instructions` must be a"),
        ('{"type": "session.update", "session": {"language": "xx"}}', "language"),
        ('{"type": "response.create", "response": 5}', "`response` must be an object"),
        ('{"type": "response.create", "response": {"conversation": "x"}}', "auto or none"),
        ('{"type": "response.create", "response": {"input": 5}}', "`response.input` must be a"),
        ('{"type": "response.create", "response": {"input": []}}', "nothing to speak"),
        ('{"type": "response.create", "response": {"input": [5]}}', "`type` `message`"),
        ('{"type": "response.create", "response": {"instructions": "Hi."}}', "nothing to speak"),
        ('{"type": "conversation.item.create"}', "`type` `message`"),
        ('{"type": "conversation.item.delete", "item_id": ["x"]}', "no item ['x']"),
        ('{"type": "session.update", "session": {"max_output_tokens": 1e999}}', "finite"),
        ('{"type": "response.create", "response": {"metadata": {"x": NaN}}}', "got NaN"),
        ('{"type": "session.update", "session": {"tools": [-Infinity]}}', "got -Infinity"),
        (
            '{"type": "session.update", "session": {"tools": ' + "[" * 900 + "]" * 900 + "}}",
            "at most 64 deep",
        ),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_message_is_told_and_the_session_goes_on(
    client: Client, message: str, says: str
) -> None:
    client.socket.send(message)
    error = client.read()
    assert error["type"] == "error" and says in error["error"]["message"], error
    assert error["error"]["type"] == "invalid_request_error"
    client.say("Hello.")
    assert client.upto("response.done")[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"role": "tool"}, "`role` must be one of user, assistant, system"),
        ({"content": "Hello"}, "`content` must be a list of objects"),
        ({"content": [{"type": "input_audio", "audio": ""}]}, "only `input_text` is"),
        ({"content": [{"type": "input_text", "text": 5}]}, "must be a string"),
        ({"id": 5}, "`id` must be a string"),
        ({"id": "there"}, "an item 'there' already"),
    ],
)
def test_an_item_that_cannot_be_taken_is_told(
    client: Client, changes: dict[str, Any], says: str
) -> None:
    client.event("conversation.item.create", item=user("Hello.", id="there"))
    client.upto("conversation.item.done")
    client.event("conversation.item.create", item=user("Hello.") | changes, event_id="e1")
    error = client.read()["error"]
    assert says in error["message"] and error["event_id"] == "e1"
    assert str(error["param"]).startswith("item.")


def test_a_format_of_another_rate_is_refused(client: Client) -> None:
    told = client.update(audio={"output": {"format": {"type": "audio/pcm", "rate": 16_000}}})
    assert "`format` must be of `rate` 24000" in told["error"]["message"]


def test_what_the_engine_refuses_fails_the_response(client: Client, fake: FakeEngine) -> None:
    fake.script = Script(refuse=engine.Overloaded("full", 1.0, 3))
    client.say("One.")
    response = client.upto("response.done")[-1]["response"]
    assert response["status"] == "failed"
    error = response["status_details"]["error"]
    assert error == {
        "type": "rate_limit_exceeded", "code": "rate_limit_exceeded", "message": "full",
    }  # fmt: skip
    fake.script = Script(frames=1, fail=engine.GenerationFailed("no"))
    client.say("Two.")
    messages = client.upto("response.done")
    assert kinds(messages) == WHOLE and messages[-1]["response"]["status"] == "failed"


def test_a_response_that_fails_before_its_first_sound_is_told_by_its_end_alone(
    client: Client, fake: FakeEngine
) -> None:
    fake.script = Script(frames=0, fail=engine.GenerationFailed("no"))
    client.say("One.")
    messages = client.upto("response.done")
    assert kinds(messages) == ["response.created", "response.done"]
    response = messages[-1]["response"]
    assert (response["status"], response["output"]) == ("failed", [])


def test_more_text_than_may_wait_is_refused(client: Client) -> None:
    client.say("a" * 20_001)
    assert "the limit is 20000" in client.read()["error"]["message"]


# Which kind of session


@pytest.mark.parametrize("query", ["intent=transcription", "model=x&intent=sing"])
def test_an_intent_that_is_not_served_is_told_and_the_socket_closed(
    serve: Callable[..., Live], query: str
) -> None:
    with dialled(serve().url, query) as client:
        assert client.created["type"] == "error"
        assert client.created["error"]["param"] == "intent"
        assert client.closed()[0] == 1008


def test_a_model_there_is_not_is_told_and_the_socket_closed(serve: Callable[..., Live]) -> None:
    url = serve(strict_models=True).url
    with dialled(url, "model=nobody") as client:
        assert client.created["error"]["code"] == "model_not_found"
    with dialled(url, "intent=realtime") as client:
        assert client.created["session"]["model"] == "fake-voice"


def test_a_session_of_another_type_is_told_and_the_socket_closed(client: Client) -> None:
    assert "transcription" in client.update(type="transcription")["error"]["message"]
    assert client.closed()[0] == 1008


def test_a_session_closes_when_nothing_happens(
    serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_realtime, "IDLE_S", 0.05)
    with dialled(serve(live_idle_timeout_s=0.05).url) as client:
        assert client.read()["error"]["code"] == "session_expired"
        assert client.closed()[0] == 1000


def test_a_page_sends_its_key_in_a_subprotocol(serve: Callable[..., Live]) -> None:
    url = serve(api_keys="sesame").url
    offered = ["realtime", "openai-insecure-api-key.sesame"]
    with dialled(url, subprotocols=offered) as client:
        assert client.socket.subprotocol == "realtime"
        client.say("Hello.")
        assert client.upto("response.done")
    with pytest.raises(InvalidStatus, match="401"), dialled(url):
        pass


def test_pages_of_other_origins_may_not_call_where_that_is_set(serve: Callable[..., Live]) -> None:
    url = serve(cors_origins="https://good.example").url
    with pytest.raises(InvalidStatus, match="400"), dialled(url, origin="https://evil.example"):
        pass


# The beta

BETA = {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}
BETA_SESSION = {
    "modalities": ["audio", "text"], "voice": "vivian", "output_audio_format": "g711_ulaw",
    "input_audio_format": "pcm16", "max_response_output_tokens": 9, "turn_detection": None,
}  # fmt: skip


@pytest.mark.parametrize("options", [BETA, {}])
def test_a_client_of_the_beta_gets_its_names_and_shapes(
    serve: Callable[..., Live], fake: FakeEngine, options: dict[str, Any]
) -> None:
    fake.script = Script(frames=10)
    with dialled(serve().url, **options) as client:
        if options:
            assert client.created["session"]["output_audio_format"] == "pcm16"
        session = client.update(**BETA_SESSION)["session"]
        assert {name: session[name] for name in BETA_SESSION} == BETA_SESSION
        assert "audio" not in session and "type" not in session
        client.event("conversation.item.create", item=user("Hello."))
        assert client.read()["type"] == "conversation.item.created"
        client.event("response.create", response={"voice": "ryan"})
        messages = client.upto("response.done")
        names = [kind.replace("output_audio", "audio") for kind in WHOLE]
        assert kinds(messages) == names
        heard = sound(messages, "response.audio.delta")
        assert len(heard) == pytest.approx(0.8 * 8000, rel=0.02)
        response = messages[-1]["response"]
        assert response["voice"] == "ryan" and response["output_audio_format"] == "g711_ulaw"
        assert response["output"][0]["content"] == [{"type": "audio", "transcript": "Hello."}]
    assert [request.voice for request in fake.requests] == ["ryan"]


# Any order of messages


def message(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


TEXTS = ["Hello.", "", "...", "One. Two. ", "word " * 90, "x" * 1001]
CANCEL = message("response.cancel")
MESSAGES = st.one_of(
    st.sampled_from(TEXTS).map(
        lambda text: message("response.create", response={"input": [user(text)]})
    ),
    st.sampled_from(TEXTS).map(lambda text: message("conversation.item.create", item=user(text))),
    st.sampled_from(["response.create", "make", "session.update", "x"]).map(message),
    st.just(CANCEL),
    st.sampled_from(
        [
            message("session.update", session={"voice": "aiden"}),
            message("session.update", session={"type": "realtime", "audio": {"output": {}}}),
            message("conversation.item.delete", item_id="x"),
            message("response.cancel", response_id="x"),
        ]
    ),
    st.sampled_from(["{", "[]", "{}", "null", '{"type": "response.create", "response": 1}']),
    st.text(max_size=5),
)


class Session:
    """The dialect over a fake engine, without a socket."""

    def __init__(self, script: Script) -> None:
        self.fake = FakeEngine(script)
        self.outbox = Outbox()
        contexts = Contexts(FakeMouth(self.fake), self.outbox, 1000)
        self.dialect = OpenAIRealtime(self.configure, contexts, self.outbox, idle_s=30)
        self.sent: list[dict[str, Any]] = []

    async def configure(self, body: SpeechBody) -> Manner:
        await asyncio.sleep(0)
        return Manner(engine.SpeechRequest(""), PCM)

    async def write(self, event: Event) -> None:
        for frame in self.dialect.frames(event):
            self.sent.append(json.loads(frame))
            await asyncio.sleep(0)

    async def receive(self, message: str) -> None:
        """Take a message; "make" lets the engine go on instead."""
        if message == '{"type": "make"}':
            self.fake.advance(1)
            await asyncio.sleep(0)
        else:
            await self.dialect.receive(message)

    async def finish(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.dialect.speaking:
            assert time.monotonic() < end
            self.fake.advance(9)
            await asyncio.sleep(0.001)
        await self.outbox.drained()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(MESSAGES, max_size=16),
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
    session.dialect.begin("fake-voice", "aiden")
    writer = asyncio.create_task(session.outbox.run(session.write))
    with suppress(Close):
        for each in messages:
            await session.receive(each)
    await session.finish()
    assert not writer.done()
    assert session.dialect._active == session.dialect._found == {}
    await session.dialect.aclose()
    writer.cancel()
    assert session.fake.active == 0
    assert session.sent[0]["type"] == "session.created"
    check(session.sent)


def check(sent: list[dict[str, Any]]) -> None:
    """Each response begins once, ends once, and its sound lies between."""
    state: dict[str, str] = {}
    for each in sent:
        kind = each["type"].replace("response.audio", "response.output_audio")
        if kind in ("response.created", "response.done"):
            response = each["response"]["id"]
            assert state.get(response) != "response.done"
            assert (kind == "response.created") == (response not in state)
        elif "response_id" in each:
            response = each["response_id"]
            assert state[response] != "response.done"
            if kind == "response.output_audio.delta":
                assert state[response] in (
                    "response.output_audio_transcript.delta", "response.output_audio.delta",
                )  # fmt: skip
        else:
            continue
        state[response] = kind
    assert set(state.values()) <= {"response.done"}


def test_nothing_is_left_of_a_session_whose_client_is_gone(
    serve: Callable[..., Live], fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=0)
    with dialled(serve().url) as client:
        for _ in range(3):
            client.say("Hello.")
        assert eventually(lambda: fake.active == 3)
    assert fake.wait_for(0)
