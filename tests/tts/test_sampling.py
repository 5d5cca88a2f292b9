from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.config import GenerationDefaults
from engine.errors import InvalidRequest
from engine.request import SEED_LIMIT, Sampling
from engine.tts.sampling import (
    LaneSampling,
    SamplerBatch,
    penalise,
    philox_uniforms,
    repeated_ngram,
    resolve,
)

CPU = torch.device("cpu")
NONE = GenerationDefaults()


def lane(**changes) -> LaneSampling:
    plain = {"temperature": 1.0, "top_k": 0, "subtalker_temperature": 1.0, "subtalker_top_k": 0}
    return resolve(Sampling(**{"seed": 0, **plain, **changes}), NONE)


def batch(*lanes: LaneSampling) -> SamplerBatch:
    return SamplerBatch(lanes, CPU)


def philox_reference(seed: int, subsequence: int) -> int:
    """Philox4x32-10 in plain integers: the first output word."""
    mask = 0xFFFFFFFF
    key = [seed & mask, seed >> 32]
    counter = [0, 0, subsequence & mask, subsequence >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & mask,
            (a >> 32) ^ counter[3] ^ key[1],
            a & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter[0]


def test_uniform_draws_are_philox_by_seed_and_subsequence():
    seeds, frames = [0, 42, SEED_LIMIT - 1], [0, 3, 2000]
    draws = philox_uniforms(seeds, frames, 16)
    assert draws.dtype == np.float32
    for row, (seed, frame) in enumerate(zip(seeds, frames, strict=True)):
        for group in (0, 1, 15):
            word = philox_reference(seed, frame * 16 + group)
            expected = (np.float32(word) + np.float32(0.5)) * np.float32(2**-32)
            assert draws[row, group] == expected


def test_the_published_philox_vector_is_reproduced():
    # Random123's known answer for a zero key and counter begins with this word.
    assert philox_reference(0, 0) == 0x6627E8D5
    assert philox_uniforms([0], [0], 1)[0, 0] == np.float32(0x6627E8D5 + 0.5) * np.float32(2**-32)


def test_a_lane_draws_the_same_whatever_its_neighbours_are():
    alone = philox_uniforms([7], [5], 4)
    among = philox_uniforms([1, 7, 9], [0, 5, 8], 4)
    assert (among[1] == alone[0]).all()


@pytest.mark.parametrize("tiny", [9e-6, 1e-7, 1e-38, 1e-45, 5e-324])
def test_a_tiny_temperature_is_greedy_in_both_stages(tiny):
    scores = torch.tensor([[1.0, 25.0, 30.0, 29.0]])
    greedy, cold = lane(temperature=0.0), lane(temperature=tiny)
    alone = resolve(Sampling(temperature=tiny, seed=0), NONE)
    file = resolve(Sampling(seed=0), GenerationDefaults(temperature=tiny))
    rest = lane(subtalker_temperature=tiny)
    assert cold == greedy
    assert (alone.temperature, alone.subtalker_temperature, file.temperature) == (0, 0, 0)
    for u in (1e-9, 0.5, 1.0):
        drawn = torch.tensor([u])
        assert batch(cold).draw_first(scores, drawn).tolist() == [2]
        assert batch(rest).draw_rest(scores, drawn).tolist() == [2]


def test_the_coldest_temperature_that_is_not_greedy_stays_finite():
    scores = torch.tensor([[-3000.0, 2000.0, 2999.0, 3000.0]])
    cold = batch(lane(temperature=1e-5, subtalker_temperature=1e-5, top_p=0.5, top_k=3))
    assert cold.draw_first(scores, torch.tensor([0.5])).tolist() == [3]
    assert cold.draw_rest(scores, torch.tensor([0.5])).tolist() == [3]


def test_codebook_0_is_the_first_whose_running_weight_reaches_the_draw():
    scores = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    sampler = batch(lane())
    for u, code in [(1e-6, 0), (0.09, 0), (0.11, 1), (0.49, 1), (0.51, 2), (0.71, 3), (1.0, 3)]:
        assert sampler.draw_first(scores, torch.tensor([u])).tolist() == [code], u


def test_an_acoustic_code_is_drawn_in_falling_order_of_probability():
    scores = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    sampler = batch(lane())
    for u, code in [(0.0, 1), (0.39, 1), (0.41, 3), (0.69, 3), (0.71, 2), (0.91, 0), (1.0, 0)]:
        assert sampler.draw_rest(scores, torch.tensor([u])).tolist() == [code], u


def test_ties_between_acoustic_codes_go_to_the_lower_id():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, -1.0]])
    sampler = batch(lane(subtalker_top_k=2))
    drawn = {sampler.draw_rest(scores, torch.tensor([u])).item() for u in (0.1, 0.49, 0.51, 0.99)}
    assert drawn == {1, 2}


def test_negative_zero_ties_with_zero():
    scores = torch.tensor([[-0.0, 0.0, -1.0]])
    assert batch(lane(subtalker_top_k=1)).draw_rest(scores, torch.tensor([0.5])).item() == 0


def test_top_k_of_codebook_0_keeps_ties_with_the_last_kept():
    scores = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0]])
    sampler = batch(lane(top_k=2))
    drawn = {sampler.draw_first(scores, torch.tensor([u])).item() for u in np.linspace(0.01, 1, 50)}
    assert drawn == {1, 2, 3}


def test_top_p_keeps_the_candidate_that_crosses():
    scores = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    draws = [torch.tensor([u]) for u in np.linspace(0.001, 1, 60, dtype=np.float32)]
    first, rest = batch(lane(top_p=0.6)), batch(lane(subtalker_top_p=0.6))
    assert {first.draw_first(scores, u).item() for u in draws} == {0, 1}
    assert {rest.draw_rest(scores, u).item() for u in draws} == {0, 1}


def test_a_draw_that_rounds_to_one_takes_the_last_kept_candidate():
    scores = torch.full((1, 6), -5.0)
    scores[0, 4:] = float("-inf")
    assert batch(lane()).draw_first(scores, torch.tensor([1.0])).item() == 3
    assert batch(lane(subtalker_top_k=2)).draw_rest(scores, torch.tensor([1.0])).item() == 1


def test_greedy_takes_the_best_of_both_stages():
    scores = torch.tensor([[1.0, 5.0, 4.9, 0.0]])
    sampler = batch(lane(temperature=0.0, subtalker_temperature=0.0))
    assert sampler.draw_first(scores, torch.tensor([0.999])).item() == 1
    assert sampler.draw_rest(scores, torch.tensor([0.999])).item() == 1


def test_frequencies_follow_the_softmax_of_the_scaled_scores():
    # 20,000 draws: a true probability p lies within 5 * sqrt(p(1-p)/n) but for 1 run in 10^6.
    scores = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    n, temperature = 20_000, 1.5
    expected = (scores[0] / temperature).softmax(-1)
    u = torch.from_numpy(philox_uniforms([5] * n, list(range(n)), 2))
    sampler = batch(*[lane(temperature=temperature, subtalker_temperature=temperature)] * n)
    for column, draw in ((0, sampler.draw_first), (1, sampler.draw_rest)):
        counts = torch.bincount(draw(scores.expand(n, -1), u[:, column]), minlength=4) / n
        bound = 5 * (expected * (1 - expected) / n).sqrt()
        assert ((counts - expected).abs() < bound).all()


def test_mixed_lanes_draw_what_each_would_draw_alone():
    torch.manual_seed(3)
    lanes = [
        lane(),
        lane(temperature=0.0),
        lane(top_k=5, top_p=0.8, subtalker_top_k=7, subtalker_top_p=0.7),
        lane(temperature=0.7, top_k=50, subtalker_temperature=2.0, subtalker_top_k=1),
    ]
    scores, u = torch.randn(4, 200) * 3, torch.rand(4)
    together = batch(*lanes)
    for row, each in enumerate(lanes):
        alone = batch(each)
        one, drawn = scores[row : row + 1], u[row : row + 1]
        assert together.draw_first(scores, u)[row] == alone.draw_first(one, drawn)[0]
        assert together.draw_rest(scores, u)[row] == alone.draw_rest(one, drawn)[0]


def test_the_penalty_divides_positive_and_multiplies_negative_scores_of_seen_codes():
    scores = torch.tensor([[2.0, -2.0, 0.0, 3.0, float("-inf")]])
    seen = torch.tensor([[True, True, True, False, True]])
    out = penalise(scores, seen, torch.tensor([[2.0]]))
    assert out.tolist() == [[1.0, -4.0, 0.0, 3.0, float("-inf")]]


@pytest.mark.parametrize(
    ("history", "size", "banned"),
    [
        ([], 2, []),
        ([1], 1, [1]),
        ([1, 2, 1], 2, [2]),
        ([1, 2, 3, 1, 2], 3, [3]),
        ([5, 5, 5, 5], 4, [5]),
        ([5, 5, 5], 4, []),
        ([1, 2, 1, 3, 1], 2, [2, 3]),
        ([1, 2, 1], 0, []),
    ],
)
def test_a_code_that_would_repeat_an_ngram_is_banned(history, size, banned):
    assert repeated_ngram(history, size) == banned


def test_a_request_overrides_the_file_and_the_file_overrides_the_defaults():
    file = GenerationDefaults(temperature=0.5, top_k=20, subtalker_top_p=0.7)
    sampling = resolve(Sampling(top_k=3, seed=9), file)
    assert (sampling.temperature, sampling.top_k, sampling.subtalker_top_p) == (0.5, 3, 0.7)
    assert (sampling.top_p, sampling.repetition_penalty, sampling.subtalker_top_k) == (1, 1.05, 50)
    assert (sampling.subtalker_temperature, sampling.seed) == (0.9, 9)


def test_temperature_zero_makes_both_stages_greedy_unless_the_second_is_named():
    assert resolve(Sampling(temperature=0), NONE).subtalker_temperature == 0
    named = resolve(Sampling(temperature=0, subtalker_temperature=0.4), NONE)
    assert (named.temperature, named.subtalker_temperature) == (0, 0.4)


def test_a_file_that_does_not_sample_is_greedy_unless_the_request_says_otherwise():
    file = GenerationDefaults(do_sample=False, subtalker_do_sample=False)
    assert resolve(Sampling(), file).temperature == 0
    assert resolve(Sampling(), file).subtalker_temperature == 0
    assert resolve(Sampling(temperature=0.8), file).temperature == 0.8


def test_an_absent_or_negative_seed_is_drawn():
    seeds = {resolve(Sampling(seed=seed), NONE).seed for seed in (None, None, -1, -5)}
    assert len(seeds) == 4
    assert all(0 <= seed < SEED_LIMIT for seed in seeds)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("repetition_penalty", 0.0),
        ("subtalker_temperature", 11.0),
        ("subtalker_top_k", -3),
        ("subtalker_top_p", -0.5),
        ("no_repeat_ngram_size", -1),
        ("min_new_tokens", -1),
        ("max_new_tokens", 0),
        ("seed", SEED_LIMIT),
    ],
)
def test_a_value_out_of_range_names_its_field(field, value):
    with pytest.raises(InvalidRequest, match=f"`{field}`") as caught:
        resolve(Sampling(**{field: value}), NONE)
    assert caught.value.field == field
