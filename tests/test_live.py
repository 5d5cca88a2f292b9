"""`Engine.open` over tiny real models: text in and sound out at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

import engine
from tests.faults.speaking import ask, balanced, failure, read, same, sound
from tests.waiting import eventually, promptly, run

Start = Callable[..., engine.Engine]
TEXT = "Hello there, you. It is 3.5!"


def whole(speaker: engine.Engine, request: engine.SpeechRequest) -> npt.NDArray[np.float32]:
    return sound(read(speaker.submit(replace(request, non_streaming_mode=False))))


def starved(speaker: engine.Engine) -> bool:
    """Whether the engine comes to wait for text."""

    def waits() -> bool:
        slots = [slot for runner in speaker._runners for slot in runner._occupied()]
        return bool(slots) and all(slot.starved and not slot.pending for slot in slots)

    return eventually(lambda: promptly(lambda: speaker.call(waits)))


def test_text_fed_word_by_word_sounds_like_the_same_text_sent_whole(start: Start) -> None:
    speaker = start(reference=True)
    request = ask(TEXT, frames=34, seed=3)
    expected = whole(speaker, request)
    live = speaker.open(replace(request, text="Hel"))
    for piece in ("lo ", "there, you", ". It is 3", ".5!"):
        assert piece == "lo " or starved(speaker)
        live.append(piece)
    live.end()
    heard = read(live)
    assert same(sound(heard), expected)
    assert isinstance(heard[-1], engine.Finished)
    assert heard[-1].stats.seed == live.seed == 3
    assert balanced(speaker)


def test_the_first_sound_comes_while_the_text_is_open(start: Start) -> None:
    speaker = start()
    live = speaker.open(ask("Hello there", frames=12))

    async def listen() -> engine.Audio:
        item = await live.read()
        assert isinstance(item, engine.Audio)
        return item

    assert len(run(listen()).pcm) == 1920
    live.end()
    assert isinstance(read(live)[-1], engine.Finished)
    assert balanced(speaker)


def test_many_open_texts_and_whole_ones_share_the_slots(start: Start) -> None:
    speaker = start(slots=2)
    requests = [ask(TEXT, frames=34, seed=seed) for seed in range(4)]
    expected = [whole(speaker, request) for request in requests]

    async def talk(request: engine.SpeechRequest) -> list[engine.stream.Item]:
        live = speaker.open(replace(request, text=""))
        for at in range(0, len(TEXT), 3):
            live.append(TEXT[at : at + 3])
            await asyncio.sleep(0)
        live.end()
        return [item async for item in live]

    async def talk_all() -> list[list[engine.stream.Item]]:
        return list(await asyncio.gather(*map(talk, requests)))

    for heard, wanted in zip(run(talk_all()), expected, strict=True):
        assert same(sound(heard), wanted)
    assert balanced(speaker)


def test_an_open_text_without_a_word_takes_no_slot_and_others_pass_it(start: Start) -> None:
    speaker = start(slots=1)
    live = speaker.open(ask("", frames=4))
    live.append("  ... ")
    assert len(sound(read(speaker.submit(ask("Hello.", frames=3))))) == 3 * 1920
    live.append("Hello ")
    live.end()
    assert len(sound(read(live))) == 4 * 1920
    assert balanced(speaker)


@pytest.mark.parametrize("text", ["", "Hello there"], ids=["before it speaks", "while it waits"])
def test_cancelling_an_open_text_frees_everything(start: Start, text: str) -> None:
    speaker = start()
    live = speaker.open(ask(text, frames=400))
    if text:
        assert starved(speaker)
    live.cancel()
    assert balanced(speaker)
    assert isinstance(failure(live), engine.Cancelled)
    with pytest.raises(engine.Cancelled):
        live.append("more")
    live.end()


@pytest.mark.parametrize("text", ["", "Hello there"], ids=["before it speaks", "while it waits"])
def test_text_that_does_not_come_fails_the_stream(start: Start, text: str) -> None:
    speaker = start(input_timeout_s=0.3)
    live = speaker.open(ask(text, frames=400))
    assert isinstance(failure(live), engine.InputTimeout)
    with pytest.raises(engine.InputTimeout, match=r"0\.3 s"):
        live.append("more")
    assert balanced(speaker)


def test_a_request_may_have_a_patience_of_its_own(start: Start) -> None:
    speaker = start(input_timeout_s=1000.0)
    live = speaker.open(ask("Hello there", frames=400), input_timeout_s=0.2)
    assert isinstance(failure(live), engine.InputTimeout)
    with pytest.raises(engine.InvalidRequest) as caught:
        speaker.open(ask(""), input_timeout_s=0.0)
    assert caught.value.field == "input_timeout_s"


def test_a_text_that_ends_without_a_word_is_refused_and_fails_its_stream(start: Start) -> None:
    speaker = start()
    live = speaker.open(ask("..."))
    with pytest.raises(engine.InvalidRequest, match="nothing that can be spoken"):
        live.end()
    assert isinstance(failure(live), engine.InvalidRequest)
    assert balanced(speaker)


def test_text_that_does_not_fit_is_refused_and_the_rest_is_spoken(start: Start) -> None:
    speaker = start()
    live = speaker.open(ask("Hello ", frames=8))
    with pytest.raises(engine.InvalidRequest, match=f"holds {live.limit}"):
        live.append("there " * 500)
    live.append("you.")
    live.end()
    expected = whole(speaker, ask("Hello you.", frames=8))
    assert same(sound(read(live)), expected)


def test_nothing_can_be_added_to_what_has_ended(start: Start) -> None:
    speaker = start()
    live = speaker.open(ask("Hello there you and you and ", frames=3))
    read(live)  # the frame ceiling ends it while the text is open
    with pytest.raises(engine.InvalidRequest, match="utterance has ended"):
        live.append("more")
    closed = speaker.open(ask("Hello.", frames=3))
    closed.end()
    closed.end()
    with pytest.raises(engine.InvalidRequest, match=r"text has ended|utterance has ended"):
        closed.append("more")
    read(closed)
    assert balanced(speaker)


def test_the_front_end_reads_an_open_text_sentence_by_sentence_when_asked(start: Start) -> None:
    speaker = start(reference=True)
    request = ask("", frames=40, seed=5, normalize=("numbers",), language="english")
    live = speaker.open(request)
    for piece in ("I see 2", "! And", " 3"):
        live.append(piece)
    live.end()
    expected = whole(speaker, replace(request, text="I see two! And three.", normalize=None))
    assert same(sound(read(live)), expected)


def test_an_open_text_counts_against_the_queue_and_ends_with_the_engine(start: Start) -> None:
    speaker = start(slots=1, max_queue=0)
    live = speaker.open(ask("Hello there", frames=400))
    with pytest.raises(engine.Overloaded):
        speaker.open(ask("Hello."))
    assert starved(speaker)
    speaker.close()
    assert isinstance(failure(live), engine.EngineUnavailable)
    with pytest.raises(engine.EngineUnavailable):
        live.append("more")
    with pytest.raises(engine.EngineUnavailable):
        speaker.open(ask("Hello."))
