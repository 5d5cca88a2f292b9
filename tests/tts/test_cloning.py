"""Cloned voices in a runner: kept or anew they sound the same; the reference is not heard."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.pieces import run_through
from engine.request import Sampling, SpeechRequest
from engine.tts.head import Prefix
from engine.voice import Clip, Voice
from tests.tts.bench import Bench

WORDS = "What the clip says."
CODES = np.random.RandomState(3).randint(0, 64, (4, 13))
CLIP = Clip.of(np.random.RandomState(1).standard_normal(40_000).astype("f4") * np.float32(0.2))
FRAMES = 6


@pytest.fixture(scope="module")
def bench(base):
    return Bench(base, reference=True)


def ask(text="Hello there.", seed=0, **fields):
    return SpeechRequest(text, sampling=Sampling(seed=seed, max_new_tokens=FRAMES), **fields)


def vector(bench):
    return np.linspace(-1, 1, bench.runner.spec.talker.talker.hidden, dtype=np.float32)


def cloned(bench):
    """Every kind of cloned request, by name."""
    voice = Voice(vector(bench), CODES, WORDS)
    return {
        "clip with its words": ask(reference=CLIP, reference_text=WORDS),
        "clip with its words, whole text": ask(
            reference=CLIP, reference_text=WORDS, non_streaming_mode=True
        ),
        "clip's vector": ask(reference=CLIP),
        "voice": ask(voice=voice),
        "voice's vector": ask(voice=voice.vector_only(), non_streaming_mode=True),
        "voice of codes alone": ask(voice=Voice(None, CODES, WORDS)),
        "more words than frames": ask(voice=Voice(vector(bench), CODES[:, :1], WORDS * 3)),
    }


KINDS = (
    "clip with its words",
    "clip with its words, whole text",
    "clip's vector",
    "voice",
    "voice's vector",
    "voice of codes alone",
    "more words than frames",
)


MODES = {"reference": {"reference": True}, "plain": {}, "packed": {"kernels": "auto"}}


def spoken(bench, request):
    """Sound and codes of a request alone."""
    sound = bench.run([request], [0])[request.sampling.seed]
    return sound, bench.codes[request.sampling.seed]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_kept_or_made_anew_a_voice_sounds_the_same_to_the_last_bit(base, kind, mode):
    bench = Bench(base, **MODES[mode])
    cloning, request = bench.runner.cloning, cloned(bench)[kind]
    spoken(bench, replace(request, text="Other words, and more of them."))
    assert cloning.knows(bench.entry(request).plan)
    made = cloning.encoder.runs
    kept, kept_codes = spoken(bench, request)
    assert cloning.encoder.runs == made
    cloning.keeper._most_bytes = 0
    cloning.keeper.keep("nothing", None, 0)  # drops all the rest, too
    assert (cloning.keeper.nbytes, cloning.knows(bench.entry(request).plan)) == (0, False)
    anew, codes = spoken(bench, request)
    np.testing.assert_array_equal(kept, anew)
    assert kept_codes == codes
    assert cloning.encoder.runs == 2 * made


@pytest.mark.parametrize("kind", KINDS)
def test_the_prefix_changes_the_prompt_by_no_more_than_rounding(bench, kind):
    request = cloned(bench)[kind]
    entry = run_through(bench.runner.prepare(bench.entry(request)))
    made, generator = entry.head.prefix, bench.generator
    prompt = generator.prompt(entry.plan)
    rows = []
    for prefix in (Prefix(made.k[:, :, :0], made.v[:, :, :0]), made):
        with torch.inference_mode():
            run_through(generator.prefill(0, prompt, prefix))
            rows.append(generator.cache.rows(0))
            generator.clear(0)
    assert 0 < made.positions < len(prompt.embeds)
    for whole, parts in zip(*rows, strict=True):
        assert whole.shape[2] == len(prompt.embeds) - 1
        torch.testing.assert_close(whole, parts, rtol=0, atol=1e-4)


@pytest.mark.parametrize("whole", [False, True], ids=["interleaved", "whole text"])
def test_no_sample_of_a_loud_reference_is_left_in_the_reply(bench, whole):
    voice = Voice(vector(bench), loudest(bench), WORDS)
    request = ask(voice=voice, non_streaming_mode=whole)
    reply, codes = spoken(bench, request)
    assert len(reply) == FRAMES * 1920
    reference = voice.codes.shape[1]
    both = decoded(bench, np.concatenate((voice.codes, np.array(codes).T), axis=1))
    before, after = both[: reference * 1920], both[reference * 1920 :]
    assert rms(before) > 0.1
    assert rms(reply - after) < 1e-5
    frames = before.reshape(-1, 1920)
    for heard in reply.reshape(-1, 1920):
        nearest = min(rms(heard - frame) for frame in frames)
        assert nearest > 0.2 * rms(before)


def test_a_lane_is_primed_as_if_the_reference_had_been_spoken(bench):
    with torch.inference_mode():
        lane = run_through(bench.vocoder.primed(CODES.T.astype(np.int64)))
        whole = bench.vocoder._decoder.init_state(1, device="cpu", dtype=torch.float32)
        bench.vocoder._decoder(torch.from_numpy(CODES)[None], whole)
    assert lane.position.tolist() == [13]
    for key, tensor in whole.tensors.items():
        torch.testing.assert_close(
            lane.tensors[key].nan_to_num(), tensor, rtol=1e-4, atol=1e-3, msg=key
        )


def test_a_reference_ends_in_half_a_second_of_silence_unless_told_otherwise(bench):
    def frames(**fields):
        entry = bench.entry(ask(reference=CLIP, reference_text=WORDS, **fields))
        ready = run_through(bench.runner.prepare(entry))
        assert entry.plan.positions == ready.plan.positions
        return ready.plan.reference_codes

    padded = Clip.of(np.concatenate((CLIP.pcm, np.zeros(12_000, np.float32))))
    by_hand = run_through(bench.runner.cloning.hear(padded, 0.0)).codes
    assert frames().T.tolist() == by_hand.tolist()
    assert (len(frames()), len(frames(ref_tail_silence=0))) == (28, 21)


def test_a_voice_is_forgotten_with_all_that_was_made_of_it(base):
    bench = Bench(base)
    keeper = bench.runner.cloning.keeper
    mine = Voice(*run_through(bench.runner.cloning.hear(CLIP, 0.5)), WORDS, clip=CLIP.digest)
    other = ask(voice=Voice(vector(bench), CODES, WORDS))
    for request in (ask(voice=mine), ask(voice=mine.vector_only()), ask(reference=CLIP)):
        spoken(bench, request)
    held = keeper.nbytes
    spoken(bench, other)
    assert bench.runner.cloning.forget(mine) == held
    assert not bench.runner.cloning.knows(bench.entry(ask(reference=CLIP)).plan)
    assert not bench.runner.cloning.knows(bench.entry(ask(voice=mine)).plan)
    assert bench.runner.cloning.knows(bench.entry(other).plan)


def test_what_is_kept_stays_within_its_bytes(base):
    bench = Bench(base, voice_cache_bytes=200_000)
    for seed in range(6):
        codes = np.random.RandomState(seed).randint(0, 64, (4, 13))
        spoken(bench, ask(voice=Voice(vector(bench), codes, WORDS)))
        assert 0 < bench.runner.cloning.keeper.nbytes <= 200_000


def test_a_voice_another_request_uses_may_be_dropped_meanwhile(base):
    bench = Bench(base, reference=True)
    request = ask(voice=Voice(vector(bench), CODES, WORDS))
    expected, _ = spoken(bench, request)
    entry = bench.runner.ready(bench.entry(request))
    bench.runner.cloning.forget(request.voice)
    bench.runner.admit(entry, bench.now)
    bench.step()
    bench.runner.cloning.forget(request.voice)
    bench.finish()
    heard = [item.pcm for item in entry.stream if hasattr(item, "pcm")]
    np.testing.assert_array_equal(np.concatenate(heard), expected)


def loudest(bench):
    """Ten frames of codes that are loud when decoded: the loudest of a hundred draws."""
    draws = [np.random.RandomState(seed).randint(0, 64, (4, 10)) for seed in range(100)]
    return max(draws, key=lambda codes: rms(decoded(bench, codes)))


def decoded(bench, codes):
    with torch.inference_mode():
        return bench.vocoder._decoder(torch.from_numpy(codes)[None])[0].numpy()


def rms(sound):
    return float(np.sqrt(np.mean(np.square(sound))))
