"""What waits to leave on a socket is bounded, whatever it is."""

from __future__ import annotations

import asyncio

import pytest

from server.live.events import Event, Reply, Sound
from server.live.outbox import Outbox, Turn

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("replies", "settles"),
    [(["a" * 9], True), (["a" * 10], False), (["a"] * 3, True), (["a"] * 4, False)],
)
async def test_no_message_is_taken_while_too_many_or_too_long_replies_wait(
    replies: list[str], settles: bool
) -> None:
    outbox = Outbox(most_bytes=10, most_replies=4)
    for text in replies:
        outbox.post(Reply(text))
    settled = asyncio.create_task(outbox.settled())
    await asyncio.sleep(0.01)
    assert settled.done() == settles

    async def write(event: Event) -> None:
        pass

    writer = asyncio.create_task(outbox.run(write))
    await settled
    await outbox.drained()
    writer.cancel()


async def test_sound_that_waits_keeps_no_message_from_being_taken() -> None:
    outbox, turn = Outbox(most_bytes=10), Turn()
    await outbox.put(Sound("c", b"a" * 99), turn)
    await outbox.settled()
    outbox.drop(turn)
    await outbox.drained()


async def test_speech_lasts_until_its_last_event_has_left() -> None:
    outbox, turn = Outbox(), Turn()
    clock = asyncio.get_running_loop().time

    async def write(event: Event) -> None:
        await asyncio.sleep(0.01)

    writer = asyncio.create_task(outbox.run(write))
    outbox.post(Reply("a"))
    await outbox.drained()
    assert outbox.spoke == 0.0
    await outbox.put(Sound("c", b"a"), turn)
    before = clock()
    assert outbox.spoke >= before
    await outbox.drained()
    after = outbox.spoke
    assert before < after <= clock()
    await asyncio.sleep(0.01)
    assert outbox.spoke == after
    writer.cancel()
