"""The engine over tiny real models: what it is asked for is what every listener gets."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import engine
from engine.request import derive_seed
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
from tests.waiting import PATIENCE_S, eventually, promptly, run

Start = Callable[..., engine.Engine]
TEXTS = ["Hello.", "Grüße aus Köln!", "你好，世界。", "One, two, three, four.", "नमस्ते"]


@pytest.fixture(scope="module")
def named(custom_voice: engine.ModelFiles) -> Iterator[engine.Engine]:
    """One engine for all requests that are refused: nothing may be held after any of them."""
    yield from refusing(custom_voice)


@pytest.fixture(scope="module")
def cloning(base: engine.ModelFiles) -> Iterator[engine.Engine]:
    """The same with a Base model."""
    yield from refusing(base)


def refusing(files: engine.ModelFiles) -> Iterator[engine.Engine]:
    speaker = engine.load(files, engine.EngineConfig(slots=1, kv_positions=64, device="cpu"))
    yield speaker
    assert speaker.in_flight == 0
    speaker.close()


# Speaking


def test_many_more_requests_than_slots_all_sound_as_if_alone(start: Start) -> None:
    speaker = start(slots=3)
    requests = [
        ask(TEXTS[i % len(TEXTS)], frames=2 + i % 4, seed=i, voice="ryan" if i % 2 else None)
        for i in range(10)
    ]
    streams = [speaker.submit(request) for request in requests]
    together = [sound(read(stream)) for stream in streams]
    assert balanced(speaker)
    for request, heard in zip(requests, together, strict=True):
        assert same(heard, solo(speaker, request))


def test_requests_that_arrive_while_others_speak_change_nothing(start: Start) -> None:
    speaker = start(slots=2)
    first, second = ask("Hello.", frames=9, seed=1), ask("Goodbye.", frames=3, seed=2)
    alone = [solo(speaker, first), solo(speaker, second)]
    running = speaker.submit(first)
    reader = iter(running)
    head = [promptly(lambda: next(reader)) for _ in range(2)]
    joined = speaker.submit(second)
    assert same(sound(read(joined)), alone[1])
    assert same(sound([*head, *promptly(lambda: list(reader))]), alone[0])


def test_the_same_seed_repeats_and_another_differs(start: Start) -> None:
    speaker = start()
    first = solo(speaker, ask(frames=4, seed=5))
    assert same(first, solo(speaker, ask(frames=4, seed=5)))
    assert not same(first, solo(speaker, ask(frames=4, seed=6)))


def test_what_nobody_listens_to_yet_repeats_bit_by_bit(start: Start) -> None:
    speaker = start()
    first, second = (
        sound(read(speaker.speak(ask(frames=20, seed=5), streaming=False, redraw=True)))
        for _ in range(2)
    )
    assert np.array_equal(first, second)


def test_a_runaway_is_drawn_again_before_anything_is_heard(start: Start) -> None:
    speaker = start(max_frames=96)  # the tiny models never stop by themselves
    request = engine.SpeechRequest("Hello.", sampling=engine.Sampling(seed=5))
    *audio, end = read(speaker.speak(request, redraw=True))
    assert (end.reason, end.stats.redraws) == (engine.FinishReason.LENGTH, 1)
    other = read(speaker.submit(request))
    assert len(sound(audio)) == len(sound(other))
    assert not same(sound(audio), sound(other))
    assert balanced(speaker)


def test_the_engine_tells_what_its_models_take(start: Start) -> None:
    wide, narrow = start(slots=4), start(slots=1)
    sizes = [run(each.stats()).memory_bytes for each in (wide, narrow)]
    assert sizes[0] > sizes[1] > 100_000


def test_a_drawn_seed_is_reported_and_repeats_the_sound(start: Start) -> None:
    speaker = start()
    request = engine.SpeechRequest("Hello.", sampling=engine.Sampling(max_new_tokens=6))
    stream = speaker.submit(request)
    heard = read(stream)
    assert heard[-1].stats.seed == stream.seed  # type: ignore[union-attr]
    assert same(sound(heard), solo(speaker, ask("Hello.", frames=6, seed=stream.seed)))


def test_the_end_says_why_and_what_it_took(start: Start) -> None:
    speaker = start()
    *audio, end = read(speaker.submit(ask(frames=7)))
    assert isinstance(end, engine.Finished)
    assert end.reason is engine.FinishReason.LENGTH
    assert end.stats.frames == 7
    assert sum(len(item.pcm) for item in audio) == 7 * 1920  # type: ignore[union-attr]
    assert end.stats.prompt_positions > 10
    spent = ("prefill_s", "talker_s", "predictor_s", "codec_s")
    assert all(getattr(end.stats, name) > 0 for name in spent)
    assert 0 <= end.stats.queue_s <= end.stats.first_audio_s <= end.stats.total_s


def test_a_full_stream_pauses_its_request_and_loses_nothing(start: Start) -> None:
    speaker = start()
    request = ask(frames=6, seed=3)
    whole = solo(speaker, request)
    narrow = start(stream_bytes=FRAME_BYTES, ramp=(1,))
    stream = narrow.submit(request)
    assert paused(narrow, stream)
    frames = run(narrow.stats()).frames_total
    assert frames < 6
    assert same(sound(read(stream)), whole)


def test_a_paused_request_does_not_hold_up_the_others(start: Start) -> None:
    speaker = start(stream_bytes=FRAME_BYTES, ramp=(1,))
    still = speaker.submit(ask(frames=20, seed=1))
    assert paused(speaker, still)
    other = read(speaker.submit(ask(frames=6, seed=2)))
    assert other[-1].reason is engine.FinishReason.LENGTH  # type: ignore[union-attr]
    assert not still.ended


def test_async_iteration_hears_the_same(start: Start) -> None:
    speaker = start()
    request = ask(frames=6, seed=4)
    alone = solo(speaker, request)

    async def listen(times: int) -> list[Any]:
        async def one() -> list[Any]:
            return [item async for item in speaker.submit(request)]

        return await asyncio.gather(*(one() for _ in range(times)))

    for items in run(listen(3)):
        assert same(sound(items), alone)


def test_requests_from_twenty_threads_are_all_answered(start: Start) -> None:
    speaker = start()
    alone = [solo(speaker, ask(frames=1 + i % 2, seed=i)) for i in range(20)]
    heard: dict[int, np.ndarray[Any, Any]] = {}
    gate = threading.Barrier(20)

    def speak(index: int) -> None:
        gate.wait(PATIENCE_S)
        stream = speaker.submit(ask(frames=1 + index % 2, seed=index))
        heard[index] = sound(list(stream))

    threads = [threading.Thread(target=speak, args=(i,), daemon=True) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(heard) == list(range(20))
    assert all(same(heard[i], alone[i]) for i in range(20))
    assert balanced(speaker)


# Limits


def test_a_text_too_long_for_a_slot_is_refused_before_it_is_queued(named: engine.Engine) -> None:
    with pytest.raises(engine.InvalidRequest, match="a slot holds 64") as caught:
        named.submit(ask("a" * 200))
    assert caught.value.field == "text"
    assert named.in_flight == 0


@pytest.mark.parametrize("text", ["", "  \n", "...!?", "🙂"])
def test_a_text_that_says_nothing_is_refused(named: engine.Engine, text: str) -> None:
    for call in (named.submit, named.speak):
        with pytest.raises(engine.InvalidRequest, match="nothing that can be spoken") as caught:
            call(ask(text))
        assert caught.value.field == "text"
    assert named.in_flight == 0


def test_more_frames_than_a_slot_holds_are_clamped_with_a_warning(start: Start) -> None:
    speaker = start(kv_positions=64, loop_window=0, silence_s=0)
    stream = speaker.submit(ask("Hi", frames=1000))
    end = read(stream)[-1]
    assert end.reason is engine.FinishReason.LENGTH  # type: ignore[union-attr]
    left = 64 - end.stats.prompt_positions  # type: ignore[union-attr]
    assert end.stats.frames == left  # type: ignore[union-attr]
    assert stream.warnings == (f"`max_new_tokens` is 1000, but only {left} frames fit the slot",)
    assert balanced(speaker)


def test_a_request_without_a_ceiling_ends_at_the_setting(start: Start) -> None:
    speaker = start(max_frames=5)
    end = read(speaker.submit(engine.SpeechRequest("Hi", sampling=engine.Sampling(seed=0))))[-1]
    assert end.stats.frames == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -1.0), ("top_p", 0.0), ("max_new_tokens", 0), ("seed", 2**63)],
)
def test_sampling_out_of_range_is_refused_by_name(
    named: engine.Engine, field: str, value: Any
) -> None:
    sampling = engine.Sampling(**{field: value})
    with pytest.raises(engine.InvalidRequest, match=f"`{field}`") as caught:
        named.submit(engine.SpeechRequest("Hello", sampling=sampling))
    assert caught.value.field == field
    assert named.in_flight == 0


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_time_limit_that_is_over_at_once_is_refused(named: engine.Engine, timeout: float) -> None:
    with pytest.raises(engine.InvalidRequest, match="`timeout_s`"):
        named.submit(ask(), timeout_s=timeout)


def test_a_full_queue_refuses_at_once_and_recovers(start: Start) -> None:
    speaker = start(slots=1, max_queue=1, stream_bytes=FRAME_BYTES, ramp=(1,))
    running = speaker.submit(ask(frames=20))
    waiting = speaker.submit(ask(frames=2))
    with pytest.raises(engine.Overloaded) as caught:
        speaker.submit(ask())
    assert caught.value.queue_depth == 2
    assert caught.value.retry_after_s > 0
    running.cancel()
    read(waiting)
    assert balanced(speaker)
    read(speaker.submit(ask(frames=2)))


# Long texts


def test_a_long_text_is_split_and_every_part_is_said_in_order(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = start(max_frames=240)  # 20 tokens a part
    text = "This is one. This is two. And number three. Here is four."
    request = ask(text, frames=3, seed=11, voice="ryan")
    said: list[engine.SpeechRequest] = []
    intake = speaker._intake(request)
    entry = intake.entry

    def remember(request: engine.SpeechRequest, *args: Any, **kwargs: Any) -> Any:
        said.append(request)
        return entry(request, *args, **kwargs)

    monkeypatch.setattr(intake, "entry", remember)
    utterance = speaker.speak(request)
    items = read(utterance)
    monkeypatch.undo()
    assert len(said) > 2
    assert " ".join(part.text for part in said) == text
    assert {part.voice for part in said} == {"ryan"}
    seeds = [part.sampling.seed for part in said]
    assert seeds == [derive_seed(11, index) for index in range(len(said))]
    assert items[-1].stats.frames == 3 * len(said)  # type: ignore[union-attr]
    assert same(sound(items), np.concatenate([solo(speaker, part) for part in said]))
    assert balanced(speaker)


def test_a_short_text_is_spoken_as_one_part(start: Start) -> None:
    speaker = start()
    request = ask(frames=5, seed=8)
    utterance = speaker.speak(request)
    items = read(utterance)
    assert utterance.seed == 8
    assert same(sound(items), solo(speaker, request))


def test_a_long_text_is_heard_to_its_end_when_the_queue_is_full(start: Start) -> None:
    speaker = start(slots=1, max_queue=0, max_frames=120)
    utterance = speaker.speak(ask("This is one. This is two. This is three.", frames=2))
    items = read(utterance)
    assert items[-1].stats.frames >= 6  # type: ignore[union-attr]
    assert balanced(speaker)


def test_every_script_can_be_spoken_in_the_smallest_slot(start: Start) -> None:
    speaker = start(kv_positions=64, max_frames=12)
    try:
        utterance = speaker.speak(ask("漢字と仮名", frames=1))
    except engine.InvalidRequest:
        return  # a clear refusal is an answer too
    assert read(utterance)[-1].stats.frames >= 1  # type: ignore[union-attr]


def test_cancelling_an_utterance_leaves_nothing_behind(start: Start) -> None:
    speaker = start(max_frames=120, stream_bytes=FRAME_BYTES, ramp=(1,))
    utterance = speaker.speak(ask("This is one. This is two. This is three.", frames=10))
    reader = iter(utterance)
    promptly(lambda: next(reader))
    utterance.cancel()
    with pytest.raises(engine.Cancelled):
        promptly(lambda: list(reader))
    assert balanced(speaker)


# Models


def test_two_models_speak_side_by_side(
    start: Start, custom_voice: engine.ModelFiles, base: engine.ModelFiles
) -> None:
    speaker = start([replace(custom_voice, name="named"), replace(base, name="cloned")])
    assert [model.name for model in speaker.models] == ["named", "cloned"]
    vector = np.linspace(-1, 1, speaker.model("cloned").speaker_width, dtype=np.float32)
    named = ask(frames=6, seed=1, voice="vivian")
    cloned = ask(frames=6, seed=1, model="CLONED", speaker_embedding=vector)
    streams = [speaker.submit(request) for request in (named, cloned, cloned, named)]
    heard = [sound(read(stream)) for stream in streams]
    assert same(heard[0], heard[3])
    assert same(heard[1], heard[2])
    assert not same(heard[0], heard[1])
    only_base = start(base)
    assert same(heard[1], solo(only_base, replace(cloned, model=None)))
    assert balanced(speaker)


def test_an_unknown_model_or_voice_is_refused(named: engine.Engine) -> None:
    with pytest.raises(engine.ModelNotFound, match="'other' is not loaded"):
        named.submit(ask(model="other"))
    with pytest.raises(engine.UnknownVoice, match="vivian"):
        named.submit(ask(voice="nobody"))
    with pytest.raises(engine.UnsupportedMode, match="`speaker_embedding`"):
        named.submit(ask(speaker_embedding=np.zeros(64, np.float32)))
    assert named.in_flight == 0


def test_a_designed_voice_needs_a_description_and_follows_it(
    start: Start, voice_design: engine.ModelFiles
) -> None:
    speaker = start(voice_design)
    with pytest.raises(engine.InvalidRequest, match="`instructions`"):
        speaker.submit(ask())
    low = solo(speaker, ask(frames=6, instructions="A low voice."))
    high = solo(speaker, ask(frames=6, instructions="A high voice."))
    assert not same(low, high)


def test_a_speaker_vector_decides_the_voice(start: Start, base: engine.ModelFiles) -> None:
    speaker = start(base)
    width = speaker.models[0].speaker_width
    up = np.linspace(-1, 1, width, dtype=np.float32)
    first = solo(speaker, ask(frames=5, speaker_embedding=up))
    assert same(first, solo(speaker, ask(frames=5, speaker_embedding=up.copy())))
    assert not same(first, solo(speaker, ask(frames=5, speaker_embedding=up[::-1].copy())))
    assert not same(first, solo(speaker, ask(frames=5)))


@pytest.mark.parametrize("whole", [None, True], ids=["interleaved", "whole"])
def test_reference_codes_are_continued_and_not_repeated(
    start: Start, base: engine.ModelFiles, whole: bool | None
) -> None:
    speaker = start(base, ramp=(1, 2))
    codes = np.random.RandomState(0).randint(0, 64, (4, 9))
    request = ask(
        frames=7, reference_codes=codes, reference_text="Hello.", non_streaming_mode=whole
    )
    items = read(speaker.submit(request))
    assert items[-1].stats.frames == 7  # type: ignore[union-attr]
    heard = sound(items)
    assert len(heard) == 7 * 1920
    assert balanced(speaker)
    assert same(heard, solo(speaker, request))  # the lane was reset
    others = replace(request, reference_codes=(codes + 1) % 64)
    assert not same(heard, solo(speaker, others))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reference_codes": np.zeros((3, 5), np.int64)}, "reference_codes"),
        ({"reference_codes": np.zeros((4, 0), np.int64)}, "reference_codes"),
        ({"reference_codes": np.zeros(4, np.int64)}, "reference_codes"),
        ({"reference_codes": np.full((4, 5), 64)}, "reference_codes"),
        ({"reference_codes": np.full((4, 5), -1)}, "reference_codes"),
        ({"reference_codes": np.zeros((4, 5))}, "reference_codes"),  # floats
        ({"reference_text": None}, "reference_text"),
        ({"reference_text": " "}, "reference_text"),
        ({"reference_codes": None}, "reference_codes"),  # a text without its codes
    ],
    ids=["groups", "empty", "flat", "high", "negative", "floats", "no text", "blank", "no codes"],
)
def test_a_reference_that_makes_no_sense_is_refused_by_name(
    cloning: engine.Engine, change: dict[str, Any], field: str
) -> None:
    request = ask(reference_codes=np.zeros((4, 5), np.int64), reference_text="Hello.")
    with pytest.raises(engine.InvalidRequest, match=f"`{field}`") as caught:
        cloning.submit(replace(request, **change))
    assert caught.value.field == field
    assert cloning.in_flight == 0


def test_reference_codes_need_a_base_model(named: engine.Engine) -> None:
    request = ask(reference_codes=np.zeros((4, 5), np.int64), reference_text="Hello.")
    with pytest.raises(engine.InvalidRequest, match="Base model"):
        named.submit(request)


def test_a_pickled_request_sounds_the_same(start: Start, base: engine.ModelFiles) -> None:
    speaker = start(base)
    vector = np.linspace(-1, 1, speaker.models[0].speaker_width, dtype=np.float32)
    request = ask(frames=4, speaker_embedding=vector)
    copy = pickle.loads(pickle.dumps(request))
    assert np.array_equal(solo(speaker, request), solo(speaker, copy))


# Health, stats, names


def test_an_engine_is_ready_after_its_warm_up(start: Start) -> None:
    speaker = start()
    assert run(speaker.health()) == engine.Health(True, False, "warming up")
    promptly(speaker.warm_up)
    assert run(speaker.health()) == engine.Health(True, True, "ok")
    assert balanced(speaker)


def test_every_kind_of_model_can_be_warmed_up(
    start: Start,
    custom_voice: engine.ModelFiles,
    voice_design: engine.ModelFiles,
    base: engine.ModelFiles,
) -> None:
    speaker = start([custom_voice, voice_design, base])
    promptly(speaker.warm_up)
    assert run(speaker.health()).ready
    assert balanced(speaker)
    assert run(speaker.stats()).finished == {"length": 3}


def test_stats_count_what_happened(start: Start) -> None:
    speaker = start(slots=2)
    for _ in range(3):
        read(speaker.submit(ask(frames=4)))
    with pytest.raises(engine.InvalidRequest):
        speaker.submit(ask(""))
    assert balanced(speaker)
    stats = run(speaker.stats())
    assert (stats.slots, stats.active, stats.queued) == (2, 0, 0)
    assert stats.frames_total == 12
    assert stats.frames_per_second > 0
    assert stats.finished == {"length": 3}


def test_repeated_ids_of_callers_stay_apart(start: Start) -> None:
    speaker = start(stream_bytes=FRAME_BYTES, ramp=(1,))
    first, second = (speaker.submit(ask(frames=5), id="mine") for _ in range(2))
    assert first.id != second.id
    assert first.id.startswith("mine") and second.id.startswith("mine")
    first.cancel()
    assert read(second)[-1].stats.frames == 5  # type: ignore[union-attr]


def test_a_higher_priority_overtakes_the_queue(start: Start) -> None:
    speaker = start(slots=1, stream_bytes=FRAME_BYTES, ramp=(1,))
    holder = speaker.submit(ask(frames=20))
    assert paused(speaker, holder)
    ordinary = speaker.submit(ask(frames=1))
    urgent = speaker.submit(ask(frames=20), priority=1)
    holder.cancel()
    assert paused(speaker, urgent)
    assert not ordinary.ended
    urgent.cancel()
    read(ordinary)


def test_a_call_runs_on_the_worker_between_frames(start: Start) -> None:
    speaker = start()
    assert promptly(lambda: speaker.call(lambda: threading.current_thread().name)) == (
        "framecast-worker"
    )
    with pytest.raises(ZeroDivisionError):
        promptly(lambda: speaker.call(lambda: 1 // 0))


def test_the_engine_tells_where_and_how_it_runs(start: Start) -> None:
    speaker = start(dtype="bf16")
    assert (speaker.device, speaker.dtype) == ("cpu", "bfloat16")
    assert read(speaker.submit(ask(frames=3)))[-1].stats.frames == 3  # type: ignore[union-attr]


# Draining and closing


def test_draining_lets_active_requests_finish_and_refuses_new_ones(start: Start) -> None:
    speaker = start(stream_bytes=FRAME_BYTES, ramp=(1,))
    stream = speaker.submit(ask(frames=6, seed=1))

    async def drain() -> list[Any]:
        items = [await stream.read()]
        draining = asyncio.create_task(speaker.drain(PATIENCE_S))
        await asyncio.sleep(0)
        assert await speaker.health() == engine.Health(True, False, "draining")
        with pytest.raises(engine.EngineUnavailable, match="shutting down"):
            speaker.submit(ask())
        assert not draining.done()
        items += [item async for item in stream]
        await draining
        return items

    items = run(drain())
    assert items[-1].stats.frames == 6
    assert speaker.in_flight == 0


def test_draining_waits_for_the_parts_of_a_long_text(start: Start) -> None:
    speaker = start(max_frames=120)
    utterance = speaker.speak(ask("This is one. This is two. This is three.", frames=2))
    assert eventually(lambda: speaker.in_flight == 0)  # its first part is made and not yet read

    async def drain() -> Any:
        draining = asyncio.create_task(speaker.drain(PATIENCE_S))
        await asyncio.sleep(0.1)
        assert not draining.done()
        items = [item async for item in utterance]
        await draining
        return items[-1]

    assert run(drain()).stats.frames >= 6
    assert speaker.in_flight == 0


def test_draining_gives_up_after_its_time(start: Start) -> None:
    speaker = start(stream_bytes=FRAME_BYTES, ramp=(1,))
    stream = speaker.submit(ask(frames=20))
    assert paused(speaker, stream)
    run(speaker.drain(0.05))
    assert speaker.in_flight == 1
    run(speaker.aclose())
    assert isinstance(failure(stream), engine.EngineUnavailable)


def test_closing_ends_everything_and_may_be_repeated(start: Start) -> None:
    speaker = start(slots=1, stream_bytes=FRAME_BYTES, ramp=(1,))
    streams = [speaker.submit(ask(frames=20)) for _ in range(3)]
    assert paused(speaker, streams[0])
    promptly(speaker.close)
    promptly(speaker.close)
    assert all(isinstance(failure(stream), engine.EngineUnavailable) for stream in streams)
    assert speaker.in_flight == 0
    assert not run(speaker.health()).alive
    with pytest.raises(engine.EngineUnavailable):
        speaker.submit(ask())
    with pytest.raises(engine.EngineUnavailable):
        promptly(speaker.books)
    run(speaker.drain(PATIENCE_S))
