"""Four sockets on a real tiny engine: words, floods, pings, bad messages, sudden ends."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Iterator

import pytest

import engine
from server.settings import Settings
from tests.fakes import FakeEngine, Script
from tests.faults.speaking import balanced
from tests.server.conftest import Live
from tests.server.live.calling import called
from tests.server.live.test_vllm_omni import Client, dialled

TEXT = "Hello there, Dr. Lee. It is 3.5, or so! Good bye."


@pytest.fixture(scope="module")
def served(custom_voice: engine.ModelFiles) -> Iterator[tuple[engine.Engine, str]]:
    config = engine.EngineConfig(
        slots=2, kv_positions=1024, nan_fill=True, device="cpu", kernels="plain"
    )
    speaker = engine.load(custom_voice, config)
    with Live(speaker, Settings(drain_timeout_s=1)) as running:
        yield speaker, running.url


@pytest.fixture
def url(served: tuple[engine.Engine, str]) -> Iterator[str]:
    yield served[1]
    assert balanced(served[0])


def utter(client: Client, pieces: list[str]) -> tuple[list[str], bytes]:
    """Say one utterance: the kinds of messages and the sound that came back."""
    client.sound = b""
    for piece in pieces:
        client.send("input.text", text=piece)
    client.send("input.done")
    kinds = [each["type"] for each in client.until("session.done")]
    return kinds, client.sound


def test_words_and_the_whole_text_sound_the_same_and_end_once(url: str) -> None:
    with dialled(url) as client:
        client.config(seed=4, max_new_tokens=60)
        words = [f"{word} " for word in TEXT.split()[:-1]] + TEXT.split()[-1:]
        kinds, sound = utter(client, words)
        assert kinds == ["audio.start", "audio.done", "session.done"]
        assert len(sound) == 60 * 3840
        again = utter(client, [TEXT])[1]
        pairs = zip(memoryview(sound).cast("h"), memoryview(again).cast("h"), strict=True)
        assert max(abs(left - right) for left, right in pairs) <= 4


def test_a_long_text_in_one_message_has_one_place_and_frees_it_when_its_client_leaves(
    served: tuple[engine.Engine, str], url: str
) -> None:
    with dialled(url) as client:
        client.config(max_new_tokens=60)
        client.send("input.text", text="The quick brown fox jumps over the lazy dog. " * 200)
        assert client.read()["type"] == "audio.start"
        assert asyncio.run(served[0].stats()).active == 1
    with dialled(url) as client:
        client.config(seed=4, max_new_tokens=10)
        kinds, sound = utter(client, ["The quick brown fox jumps over the lazy dog. " * 60])
        assert kinds == ["audio.start", "audio.done", "session.done"]
        assert len(sound) > 10 * 3840 and len(sound) % (10 * 3840) == 0


def test_a_cancel_leaves_a_session_that_speaks_on(url: str) -> None:
    with dialled(url) as client:
        client.config(seed=1, max_new_tokens=40)
        client.send("input.text", text="Hello there, you and ")
        client.until("audio.start")
        client.send("input.cancel")
        client.until("session.cancelled")
        kinds, sound = utter(client, ["Good bye."])
        assert kinds == ["audio.start", "audio.done", "session.done"]
        assert len(sound) == 40 * 3840


def test_four_sockets_that_behave_badly_in_turn_are_all_served(url: str) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            behave(url, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert failures == []


def behave(url: str, number: int) -> None:
    chance = random.Random(number)
    for _ in range(2):
        with dialled(url) as client:
            cut = chance.choice(["none", "sentence", "clause"])
            client.config(split_granularity=cut, max_new_tokens=6, seed=number)
            client.socket.ping().wait(20)
            client.socket.send("{" * chance.randrange(1, 9))
            assert client.read()["type"] == "error"
            flood = [TEXT[at : at + 1] for at in range(len(TEXT))]
            kinds, _ = utter(client, flood)
            assert kinds[-1] == "session.done" and "error" not in kinds
            client.send("input.text", text=TEXT)
            client.until("audio.start")
            if chance.random() < 0.5:
                client.send("input.cancel")
                client.until("session.cancelled")
            elif chance.random() < 0.5:
                # Closes its sending side without a word, in the middle.
                client.socket.socket.shutdown(socket.SHUT_WR)


def test_who_does_not_read_is_cut_off_and_holds_nothing() -> None:
    fake = FakeEngine(Script(frames=3001, at_once=3000))  # more than sockets buffer
    fake.warm.set()
    with Live(fake, Settings(drain_timeout_s=1, send_timeout_s=0.5)) as running:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(running.socket.getsockname())
        with dialled(running.url, sock=deaf, max_queue=1) as client:
            client.config(split_granularity="sentence")
            client.send("input.text", text="Hello.")
            client.send("input.done")
            assert fake.wait_for(1)
            assert fake.wait_for(0)
            assert client.cut()


def test_contexts_and_words_of_other_dialects_leave_nothing_behind(url: str) -> None:
    path = "/v1/text-to-speech/vivian/multi-stream-input?output_format=pcm_24000"
    with called(url, path) as caller:
        caller.send(text="Hello there. ", context_id="said", flush=True)
        caller.send(context_id="said", close_context=True)
        for name in ("stopped", "left"):
            caller.send(text="Once upon a time ", context_id=name)
        caller.send(context_id="stopped", close_context=True)
        ends = [caller.until(lambda message: message.get("isFinal")) for _ in range(2)]
        assert {messages[-1]["contextId"] for messages in ends} == {"said", "stopped"}
    with called(url, "/v1/speak?model=vivian") as caller:
        for word in ("Hello ", "there. "):
            caller.send(type="Speak", text=word)
        caller.send(type="Clear")
        caller.send(type="Speak", text="Yes. ")
        caller.send(type="Flush")
        kinds = [each["type"] for each in caller.until(lambda each: each["type"] == "Flushed")]
        # The model of a test does not know when to stop.
        assert [kind for kind in kinds if kind != "Warning"] == ["Metadata", "Cleared", "Flushed"]
        assert caller.sound
        caller.send(type="Speak", text="Once upon a time ")


def test_responses_and_contexts_that_are_cancelled_or_left_leave_nothing_behind(url: str) -> None:
    with called(url, "/v1/realtime") as caller:
        item = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": TEXT}],
        }
        for limit in (6, "inf", "inf"):
            caller.send(
                type="response.create", response={"input": [item], "max_output_tokens": limit}
            )
        made = [
            caller.until(lambda message: message["type"] == "response.created")[-1]["response"]
            for _ in range(3)
        ]
        caller.send(type="response.cancel", response_id=made[1]["id"])
        told = caller.until(lambda message: message.get("response", {}).get("id") == made[1]["id"])
        assert told[-1]["response"]["status"] == "cancelled"
    with called(url, "/tts/websocket") as caller:
        for name in ("stopped", "left"):
            for word in ("Hello ", "there. ", "Good "):
                caller.send(context_id=name, transcript=word, **{"continue": True})
        caller.send(context_id="stopped", cancel=True)
        ends = caller.until(lambda message: message["done"])
        assert (ends[-1]["context_id"], ends[-1]["status_code"]) == ("stopped", 499)
        chunk = caller.until(lambda message: message["type"] == "chunk")[-1]
        assert chunk["context_id"] == "left"
