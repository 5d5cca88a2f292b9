"""One stream: what the worker puts in, what one reader takes out, and the single end."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest

from engine.errors import Cancelled, GenerationFailed
from engine.request import FinishReason
from engine.stream import Audio, Finished, Stats, Stream, to_pcm16
from tests.waiting import promptly, run

STOP = Finished(FinishReason.STOP, Stats(frames=2, seed=1))
BYTES = 16  # of the four samples `sound` holds


def sound(first_frame: int = 0) -> Audio:
    return Audio(first_frame, np.full(4, 0.5, np.float32))


def make(max_bytes: int = 1000, **callables: object) -> Stream:
    return Stream("s", seed=1, sample_rate=24_000, max_bytes=max_bytes, **callables)  # type: ignore[arg-type]


class Counted:
    """A callable that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_items_are_read_in_the_order_they_were_published() -> None:
    stream, items = make(), [sound(0), sound(1), sound(2)]
    for item in items:
        stream.publish(item)
    stream.finish(STOP)
    assert promptly(lambda: list(stream)) == [*items, STOP]


def test_async_iteration_reads_the_same_items_as_sync_iteration() -> None:
    stream, items = make(), [sound(0), sound(1)]
    for item in items:
        stream.publish(item)
    stream.finish(STOP)

    async def read() -> list[object]:
        return [item async for item in stream]

    assert run(read()) == [*items, STOP]


def test_the_first_end_stands_and_later_ends_are_refused() -> None:
    stream = make()
    assert stream.finish(STOP)
    assert not stream.finish(Finished(FinishReason.LENGTH, Stats(frames=9, seed=9)))
    assert not stream.fail(GenerationFailed("too late"))
    stream.publish(sound())
    assert promptly(lambda: list(stream)) == [STOP]


def test_a_failed_stream_cannot_finish() -> None:
    stream = make()
    assert stream.fail(GenerationFailed("broken"))
    assert not stream.finish(STOP)
    assert not stream.fail(GenerationFailed("another"))
    with pytest.raises(GenerationFailed, match="broken"):
        promptly(lambda: list(stream))


def test_cancel_after_the_end_keeps_what_was_not_read() -> None:
    cancelled = Counted()
    stream = make(on_cancel=cancelled)
    stream.publish(sound())
    stream.finish(STOP)
    stream.cancel()
    assert len(promptly(lambda: list(stream))) == 2
    assert cancelled.calls == 0


def test_an_error_comes_after_what_was_published_before_it() -> None:
    stream, heard = make(), []
    stream.publish(sound(0))
    stream.publish(sound(1))
    stream.fail(GenerationFailed("broken"))

    def read() -> None:
        for item in stream:
            heard.append(item.first_frame)  # noqa: PERF401

    with pytest.raises(GenerationFailed, match="broken"):
        promptly(read)
    assert heard == [0, 1]


def test_reading_past_the_end_raises_instead_of_waiting() -> None:
    stream = make()
    stream.finish(STOP)

    async def read_twice() -> None:
        assert await stream.read() is STOP
        await stream.read()

    with pytest.raises(Cancelled, match="past its end"):
        run(read_twice())


def test_cancel_drops_unread_sound_and_tells_the_engine_once() -> None:
    cancelled = Counted()
    stream = make(max_bytes=BYTES, on_cancel=cancelled)
    stream.publish(sound())
    assert stream.full
    stream.cancel()
    stream.cancel()
    stream.publish(sound())
    assert cancelled.calls == 1
    assert stream.ended
    assert not stream.full
    with pytest.raises(Cancelled):
        promptly(lambda: list(stream))


def test_cancel_wakes_a_reader_that_waits() -> None:
    stream = make()

    async def read() -> None:
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.cancel()
        await reading

    with pytest.raises(Cancelled):
        run(read())


def test_a_stream_is_full_at_its_bound_and_not_below() -> None:
    stream = make(max_bytes=2 * BYTES)
    stream.publish(sound(0))
    assert not stream.full
    stream.publish(sound(1))
    assert stream.full


def test_the_worker_is_woken_once_when_a_full_stream_is_half_empty() -> None:
    drained = Counted()
    stream = make(max_bytes=4 * BYTES, on_drained=drained)
    for frame in range(4):
        stream.publish(sound(frame))
    reader = iter(stream)
    calls = []
    for _ in range(4):
        promptly(lambda: next(reader))
        calls.append(drained.calls)
    assert calls == [0, 1, 1, 1]
    for frame in range(4, 8):
        stream.publish(sound(frame))
    for _ in range(4):
        promptly(lambda: next(reader))
    assert drained.calls == 2


def test_a_stream_that_was_never_full_wakes_nobody() -> None:
    drained = Counted()
    stream = make(max_bytes=4 * BYTES, on_drained=drained)
    stream.publish(sound())
    promptly(lambda: next(iter(stream)))
    assert drained.calls == 0


def test_a_sync_reader_waits_for_another_thread_to_publish() -> None:
    stream, waiting = make(), threading.Event()

    def publish() -> None:
        waiting.wait(30)
        stream.publish(sound(7))
        stream.finish(STOP)

    def read() -> list[object]:
        waiting.set()
        return [item for item in stream]  # noqa: C416

    threading.Thread(target=publish, daemon=True).start()
    audio, end = promptly(read)
    assert audio.first_frame == 7  # type: ignore[attr-defined]
    assert end is STOP


def test_an_async_reader_is_woken_by_another_thread() -> None:
    stream = make()

    async def read() -> object:
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        threading.Thread(target=stream.publish, args=(sound(3),), daemon=True).start()
        return await reading

    assert run(read()).first_frame == 3  # type: ignore[attr-defined]


def test_a_stream_can_be_read_from_one_event_loop_after_another() -> None:
    stream, first, second = make(), sound(0), sound(1)
    stream.publish(first)
    assert run(stream.read()) is first
    stream.publish(second)
    assert run(stream.read()) is second


def test_a_cancelled_read_loses_no_item() -> None:
    stream, item = make(), sound()

    async def read() -> object:
        abandoned = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.publish(item)  # the waiter is woken, but its task is cancelled before it runs
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        return await stream.read()

    assert run(read()) is item


def test_a_read_that_timed_out_can_be_repeated() -> None:
    stream, item = make(), sound()

    async def read() -> object:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.read(), 0.001)
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.publish(item)
        return await reading

    assert run(read()) is item


def test_publishing_to_a_reader_whose_loop_is_closed_is_harmless() -> None:
    stream, item = make(), sound()
    loop = asyncio.new_event_loop()
    reading = loop.create_task(stream.read())
    loop.run_until_complete(asyncio.sleep(0))
    reading.cancel()
    loop.run_until_complete(asyncio.gather(reading, return_exceptions=True))
    loop.close()
    stream.publish(item)
    assert promptly(lambda: next(iter(stream))) is item


def test_every_item_arrives_when_writer_and_reader_race() -> None:
    stream, count = make(max_bytes=10**9), 2000

    def publish() -> None:
        for frame in range(count):
            stream.publish(sound(frame))
        stream.finish(STOP)

    async def read() -> list[object]:
        threading.Thread(target=publish, daemon=True).start()
        return [item async for item in stream]

    items = run(read())
    assert [item.first_frame for item in items[:-1]] == list(range(count))  # type: ignore[attr-defined]
    assert items[-1] is STOP


def test_exactly_one_of_many_racing_ends_wins() -> None:
    for _ in range(50):
        stream, results, start = make(), [], threading.Barrier(3)

        def end(
            action: object,
            results: list[object] = results,
            start: threading.Barrier = start,
        ) -> None:
            start.wait(30)
            results.append(action())  # type: ignore[operator]

        actions = (
            lambda s=stream: s.finish(STOP),
            lambda s=stream: s.fail(GenerationFailed("broken")),
            lambda s=stream: s.finish(STOP),
        )
        threads = [threading.Thread(target=end, args=(a,), daemon=True) for a in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(results) == [False, False, True]


def test_unread_time_counts_from_the_first_unread_item() -> None:
    stream = make()
    later = time.monotonic() + 100
    assert stream.unread_for(later) == 0
    stream.publish(sound())
    stream.publish(sound())
    assert 90 < stream.unread_for(later) <= 100
    reader = iter(stream)
    promptly(lambda: next(reader))
    assert stream.unread_for(later) > 90  # one is still there
    promptly(lambda: next(reader))
    assert stream.unread_for(later) == 0


def test_a_stream_tells_its_request() -> None:
    stream = Stream("job", seed=5, sample_rate=24_000, max_bytes=1, warnings=("careful",))
    assert (stream.id, stream.seed, stream.sample_rate) == ("job", 5, 24_000)
    assert stream.warnings == ("careful",)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (0.0, 0),
        (1.0, 32767),
        (-1.0, -32767),
        (2.0, 32767),
        (-2.0, -32768),
        (float("inf"), 32767),
        (float("-inf"), -32768),
        (0.25, 8192),  # 8191.75
        (-0.25, -8192),
        (0.4 / 32767, 0),
        (0.6 / 32767, 1),
        (-0.6 / 32767, -1),
        (32768 / 32767, 32767),
        (-32768 / 32767, -32768),
    ],
)
def test_pcm16_is_scaled_by_32767_rounded_and_clipped(sample: float, expected: int) -> None:
    assert to_pcm16(np.array([sample], np.float32)) == expected.to_bytes(2, "little", signed=True)


def test_pcm16_keeps_the_order_and_count_of_the_samples() -> None:
    audio = Audio(0, np.array([0.5, -1.0, 0.0], np.float32))
    assert np.frombuffer(audio.pcm16(), "<i2").tolist() == [16384, -32767, 0]
