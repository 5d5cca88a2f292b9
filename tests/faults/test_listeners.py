"""Listeners that leave, do not read or wait too long: their slot comes back, others hear on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import engine
from tests.faults.speaking import (
    FRAME_BYTES,
    ask,
    balanced,
    failure,
    paused,
    read,
    same,
    solo,
    sound,
)
from tests.waiting import eventually, promptly, run

Start = Callable[..., engine.Engine]
NARROW: dict[str, Any] = {"stream_bytes": FRAME_BYTES, "ramp": (1,)}


def test_a_listener_that_leaves_the_queue_is_never_spoken_to(start: Start) -> None:
    speaker = start(slots=1, **NARROW)
    holder = speaker.submit(ask(frames=20))
    assert paused(speaker, holder)
    frames = run(speaker.stats()).frames_total
    waiting = speaker.submit(ask(frames=5))
    waiting.cancel()
    assert eventually(lambda: speaker.in_flight == 1)
    assert isinstance(failure(waiting), engine.Cancelled)
    holder.cancel()
    assert balanced(speaker)
    stats = run(speaker.stats())
    assert stats.frames_total == frames
    assert stats.finished == {"Cancelled": 2}


@pytest.mark.parametrize("stage", ["prompt", "prefill", "decode", "draw"])
def test_a_listener_that_leaves_in_the_middle_of_a_frame_frees_the_slot(
    start: Start, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    speaker = start()
    generator = speaker._runners[0]._generator
    work, left, streams = getattr(generator, stage), [], []

    def leave_first(*args: Any) -> Any:
        if streams and not left:
            left.append(streams[0].cancel())
        return work(*args)

    monkeypatch.setattr(generator, stage, leave_first)
    promptly(lambda: speaker.call(lambda: streams.append(speaker.submit(ask(frames=50)))))
    assert isinstance(failure(streams[0]), engine.Cancelled)
    assert balanced(speaker)
    assert left == [None]
    assert run(speaker.stats()).frames_total <= 2


def test_a_listener_that_leaves_while_the_sound_is_decoded_hears_no_more(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    vocoder = speaker._runners[0]._vocoder
    decode, streams = vocoder._decode, []

    def leave_first(*args: Any) -> Any:
        streams[0].cancel()
        return decode(*args)

    monkeypatch.setattr(vocoder, "_decode", leave_first)
    promptly(lambda: speaker.call(lambda: streams.append(speaker.submit(ask(frames=50)))))
    assert isinstance(failure(streams[0]), engine.Cancelled)
    assert balanced(speaker)


def test_a_listener_that_leaves_while_streaming_does_not_disturb_the_others(start: Start) -> None:
    speaker = start()
    request = ask(frames=6, seed=7)
    alone = solo(speaker, request)
    leaving = [speaker.submit(ask(frames=400, seed=i)) for i in range(3)]
    staying = speaker.submit(request)
    for stream in leaving:
        reader = iter(stream)
        promptly(lambda r=reader: next(r))  # type: ignore[misc]
        stream.cancel()
    assert same(sound(read(staying)), alone)
    assert balanced(speaker)
    assert run(speaker.stats()).finished == {"length": 2, "Cancelled": 3}


def test_a_listener_that_leaves_a_paused_stream_frees_its_slot(start: Start) -> None:
    speaker = start(**NARROW)
    stream = speaker.submit(ask(frames=20))
    assert paused(speaker, stream)
    stream.cancel()
    assert balanced(speaker)
    assert not stream.full


def test_an_async_listener_whose_task_is_cancelled_can_give_its_slot_back(start: Start) -> None:
    speaker = start()

    async def listen(heard: asyncio.Event) -> None:
        stream = speaker.submit(ask(frames=400))
        try:
            async for _ in stream:
                heard.set()
        finally:
            stream.cancel()

    async def leave() -> None:
        heard = asyncio.Event()
        task = asyncio.create_task(listen(heard))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(leave())
    assert balanced(speaker)


def test_a_slow_reader_fails_alone_and_still_gets_what_was_made(start: Start) -> None:
    speaker = start(read_timeout_s=0.05, **NARROW)
    slow = speaker.submit(ask(frames=20))
    assert eventually(lambda: slow.ended)
    reader = iter(slow)
    first = promptly(lambda: next(reader))
    assert isinstance(first, engine.Audio)
    with pytest.raises(engine.SlowReader, match=r"nobody read the stream for 0\.05 s"):
        promptly(lambda: list(reader))
    assert balanced(speaker)
    assert read(speaker.submit(ask(frames=1)))[-1].reason is engine.FinishReason.LENGTH  # type: ignore[union-attr]


def test_a_stream_that_is_not_full_may_be_left_unread(start: Start) -> None:
    speaker = start(read_timeout_s=0.0)
    stream = speaker.submit(ask(frames=6))
    assert eventually(lambda: stream.ended)
    assert read(stream)[-1].stats.frames == 6  # type: ignore[union-attr]
    assert balanced(speaker)


def test_a_time_limit_that_passes_in_the_queue_ends_the_request(start: Start) -> None:
    speaker = start(slots=1, **NARROW)
    holder = speaker.submit(ask(frames=20))
    assert paused(speaker, holder)
    late = speaker.submit(ask(frames=5), timeout_s=0.05)
    error = failure(late)
    assert isinstance(error, engine.DeadlineExceeded)
    assert "in the queue" in str(error)
    assert not holder.ended
    holder.cancel()
    assert balanced(speaker)


def test_a_time_limit_that_passes_while_running_ends_the_request(start: Start) -> None:
    speaker = start(**NARROW)
    late = speaker.submit(ask(frames=20), timeout_s=5)
    assert paused(speaker, late)
    # The worker's clock is turned on instead of waiting.
    clock = speaker._worker._clock
    speaker._worker._clock = lambda: clock() + 10
    assert eventually(lambda: late.ended)
    reader = iter(late)
    assert isinstance(promptly(lambda: next(reader)), engine.Audio)
    with pytest.raises(engine.DeadlineExceeded, match="time limit passed"):
        promptly(lambda: list(reader))
    assert balanced(speaker)


def test_a_crowd_that_comes_and_goes_leaves_nothing_behind(start: Start) -> None:
    speaker = start(slots=3, **NARROW)
    request = ask(frames=4, seed=99)
    alone = solo(start(), request)
    staying = speaker.submit(request)
    for seed in range(10):
        stream = speaker.submit(ask(frames=30, seed=seed))
        if seed % 3 == 0:
            assert eventually(lambda s=stream: s.full or s.ended)  # type: ignore[misc]
        stream.cancel()
    assert same(sound(read(staying)), alone)
    assert balanced(speaker)
