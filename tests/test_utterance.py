"""One output fed by several jobs in order."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import Cancelled, EngineUnavailable, GenerationFailed
from engine.request import FinishReason, Sampling, SpeechRequest
from engine.stream import Audio, Finished, Item, Stats, Stream
from engine.utterance import Part, Utterance
from tests.waiting import promptly, run

SAMPLES = 4  # per frame


def stats(frames: int, **seconds: float) -> Stats:
    return Stats(frames=frames, seed=9, **seconds)


def spoken(
    *flushes: int, reason: FinishReason = FinishReason.STOP, end: Stats | None = None
) -> Stream:
    """A stream that said everything already: `flushes` are frame counts."""
    stream, first = Stream("job", seed=9, sample_rate=24_000, max_bytes=10**6), 0
    for count in flushes:
        stream.publish(Audio(first, np.full(count * SAMPLES, float(first), np.float32)))
        first += count
    stream.finish(Finished(reason, end or stats(first)))
    return stream


class Parts:
    """Submits prepared streams and remembers what was asked for."""

    def __init__(self, *streams: Stream) -> None:
        self.streams = streams
        self.asked: list[SpeechRequest] = []

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.asked]

    def submit(self, request: SpeechRequest) -> Stream:
        self.asked.append(request)
        return self.streams[len(self.asked)]

    def utterance(self, *pauses: int, count: int | None = None, hold: bool = False) -> Utterance:
        texts = [f"part {index}" for index in range(count or len(self.streams))]
        silence = [*(pause * SAMPLES for pause in pauses), *[0] * len(texts)]
        parts = [Part(SpeechRequest(text), silence[i]) for i, text in enumerate(texts)]
        return Utterance(parts, self.streams[0], self.submit, frame_samples=SAMPLES, hold=hold)


def two_parts(first: Stream, submit: Callable[[SpeechRequest], Stream]) -> Utterance:
    parts = [Part(SpeechRequest("a")), Part(SpeechRequest("b"))]
    return Utterance(parts, first, submit, frame_samples=SAMPLES)


def read_sync(utterance: Utterance) -> list[Item]:
    return promptly(lambda: list(utterance))


def read_async(utterance: Utterance) -> list[Item]:
    async def read() -> list[Item]:
        return [item async for item in utterance]

    return run(read())


either_way = pytest.mark.parametrize("read", [read_sync, read_async], ids=["sync", "async"])


@either_way
def test_frame_numbers_run_on_across_parts(read: object) -> None:
    parts = Parts(spoken(1, 2), spoken(3), spoken(1, 1))
    *audio, end = read(parts.utterance())  # type: ignore[operator]
    assert [item.first_frame for item in audio] == [0, 1, 3, 6, 7]
    assert [len(item.pcm) // SAMPLES for item in audio] == [1, 2, 3, 1, 1]
    assert end.reason is FinishReason.STOP
    assert end.stats.frames == 8


@either_way
def test_parts_are_submitted_in_order_and_each_once(read: object) -> None:
    parts = Parts(spoken(1), spoken(1), spoken(1))
    read(parts.utterance())  # type: ignore[operator]
    assert parts.texts == ["part 1", "part 2"]


def test_the_next_part_is_submitted_once_the_last_was_generated_and_before_it_is_all_read() -> None:
    speaking = Stream("job", seed=9, sample_rate=24_000, max_bytes=10**6)
    parts = Parts(speaking, spoken(1))
    reader = iter(parts.utterance())
    for first in range(3):
        speaking.publish(Audio(first, np.zeros(SAMPLES, np.float32)))
    promptly(lambda: next(reader))
    assert parts.asked == []  # it is still being generated
    speaking.finish(Finished(FinishReason.STOP, stats(3)))
    promptly(lambda: next(reader))
    assert parts.texts == ["part 1"]
    assert [item.first_frame for item in promptly(lambda: list(reader))[:-1]] == [2, 3]


def test_a_pause_in_front_of_a_part_is_silence_of_as_many_frames() -> None:
    *audio, end = read_sync(Parts(spoken(2), spoken(1)).utterance(0, 3))
    assert [item.first_frame for item in audio] == [0, 2, 5]
    assert not audio[1].pcm.any()
    assert [len(item.pcm) // SAMPLES for item in audio] == [2, 3, 1]
    assert end.stats.frames == 6


@either_way
def test_pauses_in_front_between_and_behind_are_exact_to_the_sample(read: object) -> None:
    streams = Parts(spoken(2), spoken(1))
    parts = [Part(SpeechRequest("One."), 3), Part(SpeechRequest("Two."), 5, tail_samples=7)]
    utterance = Utterance(parts, streams.streams[0], streams.submit, frame_samples=SAMPLES)
    *audio, end = read(utterance)  # type: ignore[operator]
    assert [len(item.pcm) for item in audio] == [3, 2 * SAMPLES, 5, SAMPLES, 7]
    assert not (audio[0].pcm.any() or audio[2].pcm.any() or audio[4].pcm.any())
    assert [item.first_frame for item in audio] == [0, 0, 2, 4, 5]
    assert end.stats.frames == (3 + 2 * SAMPLES + 5 + SAMPLES + 7) // SAMPLES


def test_silence_in_front_waits_for_the_first_sound() -> None:
    speaking = Stream("job", seed=9, sample_rate=24_000, max_bytes=10**6)
    parts = [Part(SpeechRequest("One."), 3)]
    utterance = Utterance(parts, speaking, Parts().submit, frame_samples=SAMPLES)
    speaking.fail(GenerationFailed("nothing"))
    with pytest.raises(GenerationFailed):  # and not sound first, which would send a status line
        promptly(utterance.get)


def test_a_part_drawn_again_keeps_its_pause() -> None:
    streams = Parts(spoken(1), spoken(2, reason=FinishReason.LOOP), spoken(3))
    parts = [Part(SpeechRequest("One.")), Part(SpeechRequest("Two."), 5)]
    first = streams.streams[0]
    utterance = Utterance(parts, first, streams.submit, frame_samples=SAMPLES, hold=True)
    *audio, end = read_sync(utterance)
    assert [len(item.pcm) for item in audio] == [SAMPLES, 5, 3 * SAMPLES]
    assert end.stats.redraws == 1


def test_an_utterance_tells_what_it_says_with_its_pauses() -> None:
    parts = [Part(SpeechRequest("One.")), Part(SpeechRequest("Two."), 36_000, tail_samples=2_400)]
    utterance = Utterance(parts, spoken(1), Parts().submit, frame_samples=SAMPLES)
    assert utterance.spoken_text == "One. [pause:1.5s] Two. [pause:0.1s]"


@either_way
@pytest.mark.parametrize("reason", [FinishReason.LOOP, FinishReason.LENGTH])
def test_a_held_part_that_ran_away_is_drawn_again_once_with_another_seed(
    read: object, reason: FinishReason
) -> None:
    parts = Parts(spoken(9, reason=reason), spoken(2))
    *audio, end = read(parts.utterance(count=1, hold=True))  # type: ignore[operator]
    assert sum(len(item.pcm) for item in audio) == 2 * SAMPLES
    assert (end.reason, end.stats.redraws, end.stats.frames) == (FinishReason.STOP, 1, 2)
    assert parts.texts == ["part 0"]
    assert parts.asked[0].sampling.seed not in (None, 9)


def test_a_second_runaway_is_given_out_with_its_reason() -> None:
    parts = Parts(spoken(9, reason=FinishReason.LOOP), spoken(7, reason=FinishReason.LOOP))
    *audio, end = read_sync(parts.utterance(count=1, hold=True))
    assert sum(len(item.pcm) for item in audio) == 7 * SAMPLES
    assert (end.reason, end.stats.redraws) == (FinishReason.LOOP, 1)


def test_every_held_part_may_be_drawn_again() -> None:
    loop = FinishReason.LOOP
    parts = Parts(spoken(9, reason=loop), spoken(1), spoken(8, reason=loop), spoken(2))
    end = read_sync(parts.utterance(count=2, hold=True))[-1]
    assert parts.texts == ["part 0", "part 1", "part 1"]
    assert (end.reason, end.stats.redraws, end.stats.frames) == (FinishReason.STOP, 2, 3)


def test_a_length_the_caller_asked_for_is_no_runaway() -> None:
    asked = SpeechRequest("a", sampling=Sampling(max_new_tokens=4))
    parts = Parts(spoken(4, reason=FinishReason.LENGTH))
    utterance = Utterance(
        [Part(asked)], parts.streams[0], parts.submit, frame_samples=SAMPLES, hold=True
    )
    assert read_sync(utterance)[-1].reason is FinishReason.LENGTH
    assert parts.asked == []


def test_without_hold_nothing_is_drawn_again() -> None:
    parts = Parts(spoken(9, reason=FinishReason.LOOP))
    assert read_sync(parts.utterance())[-1].reason is FinishReason.LOOP


@either_way
def test_a_single_part_reads_like_its_stream(read: object) -> None:
    end = stats(3, queue_s=1.0, total_s=2.0, talker_s=0.5)
    parts = Parts(spoken(1, 2, reason=FinishReason.LENGTH, end=end))
    *audio, finished = read(parts.utterance())  # type: ignore[operator]
    assert len(audio) == 2
    assert finished == Finished(FinishReason.LENGTH, end)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (("stop", "stop"), "stop"),
        (("length", "stop"), "length"),
        (("stop", "loop", "stop"), "loop"),
        (("stop", "silence", "length"), "silence"),
    ],
)
def test_the_reason_is_the_first_that_is_not_stop(reasons: tuple[str, ...], expected: str) -> None:
    parts = Parts(*(spoken(1, reason=FinishReason(reason)) for reason in reasons))
    assert read_sync(parts.utterance())[-1].reason == expected  # type: ignore[union-attr]


def test_costs_add_up_and_waits_are_those_of_the_first_part() -> None:
    first = stats(2, queue_s=1, prefill_s=2, first_audio_s=3, talker_s=4, predictor_s=5, codec_s=6)
    second = stats(
        5, queue_s=10, prefill_s=20, first_audio_s=30, talker_s=40, predictor_s=50, codec_s=60
    )
    end = read_sync(Parts(spoken(2, end=first), spoken(5, end=second)).utterance())[-1].stats  # type: ignore[union-attr]
    assert (end.frames, end.seed) == (7, 9)
    assert (end.queue_s, end.first_audio_s) == (1, 3)
    assert (end.prefill_s, end.talker_s, end.predictor_s, end.codec_s) == (22, 44, 55, 66)
    assert end.total_s >= 0


@either_way
def test_a_failure_in_a_later_part_surfaces_after_the_sound_before_it(read: object) -> None:
    broken = Stream("job.1", seed=1, sample_rate=24_000, max_bytes=100)
    broken.fail(GenerationFailed("part two is broken"))
    utterance, heard = Parts(spoken(2), broken, spoken(1)).utterance(), []

    async def read_all() -> None:
        async for item in utterance:
            heard.append(item)  # noqa: PERF401

    def read_all_sync() -> None:
        for item in utterance:
            heard.append(item)  # noqa: PERF402

    with pytest.raises(GenerationFailed, match="part two"):
        promptly(read_all_sync) if read is read_sync else run(read_all())
    assert [item.first_frame for item in heard] == [0]


@either_way
def test_a_refused_later_part_surfaces_and_ends_the_utterance(read: object) -> None:
    def refuse(request: SpeechRequest) -> Stream:
        raise EngineUnavailable("the engine was stopped")

    utterance = two_parts(spoken(1), refuse)
    with pytest.raises(EngineUnavailable):
        read(utterance)  # type: ignore[operator]
    with pytest.raises((Cancelled, EngineUnavailable)):  # and does not hang when read again
        run(utterance.read())


def test_cancel_stops_the_part_that_speaks_and_no_later_one_is_submitted() -> None:
    speaking = Stream("job", seed=1, sample_rate=24_000, max_bytes=100)
    parts = Parts(speaking, spoken(1))
    utterance = parts.utterance()
    utterance.cancel()
    utterance.cancel()
    assert speaking.ended
    with pytest.raises(Cancelled):
        read_sync(utterance)
    assert parts.asked == []


def test_a_cancel_between_parts_reaches_the_part_being_submitted() -> None:
    second = Stream("job.1", seed=1, sample_rate=24_000, max_bytes=100)
    cancelled = threading.Event()

    def submit(request: SpeechRequest) -> Stream:
        # The listener leaves while the part is on its way in.
        threading.Thread(target=leave, daemon=True).start()
        return second

    utterance = two_parts(spoken(1), submit)

    def leave() -> None:
        utterance.cancel()
        cancelled.set()

    with pytest.raises(Cancelled):
        read_sync(utterance)
    assert cancelled.wait(30)
    assert second.ended


def test_a_cancel_after_the_last_item_of_a_part_stops_the_next() -> None:
    second = Stream("job.1", seed=1, sample_rate=24_000, max_bytes=100)
    parts = Parts(spoken(1), second)
    utterance = parts.utterance()
    reader = iter(utterance)
    promptly(lambda: next(reader))
    utterance.cancel()  # the first part has ended, so there is nothing to stop in it
    with pytest.raises(Cancelled):
        promptly(lambda: next(reader))
    assert second.ended


def test_cancel_after_the_end_is_a_no_op() -> None:
    parts = Parts(spoken(1), spoken(2))
    utterance = parts.utterance()
    items = read_sync(utterance)
    utterance.cancel()
    assert isinstance(items[-1], Finished)


def test_an_utterance_shows_the_facts_of_its_first_stream() -> None:
    first = Stream("me", seed=4, sample_rate=24_000, max_bytes=1, warnings=("careful",))
    utterance = Parts(first).utterance()
    assert (utterance.id, utterance.seed, utterance.sample_rate) == ("me", 4, 24_000)
    assert utterance.warnings == ("careful",)
