from __future__ import annotations

import time

import numpy as np
import pytest

from engine.errors import (
    Cancelled,
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    SlowReader,
)
from engine.request import FinishReason, Sampling, SpeechRequest
from engine.stream import Audio, Finished
from engine.tts import vocoder
from tests.tts.bench import Bench, sound


def request(seed: int = 1, frames: int = 12, **fields) -> SpeechRequest:
    return SpeechRequest("Hello.", sampling=Sampling(seed=seed, max_new_tokens=frames), **fields)


@pytest.fixture
def bench(custom_voice):
    return Bench(custom_voice)


def end(entry):
    return list(entry.stream)[-1]


def outcomes(bench):
    return [retired.outcome for retired in bench.runner.take_retired()]


def test_first_sound_leaves_with_the_first_step_and_the_ramp_grows(bench):
    entry = bench.admit(request(frames=20))
    bench.finish()
    assert sizes(entry) == [1, 1, 2, 4, 8, 4]


def sizes(entry):
    return [len(item.pcm) // 1920 for item in entry.stream if isinstance(item, Audio)]


def test_a_listener_may_ask_for_more_before_the_first_sound(bench):
    entry = bench.admit(request(frames=20, first_chunk_frames=6))
    bench.finish()
    assert sizes(entry) == [6, 1, 2, 4, 7]
    whole = bench.admit(request(frames=20, first_chunk_frames=6), streaming=False)
    bench.finish()
    assert sizes(whole) == [8, 8, 4]


@pytest.mark.parametrize("frames", [0, 65])
def test_an_impossible_first_chunk_is_refused(bench, frames):
    with pytest.raises(InvalidRequest, match="from 1 to 64") as caught:
        bench.entry(request(first_chunk_frames=frames))
    assert caught.value.field == "first_chunk_frames"


def test_only_the_first_part_of_a_text_waits_for_its_first_chunk(bench):
    asked = SpeechRequest("One. [pause:1s] Two.", first_chunk_frames=6)
    parts = bench.intake.parts(asked)
    assert [part.request.first_chunk_frames for part in parts] == [6, None]


def test_a_listener_who_would_run_dry_gets_what_there_is(custom_voice):
    bench = Bench(custom_voice, ramp=(1, 8))
    entry = bench.admit(request(frames=12))
    bench.step()  # one frame: 0.08 s to play
    bench.runner._step_s = 0.03
    bench.now += 0.05
    bench.step()
    bench.finish()
    assert sizes(entry) == [1, 1, 8, 2]


def test_many_lanes_are_decoded_a_few_at_a_time_and_sound_the_same(custom_voice, monkeypatch):
    requests = [request(seed=seed, frames=20) for seed in range(4)]
    monkeypatch.setattr(vocoder, "_MOST_FRAMES", 64)
    whole = Bench(custom_voice, ramp=(1, 8)).run(requests, [0] * 4)
    monkeypatch.setattr(vocoder, "_MOST_FRAMES", 16)
    bench, widths = Bench(custom_voice, ramp=(1, 8)), []
    decode = bench.vocoder._decode
    monkeypatch.setattr(
        bench.vocoder,
        "_decode",
        lambda slots, n: widths.append((len(slots), n)) or decode(slots, n),
    )
    parts = bench.run(requests, [0] * 4)
    assert (2, 8) in widths
    assert max(lanes * count for lanes, count in widths) == 16
    for seed, wanted in whole.items():
        np.testing.assert_allclose(parts[seed], wanted, atol=1e-4)


def test_a_machine_that_is_behind_saves_nobody_with_small_flushes(custom_voice):
    bench = Bench(custom_voice, ramp=(1, 8))
    entry = bench.admit(request(frames=12))
    bench.step()
    bench.runner._step_s = 0.09  # more than a frame takes to play
    bench.now += 0.05
    bench.step()
    bench.finish()
    assert sizes(entry) == [1, 8, 3]


def test_a_listener_who_is_dry_already_is_served_by_the_ramp(custom_voice):
    bench = Bench(custom_voice, ramp=(1, 8))
    entry = bench.admit(request(frames=12))
    bench.step()
    bench.now += 5.0
    bench.runner._step_s = 0.03
    bench.finish()
    assert sizes(entry) == [1, 8, 3]


def test_what_nobody_listens_to_yet_is_flushed_in_the_largest_pieces(bench):
    entry = bench.admit(request(frames=20), streaming=False)
    bench.finish()
    assert sizes(entry) == [8, 8, 4]


def test_a_prompt_gives_way_to_a_listener_who_may_still_be_saved(bench):
    bench.admit(request(frames=12))
    bench.step()  # 0.08 s to play
    bench.runner._filling._took.append(0.06)
    assert not bench.runner.stalls(bench.now)
    assert bench.runner.stalls(bench.now + 0.05)
    assert not bench.runner.stalls(bench.now + 0.09)  # too late to help


def long_prompt(seed=2, name="long"):
    text = "Many words make a long prompt. " * 8
    sampling = Sampling(seed=seed, max_new_tokens=4, min_new_tokens=4)
    return SpeechRequest(text, sampling=sampling, non_streaming_mode=True)


def slow_pieces(bench, seconds):
    """Every piece of a prompt takes so long by the runner's clock; how many there were."""
    extend, pieces = bench.generator._extend, []
    bench.generator.piece = 8

    def slowly(cache, row, embeds):
        for _ in extend(cache, row, embeds):
            pieces.append(row)
            bench.now += seconds
            yield

    bench.generator._extend = slowly
    return pieces


def test_a_long_prompt_goes_through_in_pieces_between_the_frames_of_others(custom_voice):
    bench = Bench(custom_voice)
    running = bench.admit(request(frames=40))
    bench.step()
    pieces = slow_pieces(bench, 0.05)  # more than half a frame
    entry = bench.admit(long_prompt())
    slot = bench.runner.slots[1]
    made = []
    while slot.filling:
        bench.runner.slots[0].dry_at = bench.now + 10  # hears for a while yet
        made.append(len(pieces))
        bench.step()
    assert made == list(range(len(made))), "one piece per frame"
    assert len(pieces) > 6
    assert len(bench.codes[running.sampling.seed]) == 1 + len(made)
    bench.finish()
    alone = Bench(custom_voice)
    alone.generator.piece = 8
    assert np.abs(alone.run([long_prompt()], [0])[2] - sound(entry.stream)).max() <= 1e-4
    assert alone.codes[2] == bench.codes[2]


def test_while_nobody_hears_anything_prompts_have_the_time_of_two_frames(custom_voice):
    bench = Bench(custom_voice)
    pieces = slow_pieces(bench, 0.05)
    bench.admit(long_prompt(2)), bench.admit(long_prompt(3))
    bench.step()
    assert len(pieces) == 4
    assert not bench.codes


def test_prompts_are_processed_however_long_another_model_took_before(custom_voice):
    bench = Bench(custom_voice)
    entry = bench.admit(request(frames=3))
    bench.runner.step(bench.now - 60.0)  # when the round began
    assert len(bench.codes[entry.sampling.seed]) == 1


def test_one_slow_piece_is_not_held_against_all_later_ones(custom_voice):
    bench = Bench(custom_voice)
    filling = bench.runner._filling
    filling._took.append(5.0)
    for seed in (2, 3, 4):
        bench.admit(long_prompt(seed))
        bench.now += 1.0  # more than it waits for a listener
        bench.step()
    assert 0 < max(filling._took) < 4.6


def test_a_prompt_in_pieces_waits_for_a_listener_who_may_be_saved_but_not_for_long(custom_voice):
    bench = Bench(custom_voice)
    bench.admit(request(frames=400))
    bench.step()
    pieces = slow_pieces(bench, 0.05)
    bench.admit(long_prompt())
    bench.runner._filling._took.append(0.06)
    saved = bench.runner.slots[0]
    for passed in (0.1, 0.3, 0.2):
        bench.now += passed
        saved.dry_at = bench.now + 0.05
        before = len(pieces)
        bench.step()
    assert (before, len(pieces)) == (0, 1)


def test_a_request_cancelled_within_its_prompt_frees_its_slot(custom_voice):
    bench = Bench(custom_voice)
    slow_pieces(bench, 0.05)
    entry = bench.admit(long_prompt())
    bench.step()  # the prefix, which is not in the slot's rows yet
    bench.step()
    assert bench.runner.books().kv_rows > 0
    entry.stream.cancel()
    assert bench.runner.busy
    bench.step()
    assert bench.runner.books().balanced
    assert not bench.runner.busy


def test_a_prompt_that_fails_in_a_late_piece_ends_only_its_own_request(custom_voice):
    bench = Bench(custom_voice)
    well, sick = bench.admit(request(1), "well"), bench.admit(long_prompt())
    pieces = slow_pieces(bench, 0.0)
    extend = bench.generator._extend

    def failing(cache, row, embeds):
        for number, _ in enumerate(extend(cache, row, embeds)):
            if number == 3:
                raise RuntimeError("out of order")
            yield

    bench.generator._extend = failing
    bench.finish()
    with pytest.raises(GenerationFailed, match="prompt could not be processed: out of order"):
        end(sick)
    assert isinstance(end(well), Finished)
    assert bench.runner.books().balanced
    assert pieces


def test_a_listener_who_is_dry_already_does_not_hide_one_who_may_still_be_saved(bench):
    bench.admit(request(frames=12))
    bench.step()
    bench.now += 0.09  # the first one is dry
    bench.admit(request(frames=12))
    late, fresh = bench.runner._occupied()
    fresh.heard(bench.now, 0.08)
    bench.runner._filling._took.append(0.06)
    assert late.dry_at < bench.now
    assert bench.runner.stalls(bench.now + 0.05)


def test_frame_numbers_of_the_sound_run_on(bench):
    entry = bench.admit(request(frames=9))
    bench.finish()
    items = [item for item in entry.stream if isinstance(item, Audio)]
    assert [item.first_frame for item in items] == [0, 1, 2, 4, 8]


def test_the_frame_ceiling_ends_with_length_and_all_frames_spoken(bench):
    entry = bench.admit(request(frames=7))
    bench.finish()
    finished = end(entry)
    assert finished.reason is FinishReason.LENGTH
    assert finished.stats.frames == 7
    assert outcomes(bench) == ["length"]


def test_eos_ends_with_stop_and_is_not_spoken(bench):
    entry = bench.admit(request(frames=50))
    bench.step()
    bench.step()
    eos = bench.runner.spec.talker.codec_tokens.eos
    decode = bench.generator.decode

    def want_eos(slots):
        decode(slots)
        bench.generator.logits[:, eos] = 1e4

    bench.generator.decode = want_eos
    bench.finish()
    finished = end(entry)
    assert (finished.reason, finished.stats.frames) == (FinishReason.STOP, 2)


def test_eos_is_forbidden_for_the_first_min_new_tokens_frames(bench):
    entry = bench.admit(
        SpeechRequest("Hello.", sampling=Sampling(seed=1, max_new_tokens=9, min_new_tokens=3))
    )
    eos = bench.runner.spec.talker.codec_tokens.eos
    decode = bench.generator.decode

    def want_eos(slots):
        decode(slots)
        bench.generator.logits[:, eos] = 1e4

    bench.generator.decode = want_eos
    bench.finish()
    assert end(entry).stats.frames == 3


def test_a_model_that_says_eos_at_once_is_an_error_not_an_empty_sound(bench):
    entry = bench.admit(
        SpeechRequest("Hello.", sampling=Sampling(seed=1, max_new_tokens=9, min_new_tokens=0))
    )
    decode = bench.generator.decode

    def want_eos(slots):
        decode(slots)
        bench.generator.logits[:, bench.runner.spec.talker.codec_tokens.eos] = 1e4

    bench.generator.decode = want_eos
    bench.finish()
    with pytest.raises(GenerationFailed, match="no audio"):
        end(entry)
    assert bench.runner.books().balanced


def test_codes_that_repeat_end_with_loop(custom_voice):
    bench = Bench(custom_voice, loop_window=12, loop_max_period=3, loop_repeats=4)
    entry = bench.admit(request(frames=200))
    decode = bench.generator.decode

    def stuck(slots):
        decode(slots)
        bench.generator.logits[:, :4] = 0.0
        for slot in slots:
            bench.generator.logits[slot.index, slot.frames % 3] = 1e4

    bench.generator.decode = stuck
    bench.finish()
    finished = end(entry)
    assert finished.reason is FinishReason.LOOP
    # One free frame, the first period, then the window.
    assert finished.stats.frames <= 1 + 3 + 12


def test_silence_after_speech_ends_with_silence(custom_voice):
    bench = Bench(custom_voice, silence_s=0.5, ramp=(1,))
    entry = bench.admit(request(frames=200))
    decode, steps = bench.vocoder._decode, []

    def quiet(slots, count):
        steps.append(count)
        pcm = decode(slots, count)
        return pcm if len(steps) < 5 else np.zeros_like(pcm)

    bench.vocoder._decode = quiet
    bench.finish()
    finished = end(entry)
    assert finished.reason is FinishReason.SILENCE
    assert 4 + 6 <= finished.stats.frames <= 4 + 8


def test_scores_that_are_no_numbers_end_only_their_own_request(bench):
    sick, well = bench.admit(request(1), "sick"), bench.admit(request(2), "well")
    bench.step()
    decode = bench.generator.decode

    def poison(slots):
        decode(slots)
        bench.generator.logits[0] = float("nan")

    bench.generator.decode = poison
    bench.step()
    bench.generator.decode = decode
    bench.finish()
    with pytest.raises(GenerationFailed, match="not numbers"):
        end(sick)
    alone = bench.run([request(2)], [0])
    assert np.abs(sound(well.stream) - alone[2]).max() <= 1e-4


def test_a_prompt_that_fails_ends_only_its_own_request(bench):
    well = bench.admit(request(2), "well")
    bench.step()
    prefill = bench.generator.prefill
    bench.generator.prefill = lambda index, prompt, prefix: 1 / 0
    sick = bench.admit(request(1), "sick")
    bench.step()
    bench.generator.prefill = prefill
    bench.finish()
    with pytest.raises(GenerationFailed, match="prompt"):
        end(sick)
    assert isinstance(end(well), Finished)
    assert bench.runner.books().balanced


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_cancelled_request_frees_its_slot_with_the_next_sweep(bench, steps):
    entry = bench.admit(request(frames=40))
    for _ in range(steps):
        bench.step()
    entry.stream.cancel()
    assert bench.runner.busy
    bench.runner.sweep(bench.now)
    assert bench.runner.books().balanced
    assert outcomes(bench) == ["Cancelled"]
    with pytest.raises(Cancelled):
        end(entry)


def test_a_deadline_that_passes_while_running_ends_the_request(bench):
    entry = bench.admit(request(frames=40), deadline=bench.now + 10.0)
    bench.runner.sweep(bench.now + 9.0)
    bench.step()
    assert bench.runner.free == 3
    bench.runner.sweep(bench.now + 10.5)
    with pytest.raises(DeadlineExceeded):
        end(entry)
    assert bench.runner.books().balanced


def test_nothing_is_heard_of_a_request_whose_time_passed_while_its_frame_was_made(bench):
    entry = bench.admit(request(frames=40), deadline=bench.now + 1.0)
    draw = bench.generator.draw

    def slowly(slots):
        bench.now += 2.0
        return draw(slots)

    bench.generator.draw = slowly
    bench.step()
    assert not entry.stream._items
    with pytest.raises(DeadlineExceeded):
        end(entry)
    assert bench.runner.books().balanced


def test_a_full_stream_pauses_its_slot_and_a_reader_resumes_it(custom_voice):
    bench = Bench(custom_voice, stream_bytes=4 * 1920 * 4)
    entry = bench.admit(request(frames=30))
    bench.finish()
    assert not bench.runner.busy
    assert bench.runner.slots[0].frames < 30
    taken = sum(len(item.pcm) for item, _ in zip(entry.stream, range(2), strict=False))
    assert taken
    assert bench.runner.busy


def test_a_full_stream_nobody_reads_fails_as_a_slow_reader(custom_voice):
    bench = Bench(custom_voice, stream_bytes=1920 * 4, read_timeout_s=30.0)
    entry = bench.admit(request(frames=30))
    bench.finish()
    now = entry.stream._last_read
    bench.runner.sweep(now + 29.0)
    assert bench.runner.free == 3
    bench.runner.sweep(now + 31.0)
    assert bench.runner.books().balanced
    assert outcomes(bench) == ["SlowReader"]
    with pytest.raises(SlowReader, match="30 s"):
        end(entry)


def test_the_statistics_add_up(bench):
    bench.runner._clock = time.monotonic
    entry = bench.admit(request(frames=10))
    bench.finish()
    stats = end(entry).stats
    assert stats.frames == 10
    assert stats.seed == 1
    assert stats.prompt_positions == entry.plan.positions
    assert 0 < stats.talker_s + stats.predictor_s + stats.codec_s < stats.total_s
    assert stats.first_audio_s <= stats.total_s


def test_reference_codes_are_continued_not_heard(base):
    bench = Bench(base)
    codes = np.random.RandomState(3).randint(0, 64, (4, 5))
    voiced = request(
        frames=6,
        reference_codes=codes,
        reference_text="Before.",
        speaker_embedding=np.ones(64, np.float32),
    )
    sounds = bench.run([voiced], [0])
    frames = np.array(bench.codes[1]).T
    assert len(sounds[1]) == 6 * 1920
    import torch

    with torch.inference_mode():
        whole = bench.vocoder._decoder(torch.from_numpy(np.hstack((codes, frames)))[None])
    assert np.abs(whole[0, 5 * 1920 :].numpy() - sounds[1]).max() <= 1e-4
