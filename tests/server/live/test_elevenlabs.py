"""ElevenLabs' sockets, over a real one with a fake engine."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

import engine
from server.live import elevenlabs
from server.live.elevenlabs import ElevenLabs
from server.live.events import Flushed
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import Limits
from tests.fakes import FakeEngine, Script, pcm16
from tests.server.conftest import Live
from tests.server.live.calling import Caller, called
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import eventually, run

ONE = "/v1/text-to-speech/vivian/stream-input?output_format=pcm_24000"
SEVERAL = "/v1/text-to-speech/vivian/multi-stream-input?output_format=pcm_24000"
Message = dict[str, Any]
Serve = Callable[..., Live]
Dial = Callable[..., AbstractContextManager[Caller]]


@pytest.fixture
def dial(serve: Serve) -> Dial:
    return lambda path, **options: called(serve().url, path, **options)


def final(message: Message) -> bool:
    return message.get("isFinal") is True


def sound(messages: list[Message], context: str | None = None) -> bytes:
    told = [each for each in messages if each.get("audio") and each.get("contextId") == context]
    return b"".join(base64.b64decode(each["audio"]) for each in told)


# One context


def test_words_are_spoken_as_they_come_and_an_empty_text_ends_the_socket(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=5)
    with dial(ONE + "&seed=7&language_code=en&model_id=eleven_turbo_v2_5") as caller:
        caller.send(text=" ", voice_settings=None, try_trigger_generation=True)
        caller.send(text="Hello ", try_trigger_generation=True)
        first = caller.read()
        assert base64.b64decode(first["audio"]) == pcm16(1)
        assert (first["alignment"], first["normalizedAlignment"]) == (None, None)
        caller.send(text="there. ")
        caller.send(text="")
        code, _, messages = caller.closed()
    assert code == 1000
    assert sound([first, *messages]) == pcm16(5)
    assert messages[-1] == {
        "audio": None, "isFinal": True, "alignment": None, "normalizedAlignment": None,
    }  # fmt: skip
    assert sum(map(final, messages)) == 1
    assert [live.text for live in fake.lives] == ["Hello there. "]
    request = fake.requests[0]
    assert (request.voice, request.sampling.seed, request.language) == ("vivian", 7, "en")


def test_a_flush_completes_an_utterance_and_the_socket_goes_on(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=2)
    with dial(ONE) as caller:
        caller.send(text="One. ", flush=True)
        caller.send(text="Two. ", flush=True)
        caller.send(text="")
        code, _, messages = caller.closed()
    assert code == 1000
    assert sound(messages) == pcm16(2) * 2
    assert [live.text for live in fake.lives] == ["One. ", "Two. "]


def test_an_empty_text_at_once_is_a_good_end(dial: Dial, fake: FakeEngine) -> None:
    with dial(ONE) as caller:
        caller.send(text="")
        code, _, messages = caller.closed()
    assert code == 1000 and [final(each) for each in messages] == [True]
    assert fake.requests == []


def test_what_follows_the_end_of_input_is_ignored(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=2)
    with dial(ONE) as caller:
        caller.send(text="One.")
        caller.send(text="")
        caller.send(text="Two.")
        caller.socket.send("{")
        code, _, messages = caller.closed()
    assert code == 1000 and sound(messages) == pcm16(2)


def test_text_that_failed_is_told_and_the_end_is_no_good_one(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=2, fail=engine.GenerationFailed("nothing usable"))
    with dial(ONE) as caller:
        caller.send(text="Hello. ")
        caller.send(text="")
        code, reason, messages = caller.closed()
    assert (code, reason) == (1008, "some of the text was not spoken")
    assert messages[-1] == {
        "message": "nothing usable", "error": "generation_failed", "param": None,
    }  # fmt: skip


def test_text_that_was_refused_is_told_and_the_end_is_no_good_one(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(refuse=engine.Overloaded("full", 2.0, 9))
    with dial(ONE) as caller:
        caller.send(text="Hello. ")
        told = caller.read()
        assert told["error"] == "rate_limit_exceeded" and told["queue_depth"] == 9
        fake.script = Script(frames=1)
        caller.send(text="Hello. ", flush=True)
        assert caller.until(lambda message: message["audio"])
        caller.send(text="")
        assert caller.closed()[0] == 1008


def test_a_socket_on_which_everything_was_refused_ends_badly(dial: Dial) -> None:
    with dial(ONE) as caller:
        caller.send(text="Hello.", voice_settings={"speed": 9})
        assert caller.read()["param"] == "speed"
        caller.send(text="")
        assert caller.closed()[0] == 1008


def test_normalization_is_done_sentence_by_sentence_when_it_is_on(
    dial: Dial, fake: FakeEngine
) -> None:
    for mode in ("on", "off", "auto"):
        with dial(f"{ONE}&apply_text_normalization={mode}") as caller:
            caller.send(text="Hello. ")
            caller.send(text="")
            caller.closed()
    assert [request.normalize for request in fake.requests] == [True, False, None]


# Several contexts


def test_contexts_speak_side_by_side_and_each_ends_once(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=3)
    with dial(SEVERAL) as caller:
        for name in ("a", "b"):
            caller.send(text=" ", context_id=name, voice_settings={"speed": 1.0})
            caller.send(text=f"Hello {name}. ", context_id=name)
        for name in ("a", "b"):
            caller.send(text="", context_id=name, flush=True)
            caller.send(context_id=name, close_context=True)
        messages = caller.until(final)
        messages += caller.until(final)
        caller.send(close_socket=True)
        assert caller.closed()[0] == 1000
    assert {each["contextId"] for each in messages if final(each)} == {"a", "b"}
    assert sound(messages, "a") == sound(messages, "b") == pcm16(3)
    assert sorted(live.text for live in fake.lives) == ["Hello a. ", "Hello b. "]


def test_a_flush_alone_has_no_end_and_a_flush_without_a_context_opens_none(dial: Dial) -> None:
    with dial(SEVERAL) as caller:
        caller.send(context_id="nobody", flush=True)
        caller.send(text="", context_id="nobody")
        caller.send(text="")
        caller.send(text="One. ", flush=True)
        caller.send(flush=True)
        caller.send(close_context=True)
        messages = caller.until(final)
    assert {each["contextId"] for each in messages} == {"default"}
    assert messages[-1] == {"isFinal": True, "contextId": "default"}


def test_a_context_that_is_closed_in_mid_text_is_stopped_and_acknowledged(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial(SEVERAL) as caller:
        caller.send(text="Hello there, and ", context_id="a")
        caller.until(lambda message: message.get("audio"))
        caller.send(close_context=True, context_id="a")
        assert caller.until(final)[-1]["contextId"] == "a"
        assert fake.wait_for(0)
        fake.script = Script(frames=1)
        caller.send(text="Yes.", context_id="a", flush=True)
        assert sound([caller.read()], "a") == pcm16(1)


def test_what_was_flushed_is_said_before_its_context_ends(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=6)
    with dial(SEVERAL) as caller:
        caller.send(text="One. ", context_id="a", flush=True)
        caller.send(close_context=True, context_id="a")
        caller.send(close_context=True, context_id="a")
        caller.send(text="Again. ", context_id="a", flush=True)
        caller.send(close_socket=True)
        code, _, messages = caller.closed()
    assert code == 1000
    assert sum(map(final, messages)) == 2
    assert sound(messages, "a") == pcm16(6) * 2


def test_a_name_that_is_used_again_while_its_context_still_speaks_waits_for_its_end(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=4, at_once=1)
    with dial(SEVERAL) as caller:
        caller.send(context_id="a", text="One. ", flush=True)
        first = caller.read()
        caller.send(context_id="a", close_context=True)
        fake.script = Script(frames=2, at_once=1)
        caller.send(context_id="a", text="Two. ", voice_settings={"speed": 0.5})
        caller.send(context_id="a", text="", flush=True)
        caller.send(context_id="a", close_context=True)
        assert eventually(lambda: len(fake.lives) == 2)
        fake.advance(9)
        before = [first, *caller.until(final)]
        after = caller.until(final)
        caller.send(close_socket=True)
        assert caller.closed() == (1000, "close_socket", [])
    assert sound(before, "a") == pcm16(4)
    # Half as fast is twice as long.
    assert len(sound(after, "a")) == pytest.approx(2 * len(pcm16(2)), rel=0.2)
    assert {each["contextId"] for each in (*before, *after)} == {"a"}


def test_an_interruption_of_a_name_that_is_used_again_ends_both_of_its_texts(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=9, at_once=1)
    with dial(SEVERAL) as caller:
        caller.send(context_id="a", text="One. ", flush=True)
        caller.read()
        caller.send(context_id="a", close_context=True)
        caller.send(context_id="a", text="Two. ")
        caller.send(context_id="a", close_context=True)
        assert list(map(final, caller.until(final))) == [True]
        assert final(caller.read())
        caller.send(context_id="a", text="Three. ")
        assert caller.read()["audio"]


def test_closing_a_context_there_is_not_is_acknowledged_once(dial: Dial) -> None:
    with dial(SEVERAL) as caller:
        caller.send(close_context=True, context_id="x")
        caller.send(close_context=True, context_id="x")
        assert caller.read() == {"isFinal": True, "contextId": "x"}
        caller.send(close_socket=True)
        assert caller.closed()[:2] == (1000, "close_socket")


def test_more_contexts_than_allowed_are_refused_and_the_others_go_on(dial: Dial) -> None:
    with dial(SEVERAL) as caller:
        for number in range(elevenlabs.MOST_CONTEXTS + 1):
            caller.send(text=" ", context_id=f"{number}")
        told = caller.read()
        assert "16" in told["message"]
        assert told["contextId"] == "16"
        caller.send(text="Hello. ", context_id="3", flush=True)
        caller.send(close_context=True, context_id="3")
        assert caller.until(final)


def test_voice_settings_may_change_between_texts_only(dial: Dial, fake: FakeEngine) -> None:
    with dial(SEVERAL) as caller:
        caller.send(text="One. ", context_id="a", voice_settings={"speed": 1.0})
        caller.send(text="Two. ", context_id="a", voice_settings={"speed": 1.0})
        caller.send(text="Three. ", context_id="a", voice_settings={"speed": 2.0})
        told = caller.until(lambda message: "message" in message)[-1]
        assert told["param"] == "voice_settings" and "flush" in told["message"]
        caller.send(context_id="a", flush=True)
        caller.send(text="Three. ", context_id="a", voice_settings={"speed": 2.0}, flush=True)
        caller.send(close_context=True, context_id="a")
        caller.until(final)
    assert [live.text for live in fake.lives] == ["One. Two. ", "Three. "]


def test_what_has_no_effect_and_how_speech_ended_is_told_at_the_end(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(reason=engine.FinishReason.LOOP, warnings=("the style is ignored",))
    with dial(SEVERAL + "&enable_ssml_parsing=true&sync_alignment=false") as caller:
        caller.send(text="Hi. ", voice_settings={"stability": 0.5}, generation_config={"x": 1})
        caller.send(flush=True)
        caller.send(text="Ho. ", voice_settings={"style": 0.5}, flush=True)
        caller.send(close_context=True)
        warning = caller.until(final)[-1]["warning"]
    for word in ("stability", "style", "generation_config", "enable_ssml_parsing", "`loop`"):
        assert word in warning
    assert "the style is ignored" in warning
    assert "sync_alignment" not in warning


# What is wrong


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ("[" * 9000, "not JSON"),
        ("{}", "`text`"),
        ('{"text": 5}', "`text`"),
        ('{"text": "Hi. ", "flush": "yes"}', "`flush` must be true or false"),
        ('{"text": "Hi. ", "context_id": 5}', "`context_id`"),
        ('{"text": "Hi. ", "context_id": "' + "x" * 300 + '"}', "256 characters"),
        ('{"close_context": 1}', "`close_context`"),
        ('{"text": "Hi. ", "voice_settings": {"speed": 9}}', "`speed`"),
        ('{"text": "Hi. ", "voice_settings": 9}', "`voice_settings`"),
        (json.dumps({"text": "x" * 140_000}), "131072 characters"),
        (json.dumps({"text": "x. " * 3000}), "characters that are not spoken"),
    ],
)  # fmt: skip
def test_a_bad_message_is_told_and_the_socket_goes_on(
    serve: Serve, message: str, says: str
) -> None:
    with called(serve(max_input_chars=5000).url, SEVERAL) as caller:
        caller.socket.send(message)
        told = caller.read()
        assert says in told["message"] and isinstance(told["error"], str)
        caller.send(text="Hello. ", context_id="a", flush=True)
        caller.send(close_context=True, context_id="a")
        assert sound(caller.until(final), "a") == pcm16(5)


def test_half_a_character_is_no_fault_of_ours(dial: Dial) -> None:
    with dial(SEVERAL) as caller:
        caller.socket.send('{"text": "\\ud800 hello", "context_id": "\\ud800", "flush": true}')
        caller.socket.send('{"context_id": "\\ud800", "close_context": true}')
        assert final(caller.until(final)[-1])


def test_a_binary_message_closes_the_socket(dial: Dial) -> None:
    with dial(ONE) as caller:
        caller.socket.send(b"sound")
        assert caller.closed()[0] == 1003


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("&output_format=wav_24000", "`output_format` 'wav_24000' is not for a socket"),
        ("&output_format=mp4", "unknown `output_format`"),
        ("&seed=x", "`seed` must be a number"),
        ("&seed=0.5", "`seed` must be a whole number"),
        ("&inactivity_timeout=x", "`inactivity_timeout` must be a number"),
        ("&inactivity_timeout=181", "`inactivity_timeout` must be above 0 and at most 180"),
        ("&inactivity_timeout=nan", "`inactivity_timeout` must be a number below 1e12"),
        ("&language_code=klingon", "klingon"),
        ("&apply_text_normalization=maybe", "'auto', 'on' or 'off'"),
    ],
)
def test_a_bad_query_is_refused_at_the_handshake(dial: Dial, query: str, says: str) -> None:
    path = ONE.partition("?")[0] + "?" + query.removeprefix("&")
    with pytest.raises(InvalidStatus) as caught, dial(path):
        pass
    body = json.loads(caught.value.response.body)
    assert caught.value.response.status_code == 400
    assert says in body["detail"]["message"] == body["error"]["message"]


def test_an_unknown_voice_and_a_foreign_page_are_refused_at_the_handshake(serve: Serve) -> None:
    url = serve(cors_origins="https://good.example").url
    with pytest.raises(InvalidStatus) as caught, called(url, ONE.replace("vivian", "nobody")):
        pass
    assert json.loads(caught.value.response.body)["detail"]["status"] == "voice_not_found"
    with pytest.raises(InvalidStatus), called(url, ONE, origin="https://evil.example"):
        pass


# Ends


def test_a_client_that_leaves_frees_everything(dial: Dial, fake: FakeEngine) -> None:
    fake.script = Script(frames=99, at_once=1)
    for path in (ONE, SEVERAL):
        with dial(path) as caller:
            caller.send(text="Hello there ")
            caller.read()
            assert fake.active == 1
        assert fake.wait_for(0)


def test_a_client_that_leaves_after_its_last_message_frees_everything(
    dial: Dial, fake: FakeEngine
) -> None:
    fake.script = Script(frames=99, at_once=1)
    with dial(ONE) as caller:
        caller.send(text="Hello there ")
        caller.send(text="")
        caller.read()
    assert fake.wait_for(0)


def test_an_idle_socket_is_closed_with_an_error_only_where_a_context_is_open(dial: Dial) -> None:
    with dial(ONE + "&inactivity_timeout=0.1") as caller:
        assert caller.closed()[:2] == (1000, "idle")
    with dial(ONE + "&inactivity_timeout=0.1") as caller:
        caller.send(text=" ")
        code, _, messages = caller.closed()
        assert code == 1008 and messages[-1]["error"] == "input_timeout"


def test_a_forgotten_context_is_ended_and_one_kept_alive_is_not() -> None:
    assert run(forget()) == ["old"]


def test_a_context_is_forgotten_from_the_end_of_its_speech_on() -> None:
    assert run(forget(speaks=True)) == ["kept"]


async def forget(speaks: bool = False) -> list[str]:
    now = [0.0]
    sent: list[Message] = []
    told, flushed = asyncio.Event(), asyncio.Event()

    async def configure(data: dict[str, Any]) -> tuple[Manner, tuple[str, ...]]:
        return Manner(engine.SpeechRequest(""), PCM), ()

    async def write(event: Any) -> None:
        messages = [json.loads(frame) for frame in dialect.frames(event)]
        sent.extend(message for message in messages if "audio" not in message)
        if sent:
            told.set()
        if isinstance(event, Flushed):
            flushed.set()

    outbox = Outbox()
    dialect = ElevenLabs(
        configure,
        FakeMouth(FakeEngine()),
        outbox,
        Limits(30, 1000),
        several=True,
        clock=lambda: now[0],
    )
    for name in ("old", "kept"):
        await dialect.receive(json.dumps({"text": " ", "context_id": name}))
    if speaks:
        await dialect.receive(json.dumps({"text": "Hi.", "context_id": "old", "flush": True}))
    now[0] = 20
    await dialect.receive(json.dumps({"text": "", "context_id": "kept"}))
    now[0] = 25
    writer = asyncio.create_task(outbox.run(write))
    if speaks:
        await flushed.wait()
    now[0] = 52 if speaks else 40
    await dialect.receive(json.dumps({"text": " ", "context_id": "new"}))
    await told.wait()
    await dialect.aclose()
    writer.cancel()
    return [each["contextId"] for each in sent]


# Keys


@pytest.mark.parametrize(
    "first",
    [{"xi_api_key": "sesame"}, {"xi-api-key": "sesame"}, {"authorization": "Bearer sesame"}],
)
def test_a_key_may_come_in_the_first_message(
    serve: Serve, fake: FakeEngine, first: dict[str, str]
) -> None:
    with called(serve(api_keys="alice:sesame", key_concurrency=1).url, ONE) as caller:
        caller.send(text=" ", **first)
        caller.send(text="Hello.")
        caller.send(text="")
        code, _, messages = caller.closed()
    assert code == 1000 and sound(messages) == pcm16(5)
    assert fake.envelopes[0]["tenant"] == "alice"


@pytest.mark.parametrize("first", [{"xi_api_key": "wrong"}, {"xi_api_key": "\ud800é"}, {}])
def test_without_a_key_in_the_first_message_the_socket_is_closed(
    serve: Serve, fake: FakeEngine, first: dict[str, str]
) -> None:
    with called(serve(api_keys="sesame").url, SEVERAL) as caller:
        caller.send(text="Hello. ", **first)
        code, _, messages = caller.closed()
    assert code == 1008 and [each["error"] for each in messages] == ["invalid_api_key"]
    assert fake.requests == []


def test_a_socket_that_brings_no_key_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elevenlabs, "KEY_S", 0.1)
    with called(serve(api_keys="sesame").url, ONE) as caller:
        code, _, messages = caller.closed()
    assert code == 1008 and messages[0]["error"] == "invalid_api_key"


def test_a_wrong_key_in_a_header_is_refused_at_the_handshake_and_a_right_one_is_enough(
    serve: Serve,
) -> None:
    url = serve(api_keys="sesame").url
    wrong = {"additional_headers": {"xi-api-key": "wrong"}}
    with pytest.raises(InvalidStatus) as caught, called(url, ONE, **wrong):
        pass
    assert caught.value.response.status_code == 401
    with called(url, ONE, additional_headers={"xi-api-key": "sesame"}) as caller:
        caller.send(text="")
        assert caller.closed()[0] == 1000


def test_a_key_from_a_message_holds_its_place_until_the_socket_ends(serve: Serve) -> None:
    url = serve(api_keys="sesame", key_concurrency=1).url
    with called(url, SEVERAL) as caller:
        caller.send(text=" ", xi_api_key="sesame")
        caller.send(close_context=True)
        caller.read()
        with called(url, SEVERAL) as other:
            other.send(text=" ", xi_api_key="sesame")
            code, _, messages = other.closed()
            assert code == 1008 and messages[0]["error"] == "rate_limit_exceeded"
