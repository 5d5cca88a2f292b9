"""A text that takes several utterances: one place with the engine at a time, none at the end."""

from __future__ import annotations

import re

import pytest

import engine
from server.live.segment import Manner
from tests.fakes import FakeEngine, FakeLive, Script
from tests.server.live.talking import PCM, Talk, talk

pytestmark = pytest.mark.anyio

SENTENCE = "This is a sentence of some length, and here it ends. "
LONG = SENTENCE * 20
FULL = engine.Overloaded("full", 0.0, 3)


def fake(**script: object) -> FakeEngine:
    return FakeEngine(Script(**script))  # type: ignore[arg-type]


def pieces(talking: Talk) -> list[str]:
    return [live.text for live in talking.fake.lives]


async def finish(talking: Talk, most: int = 1) -> None:
    """Let the engine make what is asked of it until all is said; it never has more than `most`."""

    def more() -> bool:
        assert talking.fake.active <= most
        talking.fake.advance(1)
        return not talking.context.speaking

    await talking.until(more)
    await talking.outbox.drained()


@pytest.mark.parametrize("words", [False, True])
async def test_the_next_piece_is_begun_when_the_one_before_was_generated(words: bool) -> None:
    async with talk(fake(frames=9, at_once=0), "none", most_chars=5000) as talking:
        for text in re.findall(r"\S+\s*", LONG) if words else [LONG]:
            talking.context.append(text)
        talking.context.flush()
        assert talking.fake.active == 1
        await finish(talking)
        assert len(pieces(talking)) > 2 and "".join(pieces(talking)) == LONG
        assert all(text.endswith("ends. ") for text in pieces(talking))
        assert re.fullmatch(r"\[\.+\]\|", talking.shape())


async def test_text_that_comes_while_other_text_waits_is_spoken_behind_it() -> None:
    async with talk(fake(frames=9, at_once=0), "none", most_chars=5000) as talking:
        talking.context.append(LONG)
        talking.context.append("And more. ")
        talking.context.flush()
        talking.context.append("Next.")
        talking.context.flush()
        await finish(talking, most=2)
        spoken = [text for text in pieces(talking) if text != "Next."]
        assert "".join(spoken) == LONG + "And more. " and len(spoken) < len(pieces(talking))
        assert re.fullmatch(r"\[\.+\]\|\[\.+\]\|", talking.shape())


async def test_utterances_that_wait_for_others_have_no_place() -> None:
    async with talk(fake(frames=3, at_once=0), "none") as talking:
        said = [f"Number {number}." for number in range(9)]
        for text in said:
            talking.context.append(text[:6])
            talking.context.append(text[6:])
            talking.context.flush()
        await finish(talking, most=2)
        assert pieces(talking) == said
        assert re.fullmatch(r"(\[\.+\]\|){9}", talking.shape())


async def test_utterances_that_wait_are_taken_back_by_a_cancel() -> None:
    async with talk(fake(frames=3, at_once=0), "none") as talking:
        for text in ("One.", "Two.", "Three.", "Four"):
            talking.context.append(text)
            talking.context.flush()
        talking.context.cancel()
        talking.context.append("Five.")
        talking.context.flush()
        await finish(talking)
        assert pieces(talking)[2:] == ["Five."]


async def test_an_utterance_that_waits_finds_no_room_and_is_said_later() -> None:
    async with talk(fake(frames=3, at_once=0), "none") as talking:
        for text in ("One.", "Two.", "Three."):
            talking.context.append(text)
            talking.context.flush()
        talking.fake.script = Script(refuse=FULL)
        talking.fake.advance(99)
        requests = len(talking.fake.requests)
        await talking.until(lambda: len(talking.fake.requests) > requests + 3)
        talking.fake.script = Script(frames=3, at_once=0)
        await finish(talking)
        assert pieces(talking) == ["One.", "Two.", "Three."]
        assert re.fullmatch(r"(\[\.+\]\|){3}", talking.shape())


async def test_text_that_waits_is_limited() -> None:
    async with talk(fake(at_once=0), "none", most_chars=len(LONG) + 20) as talking:
        talking.context.append(LONG)
        with pytest.raises(engine.InvalidRequest, match="limit is"):
            talking.context.append(SENTENCE)
        assert talking.fake.active == 1


async def test_a_cancel_takes_back_the_text_that_waits() -> None:
    async with talk(fake(frames=9, at_once=0), "none", most_chars=5000) as talking:
        talking.context.append(LONG)
        talking.context.cancel()
        assert talking.fake.active == 0
        talking.context.append("Yes.")
        talking.context.flush()
        await finish(talking)
        assert pieces(talking)[1:] == ["Yes."]
        assert re.fullmatch(r"x\[\.+\]\|", talking.shape())


async def test_an_engine_without_room_for_the_next_piece_is_asked_again() -> None:
    async with talk(fake(frames=3, at_once=0), "none", most_chars=5000) as talking:
        talking.context.append(LONG)
        talking.context.flush()
        talking.fake.script = Script(refuse=FULL)
        talking.fake.advance(99)
        requests = len(talking.fake.requests)
        await talking.until(lambda: len(talking.fake.requests) > requests + 3)
        assert talking.fake.active == 0 and talking.context.speaking
        talking.fake.script = Script(frames=3, at_once=0)
        await finish(talking)
        assert "".join(pieces(talking)) == LONG
        assert re.fullmatch(r"\[\.+\]\|", talking.shape())


async def test_a_cancel_ends_the_wait_for_room() -> None:
    async with talk(fake(frames=3, at_once=0), "none", most_chars=5000) as talking:
        talking.context.append(LONG)
        talking.fake.script = Script(refuse=engine.Overloaded("full", 60.0, 3))
        talking.context.flush()
        talking.fake.advance(99)
        requests = len(talking.fake.requests)
        await talking.until(lambda: len(talking.fake.requests) > requests + 1)
        talking.context.cancel()
        await talking.settled()
        assert talking.shape().endswith("x")


async def test_text_that_finds_no_room_in_mid_utterance_waits_for_it() -> None:
    async with talk(fake(frames=1), "none", most_chars=5000) as talking:
        talking.context.append("word " * 79)
        talking.fake.script = Script(refuse=FULL)
        talking.context.append("and this does not fit. ")
        talking.context.flush()
        talking.fake.script = Script(frames=1)
        await finish(talking)
        assert pieces(talking) == ["word " * 79, "and this does not fit. "]
        assert talking.shape().endswith("]|") and "!" not in talking.shape()


async def test_a_piece_the_engine_refuses_ends_its_segment_and_the_context_goes_on() -> None:
    async with talk(fake(frames=3, at_once=0), "none", most_chars=5000) as talking:
        talking.context.append(LONG)
        talking.context.flush()
        talking.fake.script = Script(refuse=engine.EngineUnavailable("draining"))
        talking.fake.advance(99)
        await talking.until(lambda: talking.shape().endswith("!|"))
        talking.fake.script = Script(frames=1)
        talking.context.append("Yes.")
        talking.context.flush()
        await talking.settled()
        assert re.fullmatch(r"\[\.+!\|\[\.+\]\|", talking.shape())


def acting(fake: FakeEngine, live: type[FakeLive]) -> FakeEngine:
    """The engine, with open texts that act like `live`."""
    opened = fake.open

    def opening(request: engine.SpeechRequest, **job: object) -> FakeLive:
        made = opened(request, **job)  # type: ignore[arg-type]
        made.__class__ = live
        return made

    fake.open = opening  # type: ignore[method-assign]
    return fake


class Failing(FakeLive):
    def append(self, text: str) -> None:
        raise engine.GenerationFailed("no")


class Overfull(FakeLive):
    def end(self) -> None:
        super().end()
        raise engine.InvalidRequest("the last sentence is left out", "text")


async def test_a_text_of_which_a_part_is_refused_leaves_nothing_with_the_engine() -> None:
    async with talk(acting(fake(frames=3, at_once=0), Failing), "none") as talking:
        with pytest.raises(engine.GenerationFailed):
            talking.context.append("One is. Two")
        assert len(pieces(talking)) == 1 and talking.fake.active == 0
        assert not talking.context.speaking


async def test_what_is_left_out_at_the_end_of_a_piece_is_told_behind_its_sound() -> None:
    async with talk(acting(fake(frames=3), Overfull), "none") as talking:
        talking.context.append("One.")
        talking.context.flush()
        await talking.settled()
        assert re.fullmatch(r"\[\.+!\|", talking.shape())


async def test_a_request_that_is_wrong_otherwise_is_not_divided() -> None:
    refusal = engine.InvalidRequest("no such language", "language")
    async with talk(fake(refuse=refusal), "none") as talking:
        with pytest.raises(engine.InvalidRequest, match="no such language"):
            talking.context.append("One is. Two")
        assert len(talking.fake.requests) == 1


async def test_a_word_without_an_end_is_cut_once_and_said_once() -> None:
    text = "word " * 220
    async with talk(fake(frames=1), "none", most_chars=5000) as talking:
        for start in range(0, len(text), 3):
            talking.context.append(text[start : start + 3])
        talking.context.flush()
        await finish(talking)
        assert "".join(pieces(talking)) == text


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_what_was_flushed_is_said_and_the_rest_can_be_taken_back(granularity: str) -> None:
    async with talk(fake(frames=3, at_once=0), granularity) as talking:
        talking.context.append("One.")
        talking.context.flush()
        talking.context.append("Two. Three")
        talking.context.withdraw()
        assert talking.fake.active == 1 and not talking.context.has_text
        await finish(talking)
        assert re.fullmatch(r"\[\.+\]\|", talking.shape())


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_what_is_spoken_without_a_flush_stops_when_it_is_taken_back(
    granularity: str,
) -> None:
    async with talk(fake(frames=3, at_once=1), granularity) as talking:
        talking.context.append("One is. Two")
        await talking.until(lambda: talking.shape().startswith("[."))
        talking.context.withdraw()
        await talking.settled()
        assert talking.fake.active == 0
        talking.context.append("Three.")
        talking.context.flush()
        await finish(talking)
        assert re.fullmatch(r"\[\.+\[\.+\]\|", talking.shape())


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_a_time_limit_is_that_of_a_whole_segment(granularity: str) -> None:
    async with talk(fake(frames=3, at_once=0), granularity, most_chars=5000) as talking:
        manner = Manner(engine.SpeechRequest(""), PCM, granularity, timeout_s=60.0)
        talking.context.manner = manner
        talking.context.append(LONG)
        talking.context.flush()
        await finish(talking, most=2)
        limits = [float(str(each["timeout_s"])) for each in talking.fake.envelopes]
        assert limits[0] == 60.0 and len(limits) > 2
        if granularity == "none":
            assert limits == sorted(limits, reverse=True) and limits[-1] < 60.0
        else:
            assert set(limits) == {60.0}
