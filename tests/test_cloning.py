"""Cloned voices through the engine: extraction, requests that bring a clip, and their ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import engine
from engine.codec.encoder import CodecEncoder
from engine.models.speaker_encoder import SpeakerEncoder
from engine.worker import Stop
from tests.faults.speaking import ask, balanced, failure, read, solo, sound
from tests.waiting import PATIENCE_S, eventually, promptly

Start = Callable[..., engine.Engine]
WORDS = "Two seconds of words, more or less."


def clip(seed: int = 0, seconds: float = 2.0) -> engine.Clip:
    noise = np.random.RandomState(seed).standard_normal(round(seconds * 24_000))
    return engine.Clip.of((noise * 0.1).astype(np.float32))


@pytest.fixture(scope="module")
def cloning(base: engine.ModelFiles) -> Iterator[engine.Engine]:
    config = engine.EngineConfig(slots=4, kv_positions=512, nan_fill=True, device="cpu")
    with engine.load(base, config) as speaker:
        yield speaker


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The speaker encoder waits in its first piece until the event is set."""
    go_on = threading.Event()
    steps = SpeakerEncoder.steps

    def waiting(self: SpeakerEncoder, mel: Any) -> Any:
        assert go_on.wait(PATIENCE_S)
        return steps(self, mel)

    monkeypatch.setattr(SpeakerEncoder, "steps", waiting)
    yield go_on
    go_on.set()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the encoders, one per run."""
    ran: list[str] = []
    for module in (SpeakerEncoder, CodecEncoder):

        def counted(self: Any, x: Any, steps: Any = module.steps) -> Any:
            ran.append(type(self).__name__)
            return steps(self, x)

        monkeypatch.setattr(module, "steps", counted)
    return ran


def stats(speaker: engine.Engine) -> engine.EngineStats:
    return asyncio.run(speaker.stats())


# Extraction


def test_a_clip_becomes_a_voice_with_all_there_is_to_know(cloning: engine.Engine) -> None:
    voice = cloning.extract_voice(clip(), transcript=WORDS).result(PATIENCE_S)
    assert voice.embedding is not None
    assert voice.embedding.shape == (cloning.models[0].speaker_width,)
    assert voice.codes is not None
    assert voice.codes.shape == (cloning.models[0].code_groups, 32)  # 2 s and half a second
    assert (voice.transcript, voice.tail_silence_s) == (WORDS, 0.5)
    assert (voice.model, voice.clip) == (cloning.models[0].name, clip().digest)
    assert voice.warnings == ()
    cloning.check_voice(voice)


def test_without_a_transcript_a_voice_is_its_vector(cloning: engine.Engine) -> None:
    voice = cloning.extract_voice(clip()).result(PATIENCE_S)
    whole = cloning.extract_voice(clip(), transcript=WORDS).result(PATIENCE_S)
    assert not voice.in_context
    assert (voice.tail_silence_s, voice.key) == (0.0, whole.vector_only().key)


def test_a_voice_may_be_awaited_on_any_loop(cloning: engine.Engine) -> None:
    async def extract() -> engine.Voice:
        return await cloning.extract_voice(clip(7))

    keys = {asyncio.run(extract()).key for _ in range(2)}
    assert len(keys) == 1


def test_a_saved_voice_and_its_clip_sound_alike_and_other_voices_do_not(
    start: Start, base: engine.ModelFiles
) -> None:
    speaker = start(base, reference=True)
    saved = speaker.extract_voice(clip(), transcript=WORDS).result(PATIENCE_S)
    other = speaker.extract_voice(clip(1), transcript=WORDS).result(PATIENCE_S)
    heard = [
        solo(speaker, ask(seed=5, **fields))
        for fields in (
            {"voice": saved},
            {"reference": clip(), "reference_text": WORDS},
            {"voice": saved.vector_only()},
            {"reference": clip()},
            {"voice": other},
            {"reference": clip(), "reference_text": WORDS, "ref_tail_silence": 0.0},
        )
    ]
    assert np.array_equal(heard[0], heard[1])
    assert np.array_equal(heard[2], heard[3])
    for different in (heard[2], heard[4], heard[5]):
        assert not np.array_equal(heard[0], different)


def test_an_extraction_given_up_is_not_done(cloning: engine.Engine, held: threading.Event) -> None:
    before = stats(cloning).voice_encodes
    first = cloning.extract_voice(clip(20))
    waiting = cloning.extract_voice(clip(21))
    assert waiting.cancel()
    held.set()
    assert first.result(PATIENCE_S).embedding is not None
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE_S)
    assert eventually(lambda: stats(cloning).preparing == 0)
    assert stats(cloning).voice_encodes == before + 1


def test_cancelling_the_task_gives_the_extraction_up(
    cloning: engine.Engine, held: threading.Event
) -> None:
    async def leave() -> engine.Pending[engine.Voice]:
        pending = cloning.extract_voice(clip(22))

        async def wait() -> None:
            await pending

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return pending

    assert asyncio.run(leave()).done
    held.set()
    assert eventually(lambda: stats(cloning).preparing == 0)


def test_too_many_clips_are_refused_and_places_come_back(
    start: Start, base: engine.ModelFiles, held: threading.Event
) -> None:
    speaker = start(base, slots=1, max_queue=1)
    waiting = [speaker.extract_voice(clip(seed)) for seed in range(2)]
    with pytest.raises(engine.Overloaded, match="too many clips") as caught:
        speaker.extract_voice(clip(2))
    assert caught.value.retry_after_s > 0
    held.set()
    for pending in waiting:
        pending.result(PATIENCE_S)
    assert speaker.extract_voice(clip(2)).result(PATIENCE_S)


def test_an_extraction_is_finished_by_a_drain_and_refused_after_it(
    start: Start, base: engine.ModelFiles
) -> None:
    speaker = start(base)
    pending = speaker.extract_voice(clip(), transcript=WORDS)
    asyncio.run(speaker.drain(PATIENCE_S))
    assert pending.done
    with pytest.raises(engine.EngineUnavailable, match="shutting down"):
        speaker.extract_voice(clip())


def test_a_stopped_engine_answers_an_extraction_with_an_error(
    start: Start, base: engine.ModelFiles, held: threading.Event
) -> None:
    speaker = start(base)
    pending = [speaker.extract_voice(clip(seed)) for seed in range(3)]
    speaker._worker.post(Stop())
    held.set()
    for each in pending[1:]:
        with pytest.raises(engine.EngineUnavailable):
            each.result(PATIENCE_S)


# What is refused


def test_other_models_say_that_a_base_model_is_needed(start: Start) -> None:
    speaker = start()
    voice = engine.Voice(np.zeros(64, np.float32))
    for field, refused in {
        "ref_audio": lambda: speaker.extract_voice(clip()),
        "reference": lambda: speaker.submit(ask(reference=clip())),
        "voice": lambda: speaker.submit(ask(voice=voice)),
    }.items():
        with pytest.raises(engine.UnsupportedMode, match="needs a Base model") as caught:
            refused()
        assert caught.value.field == field
    with pytest.raises(engine.UnsupportedMode, match="Base model"):
        speaker.check_voice(voice)
    model = speaker.models[0]
    assert (model.clones, model.clones_in_context) == (False, False)


def test_a_preset_name_on_a_base_model_says_what_to_give_instead(cloning: engine.Engine) -> None:
    with pytest.raises(engine.UnsupportedMode, match="`ref_audio`") as caught:
        cloning.submit(ask(voice="vivian"))
    assert caught.value.field == "voice"
    model = cloning.models[0]
    assert (model.clones, model.clones_in_context) == (True, True)
    assert (model.code_groups, model.codebook_size) == (4, 64)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"transcript": "  "}, "ref_text"),
        ({"transcript": WORDS * 6}, "ref_text"),
        ({"ref_tail_silence": 2.5}, "ref_tail_silence"),
    ],
)
def test_what_cannot_become_a_voice_is_refused_at_once(
    cloning: engine.Engine, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(engine.InvalidRequest, match=f"`{field}`") as caught:
        cloning.extract_voice(clip(), **arguments)
    assert caught.value.field == field


def test_a_clip_that_leaves_no_room_for_text_is_refused(cloning: engine.Engine) -> None:
    words = "Words and words and more of them. " * 10
    with pytest.raises(engine.InvalidRequest, match="take a shorter clip") as caught:
        cloning.extract_voice(clip(0, seconds=30.0), transcript=words)
    assert caught.value.field == "ref_audio"


def test_a_transcript_of_half_the_clip_is_warned_about(cloning: engine.Engine) -> None:
    half = "These are not all of the words."
    voice = cloning.extract_voice(clip(0, 5.0), transcript=half).result(PATIENCE_S)
    stream = cloning.submit(ask(frames=1, reference=clip(0, 5.0), reference_text=half))
    read(stream)
    for warnings in (voice.warnings, stream.warnings):
        assert ["`ref_text` may not be all of" in warning for warning in warnings] == [True]


def test_a_clip_too_loud_fails_its_own_request(cloning: engine.Engine) -> None:
    loud = engine.Clip.of(clip().pcm * np.float32(1e30))
    fine = cloning.submit(ask(reference=clip(), frames=6))
    error = failure(cloning.submit(ask(reference=loud)))
    assert isinstance(error, engine.InvalidRequest)
    assert len(sound(read(fine))) == 6 * 1920
    with pytest.raises(engine.InvalidRequest, match="too loud"):
        cloning.extract_voice(loud).result(PATIENCE_S)
    assert balanced(cloning)


# Each thing once


def test_a_voice_used_twenty_times_is_encoded_once(
    start: Start, base: engine.ModelFiles, runs: list[str]
) -> None:
    speaker = start(base, reference=True)
    pieces = [
        speaker.submit(ask(frames=2, seed=3, reference=clip(), reference_text=WORDS))
        for _ in range(10)
    ]
    saved = speaker.extract_voice(clip(), transcript=WORDS).result(PATIENCE_S)
    pieces += [speaker.submit(ask(frames=2, seed=3, voice=saved)) for _ in range(10)]
    heard = [sound(read(stream)) for stream in pieces]
    assert all(np.array_equal(each, heard[0]) for each in heard)
    assert sorted(runs) == ["CodecEncoder", "SpeakerEncoder"]
    counts = stats(speaker)
    assert counts.voice_encodes == 2
    assert counts.voice_cache_hits >= 19 * 2
    assert 0 < counts.voice_cache_bytes < counts.memory_bytes


def test_the_same_clip_asked_for_at_once_is_encoded_once(
    start: Start, base: engine.ModelFiles, runs: list[str]
) -> None:
    speaker = start(base)
    pending = [speaker.extract_voice(clip(), transcript=WORDS) for _ in range(8)]
    keys = {each.result(PATIENCE_S).key for each in pending}
    assert len(keys) == 1
    assert sorted(runs) == ["CodecEncoder", "SpeakerEncoder"]


def test_a_deleted_voice_is_gone_from_every_cache(start: Start, base: engine.ModelFiles) -> None:
    speaker = start(base)
    voice = speaker.extract_voice(clip(), transcript=WORDS).result(PATIENCE_S)
    read(speaker.submit(ask(voice=voice)))
    held = stats(speaker).voice_cache_bytes
    assert held > 0
    assert speaker.purge_voice(voice).result(PATIENCE_S) == held
    assert stats(speaker).voice_cache_bytes == 0


def test_what_is_being_made_while_a_voice_is_deleted_goes_too(
    start: Start, base: engine.ModelFiles, held: threading.Event
) -> None:
    speaker = start(base)
    pending = speaker.extract_voice(clip())
    purged = speaker.purge_voice(engine.Voice(np.zeros(64, np.float32), clip=clip().digest))
    held.set()
    pending.result(PATIENCE_S)
    purged.result(PATIENCE_S)
    assert eventually(lambda: stats(speaker).preparing == 0)
    assert stats(speaker).voice_cache_bytes == 0


# Requests beside each other


def test_eight_parallel_requests_of_two_voices_equal_their_solo_runs(
    start: Start, base: engine.ModelFiles
) -> None:
    speaker = start(base, reference=True, slots=8)
    voices = [
        speaker.extract_voice(clip(seed), transcript=WORDS).result(PATIENCE_S) for seed in (0, 1)
    ]
    requests = [
        ask(f"Text number {n}.", frames=8 + n, seed=n, voice=voices[n % 2]) for n in range(8)
    ]
    alone = [solo(speaker, request) for request in requests]
    fresh = start(base, reference=True, slots=8)
    for tried in (speaker, fresh):  # with everything kept, and with nothing
        streams = [tried.submit(request) for request in requests]
        together = [sound(read(stream)) for stream in streams]
        assert [np.array_equal(*pair) for pair in zip(together, alone, strict=True)] == [True] * 8
        assert balanced(tried)


def test_a_request_whose_voice_is_being_made_can_leave_and_be_late(
    start: Start, base: engine.ModelFiles, held: threading.Event
) -> None:
    speaker = start(base)
    first = speaker.submit(ask(reference=clip(0)))
    left = speaker.submit(ask(reference=clip(1)))
    late = speaker.submit(ask(reference=clip(2)), timeout_s=0.001)
    assert eventually(lambda: speaker.in_flight == 3)
    left.cancel()
    held.set()
    assert isinstance(failure(left), engine.Cancelled)
    assert isinstance(failure(late), engine.DeadlineExceeded)
    assert len(sound(read(first))) == 4 * 1920
    assert balanced(speaker)
    assert stats(speaker).voice_encodes == 1


def test_a_preset_voice_speaks_while_a_clip_is_encoded(
    start: Start, base: engine.ModelFiles, custom_voice: engine.ModelFiles
) -> None:
    speaker = start([custom_voice, replace(base, name="tiny-base")], kv_positions=1024)
    speaking = speaker.submit(ask(frames=200, voice="ryan"))
    pending = speaker.extract_voice(clip(0, 20.0), transcript=WORDS * 9, model="tiny-base")
    assert pending.result(PATIENCE_S).codes is not None
    assert not speaking.ended  # the clip was heard between its frames
    assert len(sound(read(speaking))) == 200 * 1920


def test_a_long_text_keeps_its_cloned_voice(start: Start, base: engine.ModelFiles) -> None:
    speaker = start(base, kv_positions=384)
    text = "One sentence is here. " * 12
    utterance = speaker.speak(ask(text, frames=3, reference=clip(), reference_text=WORDS))
    items = promptly(lambda: list(utterance))
    assert len(sound(items)) > 3 * 1920
    assert stats(speaker).voice_encodes == 2
    assert balanced(speaker)
