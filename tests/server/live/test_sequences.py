"""Any sequence of messages, good or bad, on a socket of ElevenLabs' or Deepgram's: no hang, a
proper end, nothing held."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import engine
from server.errors import InvalidApiKey
from server.live.deepgram import Deepgram
from server.live.elevenlabs import ElevenLabs
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import Dialect, Limits, converse
from tests.fakes import FakeEngine, Script
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import run

LIMITS = Limits(idle_s=30, most_chars=300)
MAKE = "make"  # lets the engine go on
LEAVE = "leave"  # the client goes
NOISE = ["{", "[]", "{}", "null", "\ud800", b"sound", '{"text": 1}', '{"type": 1}']
TEXTS = ["Hel", "lo. ", "Yes, it is ", " ", "...", "One. Two. ", "\ud800", "word " * 50]
SCRIPTS = st.sampled_from(
    [
        Script(frames=2),
        Script(frames=3, at_once=0),
        Script(frames=1, at_once=1),
        Script(frames=2, fail=engine.GenerationFailed("no")),
        Script(refuse=engine.Overloaded("full", 1.0, 1)),
    ]
)
THOROUGH = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class FakeSocket:
    """Gives messages one by one, then lets the engine go on until it is closed."""

    def __init__(self, messages: list[str | bytes], fake: FakeEngine) -> None:
        self._messages = iter(messages)
        self._fake = fake
        self.sent: list[dict[str, Any]] = []
        self.codes: list[int] = []

    async def receive(self) -> dict[str, Any]:
        for message in self._messages:
            if message == LEAVE:
                return {"type": "websocket.disconnect", "code": 1005}
            if message != MAKE:
                name = "bytes" if isinstance(message, bytes) else "text"
                return {"type": "websocket.receive", name: message}
            self._fake.advance(1)
            await asyncio.sleep(0)
        while True:
            self._fake.advance(9)
            await asyncio.sleep(0.001)

    async def send_text(self, text: str) -> None:
        text.encode()
        self.sent.append(json.loads(text))

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append({"sound": len(data)})

    async def close(self, code: int, reason: str) -> None:
        assert len(reason.encode()) < 124
        self.codes.append(code)


async def configure(data: dict[str, Any]) -> tuple[Manner, tuple[str, ...]]:
    if data.get("voice_settings") == {"speed": 9}:
        raise engine.InvalidRequest("`speed` is too high", "speed")
    return Manner(engine.SpeechRequest(""), PCM), ()


def identify(key: str) -> None:
    if key != "sesame":
        raise InvalidApiKey("not a key")


def served(dialect: str, messages: list[str | bytes], script: Script) -> FakeSocket:
    """Talk until the end, which frees everything and is no fault of ours."""
    fake = FakeEngine(script)
    socket = FakeSocket(messages, fake)

    async def talk() -> None:
        outbox, mouth = Outbox(), FakeMouth(fake)
        made: Dialect
        if dialect == "deepgram":
            manner = Manner(engine.SpeechRequest(""), PCM)
            made = Deepgram(manner, mouth, outbox, LIMITS, request_id="r", model="m")
        else:
            many, key = dialect != "one", identify if dialect == "key" else None
            made = ElevenLabs(configure, mouth, outbox, LIMITS, several=many, identify=key)
        await converse(socket, made, outbox, 5)  # type: ignore[arg-type]

    run(talk())
    assert fake.active == 0
    assert len(socket.codes) == (LEAVE not in messages or bool(socket.codes))
    assert set(socket.codes) <= {1000, 1003, 1008}
    return socket


def one_of(*messages: st.SearchStrategy[Any]) -> st.SearchStrategy[list[str | bytes]]:
    """Lists of messages of these kinds, of noise, and now and then of a client that leaves."""
    more = st.sampled_from([*NOISE, MAKE, MAKE, LEAVE])
    written = st.one_of(*messages).map(json.dumps)
    return st.lists(st.one_of(written, written, more, st.text(max_size=4)), max_size=14)


TEXT = st.sampled_from(TEXTS)
SETTINGS = st.sampled_from([None, {}, {"speed": 1.5}, {"speed": 9}])
PIECES = st.fixed_dictionaries(
    {"text": TEXT}, optional={"flush": st.booleans(), "voice_settings": SETTINGS}
)
NAMES = st.fixed_dictionaries({}, optional={"context_id": st.sampled_from(["a", "b", None, 5])})


@THOROUGH
@given(messages=one_of(PIECES), script=SCRIPTS)
def test_one_context_of_elevenlabs_ends_well_or_says_what_was_lost(
    messages: list[str | bytes], script: Script
) -> None:
    socket = served("one", [*messages, '{"text": ""}'], script)
    finals = [each.get("isFinal") is True for each in socket.sent]
    assert sum(finals) == (socket.codes == [1000])
    assert not any(finals[:-1])


@pytest.mark.parametrize("dialect", ["several", "key"])
@THOROUGH
@given(
    messages=one_of(
        st.tuples(PIECES, NAMES).map(lambda pair: pair[0] | pair[1]),
        NAMES.map(lambda name: name | {"close_context": True}),
        NAMES.map(lambda name: name | {"text": ""}),
        NAMES.map(lambda name: name | {"flush": True}),
    ),
    script=SCRIPTS,
)
def test_each_context_of_elevenlabs_ends_and_nothing_of_it_follows(
    dialect: str, messages: list[str | bytes], script: Script
) -> None:
    first = '{"text": "", "xi_api_key": "sesame"}'
    socket = served(dialect, [first, *messages, '{"close_socket": true}'], script)
    if socket.codes == [1000]:
        names = [each["contextId"] for each in socket.sent if "audio" in each]
        for name in set(names):
            told = [each for each in socket.sent if each.get("contextId") == name]
            ends = [each for each in told if each.get("isFinal") or "audio" in each]
            assert ends[-1].get("isFinal")


@THOROUGH
@given(
    messages=one_of(
        TEXT.map(lambda text: {"type": "Speak", "text": text}),
        st.sampled_from(["Flush", "Clear"]).map(lambda name: {"type": name}),
    ),
    script=SCRIPTS,
)
def test_every_flush_and_clear_of_deepgrams_is_answered_once(
    messages: list[str | bytes], script: Script
) -> None:
    socket = served("deepgram", [*messages, '{"type": "Close"}'], script)
    kinds = [each.get("type") for each in socket.sent]
    assert kinds[:1] in ([], ["Metadata"])
    numbers = [each["sequence_id"] for each in socket.sent if "sequence_id" in each]
    assert numbers == list(range(len(numbers)))
    if socket.codes == [1000]:
        flushes, clears = (messages.count(f'{{"type": "{name}"}}') for name in ("Flush", "Clear"))
        assert kinds.count("Cleared") == clears
        assert flushes * (not clears) <= kinds.count("Flushed") <= flushes


def test_a_first_message_without_a_key_ends_the_socket() -> None:
    socket = served("key", ['{"text": " "}'], Script())
    assert socket.codes == [1008] and socket.sent[0]["error"] == "invalid_api_key"
