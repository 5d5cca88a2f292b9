"""Deepgram's socket, over a real one with a fake engine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

import engine
from server.live.deepgram import Deepgram
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import Limits
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import Live
from tests.server.live.calling import Caller, called
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import run

SPEAK = "/v1/speak?model=vivian&encoding=linear16&sample_rate=24000"
Message = dict[str, Any]
Serve = Callable[..., Live]
Dial = Callable[..., AbstractContextManager[Caller]]


@pytest.fixture
def dial(serve: Serve) -> Dial:
    return lambda path=SPEAK, **options: called(serve().url, path, **options)


def kind(name: str) -> Callable[[Message], bool]:
    return lambda message: message["type"] == name


def kinds(messages: list[Message]) -> list[str]:
    return [message["type"] for message in messages]


def speak(caller: Caller, *texts: str) -> None:
    for text in texts:
        caller.send(type="Speak", text=text)


def test_metadata_comes_first(dial: Dial) -> None:
    with dial() as caller:
        told = caller.read()
        headers = caller.socket.response.headers  # type: ignore[union-attr]
    assert told["type"] == "Metadata" and told["model_name"] == "fake-voice"
    assert uuid.UUID(told["model_uuid"]) and told["model_version"]
    assert told["request_id"] == headers["dg-request-id"] == headers["x-request-id"]


def test_words_are_spoken_as_they_come_and_each_flush_is_answered_once_after_its_sound(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=4)
    with dial(SPEAK + "&speed=1.0&mip_opt_out=true") as caller:
        for turn in range(2):
            caller.sound = b""
            speak(caller, "Hello ", "there. ")
            caller.send(type="Flush")
            assert caller.until(kind("Flushed"))[-1] == {"type": "Flushed", "sequence_id": turn}
            assert caller.sound == pcm16(4)
        caller.send(type="Flush")
        assert caller.read() == {"type": "Flushed", "sequence_id": 2}
    assert [live.text for live in fake.lives] == ["Hello there. "] * 2
    assert fake.requests[0].voice == "vivian"


@pytest.mark.parametrize(("encoding", "size"), [("mulaw", 1), ("alaw", 1), ("linear16", 2)])
def test_sound_is_bare_samples_of_the_encoding(dial: Dial, encoding: str, size: int) -> None:
    with dial(f"/v1/speak?encoding={encoding}&sample_rate=8000") as caller:
        speak(caller, "Hello.")
        caller.send(type="Flush")
        caller.until(kind("Flushed"))
        assert len(caller.sound) == pytest.approx(5 * 640 * size, abs=64)


def test_linear16_at_24_khz_is_what_nobody_asked_for_gets(dial: Dial) -> None:
    with dial("/v1/speak") as caller:
        speak(caller, "Hello.")
        caller.send(type="Flush")
        caller.until(kind("Flushed"))
        assert caller.sound == pcm16(5)


def test_a_clear_is_acknowledged_and_nothing_of_before_follows(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial() as caller:
        speak(caller, "Hello there, and ", "so on. ")
        caller.send(type="Flush")
        caller.send(type="Clear")
        messages = caller.until(kind("Cleared"))
        assert kinds(messages) == ["Metadata", "Cleared"]
        assert fake.wait_for(0)
        fake.script = Script(frames=2)
        caller.sound = b""
        speak(caller, "Yes. ")
        caller.send(type="Flush")
        assert caller.read() == {"type": "Flushed", "sequence_id": 1}
        assert caller.sound == pcm16(2)
        caller.send(type="Clear")
        assert caller.read() == {"type": "Cleared", "sequence_id": 2}


def test_close_says_what_was_sent_without_a_flushed_of_its_own(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=3)
    with dial() as caller:
        speak(caller, "One. ")
        caller.send(type="Flush")
        speak(caller, "Two. ")
        caller.send(type="Close")
        speak(caller, "Three. ")
        code, _, messages = caller.closed()
    assert code == 1000
    assert kinds(messages) == ["Metadata", "Flushed"]
    assert caller.sound == pcm16(3) * 2


def test_a_clear_after_close_ends_the_socket_at_once(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial() as caller:
        speak(caller, "One. ")
        caller.send(type="Close")
        caller.send(type="Clear")
        code, _, messages = caller.closed()
    assert code == 1000 and kinds(messages) == ["Metadata", "Cleared"]


def test_close_after_a_clear_ends_the_socket(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial() as caller:
        speak(caller, "One. ")
        caller.send(type="Flush")
        caller.send(type="Clear")
        caller.send(type="Close")
        code, _, messages = caller.closed()
    assert code == 1000 and kinds(messages) == ["Metadata", "Cleared"]


def test_a_voice_of_theirs_that_is_not_here_is_warned_of(dial: Dial) -> None:
    with dial("/v1/speak?model=aura-2-thalia-en") as caller:
        assert caller.read()["type"] == "Metadata"
        warning = caller.read()
    assert warning["type"] == "Warning" and "thalia" in warning["description"]
    assert warning["warn_msg"] == warning["description"]
    assert warning["warn_code"] == warning["code"] == "NO_EFFECT"


def test_speech_that_ended_by_itself_is_warned_of(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(reason=engine.FinishReason.LENGTH, warnings=("the style is ignored",))
    with dial() as caller:
        speak(caller, "Hello.")
        caller.send(type="Flush")
        messages = caller.until(kind("Flushed"))
    assert kinds(messages) == ["Metadata", "Warning", "Warning", "Flushed"]
    assert [each["code"] for each in messages[1:3]] == ["ENGINE", "LENGTH"]


def test_speech_that_failed_is_an_error_before_its_flushed(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=2, fail=engine.GenerationFailed("nothing usable"))
    with dial() as caller:
        speak(caller, "Hello.")
        caller.send(type="Flush")
        _, error, flushed = caller.until(kind("Flushed"))
        assert error["type"] == "Error"
        assert (error["err_code"], error["err_msg"]) == ("GENERATION_FAILED", "nothing usable")
        fake.script = Script(frames=2)
        speak(caller, "Hello.")
        caller.send(type="Flush")
        assert caller.read()["sequence_id"] == flushed["sequence_id"] + 1


def test_what_the_engine_refuses_is_told_and_the_session_goes_on(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(refuse=engine.Overloaded("full", 2.0, 9))
    with dial() as caller:
        speak(caller, "Hello.")
        assert caller.until(kind("Error"))[-1]["code"] == "RATE_LIMIT_EXCEEDED"
        fake.script = Script(frames=1)
        speak(caller, "Hello.")
        caller.send(type="Flush")
        assert caller.read()["type"] == "Flushed"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "not JSON"),
        ("7", "JSON object"),
        ("{}", "unknown message type None; one of Speak, Flush, Clear, Close"),
        ('{"type": "Dance"}', "unknown message type 'Dance'"),
        ('{"type": "Speak"}', "`text`"),
        ('{"type": "Speak", "text": 5}', "`text`"),
        (json.dumps({"type": "Speak", "text": "x" * 140_000}), "131072 characters"),
    ],
)
def test_a_bad_message_is_told_and_the_session_goes_on(dial: Dial, message: str, says: str) -> None:
    with dial() as caller:
        caller.socket.send(message)
        error = caller.until(kind("Error"))[-1]
        assert says in error["description"]
        assert error["err_code"] == "INVALID_REQUEST_ERROR" and error["request_id"]
        speak(caller, "\ud800 Hello.")
        caller.send(type="Flush")
        caller.until(kind("Flushed"))
        assert caller.sound == pcm16(5)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("encoding=mp3", "`encoding` of a socket must be one of linear16, mulaw, alaw"),
        ("encoding=linear16&container=wav", "`container` of a socket must be `none`"),
        ("encoding=linear16&bit_rate=48000", "`bit_rate` does not go with linear16"),
        ("sample_rate=many", "`sample_rate` must be a number"),
        ("speed=9", "`speed`"),
        ("model=nobody", "unknown voice 'nobody'"),
        ("callback=http://x.example", "`callback` is not served"),
    ],
)
def test_a_bad_query_is_refused_at_the_handshake(dial: Dial, query: str, says: str) -> None:
    with pytest.raises(InvalidStatus) as caught, dial(f"/v1/speak?{query}"):
        pass
    response = caught.value.response
    assert response.status_code == 400
    assert says in json.loads(response.body)["err_msg"]
    assert says in response.headers["dg-error"]


def test_a_key_comes_in_the_header_as_everywhere(serve: Serve) -> None:
    url = serve(api_keys="sesame").url
    with pytest.raises(InvalidStatus), called(url, SPEAK):
        pass
    with called(url, SPEAK, additional_headers={"Authorization": "Token sesame"}) as caller:
        assert caller.read()["type"] == "Metadata"


def test_a_client_that_leaves_frees_everything(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial() as caller:
        speak(caller, "Hello there ")
        caller.read()
        assert fake.wait_for(1)
    assert fake.wait_for(0)


def test_a_socket_left_alone_is_closed_with_a_warning() -> None:
    assert run(leave()) == ["Metadata", "Warning"]


async def leave() -> list[str]:
    outbox = Outbox()
    manner = Manner(engine.SpeechRequest(""), PCM)
    mouth, limits = FakeMouth(FakeEngine()), Limits(3600, 1000)
    dialect = Deepgram(manner, mouth, outbox, limits, request_id="r", model="m")
    assert dialect.patience_s == 3600 and not dialect.speaking
    assert dialect.late().code == 1000
    sent: list[str] = []

    async def write(event: Any) -> None:
        sent.extend(json.loads(frame)["type"] for frame in dialect.frames(event))
        if len(sent) == 2:
            raise EOFError

    with pytest.raises(EOFError):
        await outbox.run(write)
    await dialect.aclose()
    return sent
