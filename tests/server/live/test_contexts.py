"""Contexts without a socket: order, one end per flush, and nothing after a cancel."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import engine
from server.live.events import Ended, Flushed, Sound, Started
from tests.fakes import FakeEngine, FakeLive, Script, pcm16
from tests.server.live.talking import Talk, talk
from tests.waiting import run

pytestmark = pytest.mark.anyio


def fake(**script: object) -> FakeEngine:
    return FakeEngine(Script(**script))  # type: ignore[arg-type]


async def finish(talking: Talk) -> None:
    """Let the engine make whatever is asked of it until all is written."""

    def more() -> bool:
        talking.fake.advance(9)
        return not talking.context.speaking

    await talking.until(more)
    await talking.outbox.drained()


def texts(talking: Talk) -> list[str]:
    return [event.text for event in talking.events if isinstance(event, Started)]


def audio(talking: Talk) -> bytes:
    return b"".join(event.data for event in talking.events if isinstance(event, Sound))


# One utterance that is fed


async def test_text_goes_to_the_engine_as_it_comes_and_sound_back_at_once() -> None:
    async with talk(fake(frames=4), "none") as talking:
        talking.context.append("Hel")
        await talking.until(lambda: talking.shape() == "[.")
        talking.context.append("lo there")
        await talking.until(lambda: talking.shape() == "[..")
        talking.context.flush()
        await talking.settled()
        assert talking.shape().startswith("[....") and talking.shape().endswith("]|")
        assert [live.text for live in talking.fake.lives] == ["Hello there"]
        assert audio(talking) == pcm16(4)
        assert talking.mouth.samples == 4 * 1920 and len(talking.mouth.ends) == 1
        assert talking.events[-1] == Flushed("c", 0, 1)


async def test_every_flush_begins_a_new_utterance() -> None:
    async with talk(fake(frames=2), "none") as talking:
        for text in ("One.", "Two."):
            talking.context.append(text)
            talking.context.flush()
        await talking.settled()
        assert re.fullmatch(r"\[\.+\]\|\[\.+\]\|", talking.shape())
        assert [e.utterance for e in talking.events if isinstance(e, Flushed)] == [0, 1]


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_a_flush_without_anything_to_speak_ends_at_once(granularity: str) -> None:
    async with talk(fake(), granularity) as talking:
        talking.context.flush()
        talking.context.append(" ... ")
        talking.context.flush()
        await talking.settled()
        assert talking.events == [Flushed("c", 0, 0), Flushed("c", 1, 0)]
        assert talking.fake.requests == []


async def test_a_text_that_outgrows_an_utterance_goes_on_in_the_next_without_a_seam() -> None:
    sentence = "This is a sentence of some length, and here it ends. "
    async with talk(fake(frames=1), "none", most_chars=10_000) as talking:
        for word in re.findall(r"\S+\s*", sentence * 20):
            talking.context.append(word)
        talking.context.flush()
        await talking.settled()
        lives = [live.text for live in talking.fake.lives]
        assert "".join(lives) == sentence * 20
        assert len(lives) > 2 and all(text.endswith("ends. ") for text in lives)
        assert talking.shape().count("[") == talking.shape().count("]") == 1
        assert talking.events[-1] == Flushed("c", 0, 1)


async def test_a_piece_that_is_too_long_for_one_utterance_is_divided() -> None:
    async with talk(fake(frames=1), "none") as talking:
        talking.context.append("word " * 300)
        talking.context.flush()
        await talking.settled()
        lives = [live.text for live in talking.fake.lives]
        assert "".join(lives) == "word " * 300
        assert all(len(text) <= FakeLive.limit for text in lives)
        assert talking.shape().endswith("]|")


async def test_text_behind_an_utterance_that_failed_begins_another() -> None:
    async with talk(fake(frames=2, at_once=0), "none") as talking:
        talking.context.append("One")
        await talking.until(lambda: talking.shape() == "[.")
        talking.fake._jobs.popitem()[1].stream.fail(engine.GenerationFailed("no"))
        await talking.until(lambda: talking.shape() == "[.!")
        talking.context.append(" two")
        talking.context.flush()
        await finish(talking)
        assert re.fullmatch(r"\[\.!\[\.+\]\|", talking.shape())
        assert talking.events[-1] == Flushed("c", 0, 2)


async def test_what_the_engine_refuses_is_raised_and_the_context_goes_on() -> None:
    async with talk(fake(refuse=engine.Overloaded("full", 1.0, 3)), "none") as talking:
        with pytest.raises(engine.Overloaded):
            talking.context.append("Hello")
        talking.fake.script = Script(frames=1)
        talking.context.append(" there.")
        talking.context.flush()
        await talking.settled()
        assert talking.shape() == "[.]|"


# Segments


async def test_sentences_are_spoken_in_order_and_the_next_is_with_the_engine_before() -> None:
    async with talk(fake(frames=2, at_once=1), "sentence") as talking:
        for piece in ("One. T", "wo. Thr", "ee. Four"):
            talking.context.append(piece)
        await talking.until(lambda: talking.shape() == "[.")
        assert [request.text for request in talking.fake.requests] == ["One.", "Two."]
        talking.context.flush()
        await finish(talking)
        assert texts(talking) == ["One.", "Two.", "Three.", "Four"]
        assert [e.segment for e in talking.events if isinstance(e, Ended)] == [0, 1, 2, 3]
        assert talking.events[-1] == Flushed("c", 0, 4)


async def test_a_segment_that_fails_is_told_and_the_next_is_spoken() -> None:
    async with talk(fake(frames=1, fail=engine.GenerationFailed("no")), "sentence") as talking:
        talking.context.append("One. Two")
        talking.fake.script = Script(frames=1)
        talking.context.flush()
        await talking.settled()
        assert talking.shape() == "[.![.]|"


async def test_a_segment_the_engine_refuses_is_told_in_its_place() -> None:
    async with talk(fake(refuse=engine.Overloaded("full", 1.0, 3)), "sentence") as talking:
        talking.context.append("One. Two")
        talking.fake.script = Script(frames=1)
        talking.context.flush()
        await talking.settled()
        assert talking.shape() == "[![.]|"


async def test_more_text_than_may_wait_is_refused_with_the_limit() -> None:
    async with talk(fake(frames=2, at_once=0), "sentence", most_chars=30) as talking:
        talking.context.append("This is one. This is ")
        with pytest.raises(engine.InvalidRequest, match="limit is 30"):
            talking.context.append("another sentence.")
        talking.context.append("two.")
        talking.context.cancel()
        talking.context.append("This is three, and it is long.")


# Cancel


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_nothing_follows_a_cancel_and_the_context_goes_on(granularity: str) -> None:
    async with talk(fake(frames=3, at_once=1), granularity) as talking:
        talking.context.append("One is. Two")
        await talking.until(lambda: "[." in talking.shape())
        talking.context.flush()
        talking.context.cancel()
        await talking.until(lambda: talking.shape().endswith("x"))
        assert talking.fake.active == 0
        talking.fake.script = Script(frames=2)
        talking.context.append("Three.")
        talking.context.flush()
        await talking.settled()
        assert re.fullmatch(r"\[\.+x\[\.+\]\|", talking.shape())


async def test_what_is_written_but_not_read_is_taken_back_by_a_cancel() -> None:
    async with talk(fake(frames=200), "sentence") as talking:
        talking.reading.clear()
        talking.context.append("One. Two")
        await talking.until(lambda: talking.mouth.samples > 0)
        talking.context.cancel()
        talking.reading.set()
        await talking.outbox.drained()
        # At most what the writer held in its hand.
        assert talking.shape() in ("x", "[x")


async def test_a_client_who_does_not_read_pauses_the_speaker() -> None:
    async with talk(fake(frames=200), "none") as talking:
        talking.reading.clear()
        talking.context.append("One.")
        talking.context.flush()
        await asyncio.sleep(0.05)
        assert talking.mouth.samples <= 8 * 1920
        talking.reading.set()
        await talking.settled()
        assert talking.mouth.samples == 200 * 1920
        assert len(audio(talking)) == 200 * 3840


async def test_closing_lets_go_of_everything_in_the_middle() -> None:
    async with talk(fake(frames=9, at_once=1), "sentence") as talking:
        talking.context.append("One. Two. Three")
        talking.context.flush()
        await talking.until(lambda: talking.shape() == "[.")
    assert talking.fake.active == 0 and talking.shape() == "[."


# Any order of messages

ACTS = st.lists(
    st.sampled_from(["One", " two. ", "Three", "!? ", "", "flush", "cancel", "make", "wait"]),
    max_size=14,
)


@pytest.mark.parametrize("granularity", ["none", "sentence", "clause"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ACTS, st.sampled_from([None, 0, 1]))
def test_any_sequence_has_one_end_per_flush_and_ends(granularity, acts, at_once) -> None:
    run(act(granularity, acts, at_once))


async def act(granularity: str, acts: list[str], at_once: int | None) -> None:
    flushes = 0
    async with talk(fake(frames=2, at_once=at_once), granularity) as talking:
        for each in acts:
            if each == "flush":
                talking.context.flush()
                flushes += 1
            elif each == "cancel":
                talking.context.cancel()
            elif each == "make":
                talking.fake.advance(1)
            elif each == "wait":
                await asyncio.sleep(0)
            else:
                talking.context.append(each)
        talking.context.flush()
        talking.fake.script = Script(frames=2)
        await finish(talking)
    shape = talking.shape()
    assert re.fullmatch(r"((\[\.*\])*\||(\[\.*\])*(\[\.*)?x)*", shape), shape
    assert shape.count("x") == acts.count("cancel")
    assert 1 <= shape.count("|") <= flushes + 1
    assert shape.endswith("|")
