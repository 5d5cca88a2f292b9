"""Failures inside the engine: private where the culprit is known, loud when the device is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import engine
from engine.tts.rows import Frame
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


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The tracebacks are logged on purpose."""
    caplog.set_level(logging.CRITICAL, logger="framecast.engine")


def row_of(speaker: engine.Engine, voice: str) -> int:
    """The codec-embedding row of a named speaker."""
    speakers = speaker._runners[0].spec.talker.speakers
    return next(each.id for each in speakers if each.name == voice)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_not_numbers_after_the_prompt_fail_only_that_request(
    start: Start, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    speaker = start()
    requests = [ask(frames=3, seed=i, voice=v) for i, v in enumerate(["ryan", "vivian", "ryan"])]
    alone = [solo(speaker, request) for request in requests]
    generator = speaker._runners[0]._generator
    decode = generator.decode

    def poison(slots: Any) -> None:
        decode(slots)
        for slot in slots:
            if slot.entry.sampling.seed == 1 and slot.frames == 0:
                generator.logits[slot.index, 5] = value

    monkeypatch.setattr(generator, "decode", poison)
    streams = [speaker.submit(request) for request in requests]
    with pytest.raises(engine.GenerationFailed, match="not numbers"):
        read(streams[1])
    assert same(sound(read(streams[0])), alone[0])
    assert same(sound(read(streams[2])), alone[2])
    assert balanced(speaker)


def test_scores_that_break_in_mid_stream_fail_only_that_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    requests = [ask(frames=5, seed=i) for i in range(3)]
    alone = [solo(speaker, request) for request in requests]
    generator = speaker._runners[0]._generator
    decode, streams = generator.decode, []

    def poison(slots: Any) -> None:
        decode(slots)
        for slot in slots:
            if slot.entry.stream is streams[1] and slot.frames == 2:
                generator.logits[slot.index] = float("nan")

    monkeypatch.setattr(generator, "decode", poison)
    submit = [lambda r=request: streams.append(speaker.submit(r)) for request in requests]
    promptly(lambda: speaker.call(lambda: [each() for each in submit]))
    assert isinstance(failure(streams[1]), engine.GenerationFailed)
    assert same(sound(read(streams[0])), alone[0])
    assert same(sound(read(streams[2])), alone[2])
    assert balanced(speaker)
    assert run(speaker.stats()).finished == {"length": 5, "GenerationFailed": 1}


def test_a_poisoned_row_does_not_reach_the_next_request_in_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start(slots=1)
    request = ask(frames=6, seed=3)
    alone = solo(speaker, request)
    generator = speaker._runners[0]._generator
    decode = generator.decode

    def poison(slots: Any) -> None:
        decode(slots)
        generator.hidden.fill_(float("nan"))
        generator.logits.fill_(float("nan"))
        generator.cache.k.fill_(float("nan"))
        generator.cache.v.fill_(float("nan"))
        generator.seen.fill_(True)

    monkeypatch.setattr(generator, "decode", poison)
    assert isinstance(failure(speaker.submit(request)), engine.GenerationFailed)
    monkeypatch.undo()
    assert same(solo(speaker, request), alone)
    assert balanced(speaker)


def test_sound_that_is_not_numbers_fails_only_that_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    requests = [ask(frames=5, seed=i) for i in range(3)]
    alone = [solo(speaker, request) for request in requests]
    vocoder = speaker._runners[0]._vocoder
    decode, streams = vocoder._decode, []

    def poison(slots: Any, count: int) -> Any:
        pcm = decode(slots, count)
        for row, slot in enumerate(slots):
            if slot.entry.stream is streams[1] and slot.decoded >= 2:
                pcm[row, 100] = np.nan
        return pcm

    monkeypatch.setattr(vocoder, "_decode", poison)
    submit = [lambda r=request: streams.append(speaker.submit(r)) for request in requests]
    promptly(lambda: speaker.call(lambda: [each() for each in submit]))
    heard = []
    with pytest.raises(engine.GenerationFailed):
        promptly(lambda: heard.extend(streams[1]))
    assert all(np.isfinite(item.pcm).all() for item in heard)
    assert same(sound(read(streams[0])), alone[0])
    assert same(sound(read(streams[2])), alone[2])
    assert balanced(speaker)


def test_weights_that_are_not_numbers_fail_every_request_and_stop_nothing(start: Start) -> None:
    speaker = start()

    def poison() -> None:
        with torch.no_grad():
            speaker._runners[0]._generator.talker.codec_head.weight.fill_(float("nan"))

    promptly(lambda: speaker.call(poison))
    streams = [speaker.submit(ask(frames=4, seed=i)) for i in range(6)]
    assert all(isinstance(failure(stream), engine.GenerationFailed) for stream in streams)
    assert balanced(speaker)
    assert run(speaker.health()).alive


def test_a_prompt_that_cannot_be_processed_fails_only_that_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    request = ask(frames=4, seed=1)
    alone = solo(speaker, request)
    row = row_of(speaker, "ryan")
    generator = speaker._runners[0]._generator
    prompt = generator.prompt

    def fail(plan: Any) -> Any:
        if plan.speaker_row == row:
            raise ValueError("a bad prompt")
        return prompt(plan)

    monkeypatch.setattr(generator, "prompt", fail)
    fine, broken = speaker.submit(request), speaker.submit(ask(frames=8, voice="ryan"))
    with pytest.raises(engine.GenerationFailed, match="a bad prompt"):
        read(broken)
    assert same(sound(read(fine)), alone)
    assert balanced(speaker)


def test_many_failed_prompts_in_a_row_do_not_stop_the_queue(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.worker._TICK_S", 3600.0)
    speaker = start(slots=1)
    row = row_of(speaker, "ryan")
    generator = speaker._runners[0]._generator
    prompt = generator.prompt

    def fail(plan: Any) -> Any:
        if plan.speaker_row == row:
            raise ValueError("a bad prompt")
        return prompt(plan)

    monkeypatch.setattr(generator, "prompt", fail)
    broken = [speaker.submit(ask(voice="ryan")) for _ in range(6)]
    fine = speaker.submit(ask(frames=2))
    assert all(isinstance(failure(stream), engine.GenerationFailed) for stream in broken)
    assert read(fine)[-1].stats.frames == 2  # type: ignore[union-attr]
    assert balanced(speaker)


@pytest.mark.parametrize(
    ("part", "stage"),
    [
        ("_generator", "decode"),
        ("_generator", "draw"),
        ("_generator", "_predict"),
        ("_vocoder", "_decode"),
    ],
    ids=["talker", "draw", "predictor", "codec"],
)
def test_a_failed_frame_ends_the_active_requests_and_the_engine_serves_the_next(
    start: Start, monkeypatch: pytest.MonkeyPatch, part: str, stage: str
) -> None:
    speaker = start(slots=2)
    request = ask(frames=3, seed=1)
    alone = solo(speaker, request)
    broken = getattr(speaker._runners[0], part)
    work, streams, queued = getattr(broken, stage), [], []

    def fail(*args: Any) -> Any:
        if not queued and speaker._runners[0].free == 0:
            queued.append(speaker.submit(request))
            raise ValueError("a bad frame")
        return work(*args)

    monkeypatch.setattr(broken, stage, fail)
    submit = [
        lambda s=seed: streams.append(speaker.submit(ask(frames=60, seed=s))) for seed in (5, 6)
    ]
    promptly(lambda: speaker.call(lambda: [each() for each in submit]))
    for stream in streams:
        error = failure(stream)
        assert isinstance(error, engine.GenerationFailed)
        assert "a bad frame" in str(error)
    assert same(sound(read(queued[0])), alone)
    assert balanced(speaker)
    assert run(speaker.health()).alive


def test_a_failed_frame_leaves_the_other_model_alone(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    custom_voice: engine.ModelFiles,
    base: engine.ModelFiles,
) -> None:
    speaker = start([custom_voice, base])
    other = ask(frames=4, model=speaker.models[1].name)
    alone = solo(speaker, other)
    generator = speaker._runners[0]._generator

    def fail(slots: Any) -> Any:
        raise ValueError("a bad frame")

    monkeypatch.setattr(generator, "draw", fail)
    fine, broken = speaker.submit(other), speaker.submit(ask())
    assert isinstance(failure(broken), engine.GenerationFailed)
    assert same(sound(read(fine)), alone)
    assert balanced(speaker)


def device_lost(*args: Any) -> Any:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_lost_device_ends_every_stream_and_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start(slots=2, stream_bytes=FRAME_BYTES, ramp=(1,))
    streams = [speaker.submit(ask(frames=20, seed=i)) for i in range(5)]
    assert paused(speaker, streams[0])
    assert paused(speaker, streams[1])
    generator = speaker._runners[0]._generator
    monkeypatch.setattr(generator, "decode", device_lost)
    reader = iter(streams[0])
    promptly(lambda: next(reader))  # makes room, so the next frame is tried
    speaker._worker.join(30)
    assert all(stream.ended for stream in streams)
    for stream in streams:
        assert isinstance(failure(stream), engine.GenerationFailed | engine.EngineUnavailable)
    health = run(speaker.health())
    assert (health.alive, health.ready) == (False, False)
    assert "the device is lost" in health.reason
    for refused in (lambda: speaker.submit(ask()), lambda: speaker.speak(ask()), speaker.books):
        with pytest.raises(engine.EngineUnavailable, match="the device is lost"):
            promptly(refused)
    assert speaker.in_flight == 0
    run(speaker.drain(30))


@pytest.mark.parametrize("stage", ["decode", "prompt", "prefill"])
def test_a_lost_device_ends_every_stream_even_when_no_slot_can_be_cleared(
    start: Start, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    # Clearing a row is work for the device, which is gone.
    speaker = start(slots=2)
    generator = speaker._runners[0]._generator
    streams: list[engine.Stream] = []

    def lose() -> None:
        streams.extend(speaker.submit(ask(frames=20, seed=i)) for i in range(4))
        monkeypatch.setattr(generator, stage, device_lost)
        monkeypatch.setattr(generator, "clear", device_lost)

    promptly(lambda: speaker.call(lose))
    speaker._worker.join(30)
    assert not run(speaker.health()).alive
    assert [stream.ended for stream in streams] == [True] * 4
    assert speaker.in_flight == 0


def test_three_failed_frames_in_a_row_are_a_lost_device(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()

    def fail(slots: Any) -> Any:
        raise ValueError("a bad frame")

    monkeypatch.setattr(speaker._runners[0]._generator, "draw", fail)
    for _ in range(3):
        assert isinstance(failure(speaker.submit(ask())), engine.GenerationFailed)
    assert eventually(lambda: not run(speaker.health()).alive)
    with pytest.raises(engine.EngineUnavailable, match="the device is lost: a bad frame"):
        speaker.submit(ask())


def test_a_lost_device_ends_a_long_text_between_two_parts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start(max_frames=120)
    utterance = speaker.speak(ask("This is one. This is two. This is three.", frames=2))
    assert eventually(lambda: speaker.in_flight == 0)
    monkeypatch.setattr(speaker._runners[0]._generator, "decode", device_lost)
    heard = []
    with pytest.raises((engine.GenerationFailed, engine.EngineUnavailable)):
        promptly(lambda: heard.extend(utterance))
    assert heard and not isinstance(heard[-1], engine.Finished)


def test_a_request_that_draws_its_end_first_is_a_failure_and_not_an_empty_success(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    generator = speaker._runners[0]._generator
    monkeypatch.setattr(generator, "draw", lambda slots: Frame([], list(slots)))
    with pytest.raises(engine.GenerationFailed, match="no audio"):
        read(speaker.submit(ask()))
    assert balanced(speaker)


def test_a_warm_up_that_fails_leaves_the_engine_not_ready(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start()
    generator = speaker._runners[0]._generator
    monkeypatch.setattr(generator, "draw", lambda slots: Frame([], list(slots)))
    with pytest.raises(engine.GenerationFailed):
        promptly(speaker.warm_up)
    assert not run(speaker.health()).ready
