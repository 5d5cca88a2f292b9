"""A slot's codes and sound depend on its own request only."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.request import Sampling, SpeechRequest
from tests.tts.bench import Bench

REQUESTS = [
    SpeechRequest("Hello there.", voice="ryan", sampling=Sampling(seed=1, max_new_tokens=30)),
    SpeechRequest("你好，世界。", voice="eric", sampling=Sampling(seed=2, max_new_tokens=21)),
    SpeechRequest(
        "A third, somewhat longer sentence with its own settings.",
        voice="vivian",
        language="english",
        instructions="Slowly.",
        sampling=Sampling(seed=3, temperature=0.0, repetition_penalty=1.3, max_new_tokens=34),
    ),
    SpeechRequest(
        "Interleaved text.",
        voice="dylan",
        non_streaming_mode=False,
        sampling=Sampling(seed=4, top_k=5, top_p=0.8, subtalker_top_p=0.9, max_new_tokens=27),
    ),
]


@pytest.fixture(scope="module")
def solo(custom_voice):
    """Each request alone, in reference mode: the codes and the sound to equal."""
    bench = Bench(custom_voice, reference=True)
    expected = {}
    for request in REQUESTS:
        sound = bench.run([request], [0])
        seed = request.sampling.seed
        expected[seed] = (list(bench.codes[seed]), sound[seed])
    return expected


ORDERS = [
    pytest.param((0, 1, 2, 3), (0, 0, 0, 0), id="together"),
    pytest.param((3, 2, 1, 0), (0, 0, 0, 0), id="reversed"),
    pytest.param((2, 0, 3, 1), (0, 3, 7, 11), id="staggered"),
    pytest.param((1, 3, 0, 2), (0, 22, 23, 40), id="into-freed-slots"),
]


@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_in_reference_mode_codes_and_sound_are_bit_equal_to_a_solo_run(
    custom_voice, solo, order, arrivals
):
    bench = Bench(custom_voice, reference=True)
    sounds = bench.run([REQUESTS[i] for i in order], arrivals)
    for seed, (codes, sound) in solo.items():
        assert bench.codes[seed] == codes
        assert np.array_equal(sounds[seed], sound)


@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_in_the_default_mode_codes_are_equal_and_sound_within_rounding(
    custom_voice, solo, order, arrivals
):
    bench = Bench(custom_voice)
    sounds = bench.run([REQUESTS[i] for i in order], arrivals)
    for seed, (codes, sound) in solo.items():
        assert bench.codes[seed] == codes
        assert sounds[seed].shape == sound.shape
        assert np.abs(sounds[seed] - sound).max() <= 1e-4


def test_a_mix_of_requests_sounds_the_same_in_any_order_and_timing(custom_voice):
    bench = Bench(custom_voice, reference=True)
    other = SpeechRequest("Other words.", sampling=Sampling(seed=9, max_new_tokens=25))
    twins = [REQUESTS[0], other]
    first = bench.run([*twins, REQUESTS[3]], [0, 2, 4])
    second = bench.run([REQUESTS[3], *twins], [1, 0, 9])
    for seed in (1, 4, 9):
        assert np.array_equal(first[seed], second[seed])


@pytest.mark.parametrize("ramp", [(1,), (1, 1, 2, 4, 8), (16,)], ids=["one", "ramp", "sixteen"])
def test_sound_does_not_depend_on_how_frames_are_flushed(custom_voice, solo, ramp):
    bench = Bench(custom_voice, ramp=ramp)
    sounds = bench.run(REQUESTS, [0, 1, 2, 3])
    for seed, (_, sound) in solo.items():
        assert sounds[seed].shape == sound.shape
        assert np.abs(sounds[seed] - sound).max() <= 1e-4


def test_a_paused_slot_stays_bit_identical_while_others_advance(custom_voice):
    bench = Bench(custom_voice)
    paused, other = (bench.admit(request) for request in REQUESTS[:2])
    for _ in range(3):
        bench.step()
    paused.stream._max_bytes = 1  # its reader is full now
    slot = next(slot for slot in bench.runner.slots if slot and slot.entry is paused)
    generator, state = bench.generator, bench.vocoder._state
    held = [generator.cache.k[:, slot.index], generator.hidden[slot.index]]
    held += [generator.logits[slot.index], generator.seen[slot.index]]
    held += [tensor[slot.index] for tensor in state.tensors.values()]
    before = [tensor.clone() for tensor in held]
    for _ in range(4):
        bench.step()
    for now, then in zip(held, before, strict=True):
        assert torch.equal(now.nan_to_num(), then.nan_to_num())
    assert slot.frames == 3
    assert len(bench.codes[other.sampling.seed]) == 7
