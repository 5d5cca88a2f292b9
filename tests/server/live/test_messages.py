"""Any sequence of messages, good or bad, on one session: no hang, one end each, nothing held."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import engine
from server.live.events import Event
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import Close
from server.live.vllm_omni import Limits, VllmOmni, granularity
from tests.fakes import FakeEngine, Script
from tests.server.live.talking import PCM, FakeMouth
from tests.waiting import run


def message(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


TEXTS = ["Hel", "lo. ", "Yes, it is", "", " ", "...", "One. Two. Three. ", "word " * 90]
MESSAGES = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: message("input.text", text=text)),
    st.sampled_from(["input.done", "input.cancel", "make"]).map(message),
    st.sampled_from(["none", "sentence", "clause", "word"]).map(
        lambda cut: message("session.config", split_granularity=cut)
    ),
    st.sampled_from(["{", "[]", "{}", "null", message("input.text"), message("x"), "\ud800"]),
    st.text(max_size=5),
)


class Session:
    """A dialect over a fake engine, without a socket."""

    def __init__(self, script: Script) -> None:
        self.fake = FakeEngine(script)
        self.outbox = Outbox()
        limits = Limits(idle_s=30, most_chars=1000)
        self.dialect = VllmOmni(self.configure, FakeMouth(self.fake), self.outbox, limits)
        self.sent: list[dict[str, Any]] = []

    async def configure(self, data: dict[str, Any]) -> tuple[Manner, list[str]]:
        return Manner(engine.SpeechRequest(""), PCM, granularity(data)), []

    async def write(self, event: Event) -> None:
        frames = self.dialect.frames(event)
        self.sent += [json.loads(each) for each in frames if isinstance(each, str)]

    async def receive(self, message: str) -> None:
        """Take a message; "make" lets the engine go on instead."""
        if message == '{"type": "make"}':
            self.fake.advance(1)
            await asyncio.sleep(0)
        else:
            await self.dialect.receive(message)

    async def finish(self) -> None:
        self.fake.script = Script(frames=1)
        while self.dialect.speaking:
            self.fake.advance(9)
            await asyncio.sleep(0.001)
        await self.outbox.drained()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(MESSAGES, max_size=16),
    st.sampled_from([Script(frames=2), Script(frames=3, at_once=0), Script(frames=1, at_once=1)]),
    st.sampled_from(["none", "sentence", "clause"]),
)
def test_any_sequence_of_messages_ends_with_nothing_held(messages, script, cut) -> None:
    run(talk(messages, script, cut))


async def talk(messages: list[str], script: Script, cut: str) -> None:
    session = Session(script)
    writer = asyncio.create_task(session.outbox.run(session.write))
    await session.receive(message("session.config", split_granularity=cut))
    for each in messages:
        await session.receive(each)
    await session.receive(message("input.done"))
    await session.finish()
    with suppress(Close):
        await session.receive(message("session.close"))
    await session.dialect.aclose()
    writer.cancel()
    assert session.fake.active == 0
    check(session.sent, messages)


def check(sent: list[dict[str, Any]], messages: list[str]) -> None:
    """Segments do not overlap, every flush and every cancel has its one end, in order."""
    flushes = messages.count(message("input.done")) + 1
    ends = [each for each in sent if each["type"] in ("session.done", "session.cancelled")]
    assert sum(each["type"] == "session.cancelled" for each in ends) == messages.count(
        message("input.cancel")
    )
    done = [each["utterance_index"] for each in ends if each["type"] == "session.done"]
    assert done == sorted(set(done)) and 1 <= len(done) <= flushes
    assert sent[-1]["type"] == "session.done"
    begun: tuple[int, int] | None = None
    for each in sent:
        place = each.get("utterance_index"), each.get("sentence_index")
        match each["type"]:
            case "audio.start":
                assert begun is None
                begun = place
            case "audio.done":
                assert begun == place
                begun = None
            case "session.done":
                assert begun is None
            case "session.cancelled":
                begun = None
