"""Requests as pure data, and the seeds of their parts."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from engine.request import (
    SEED_LIMIT,
    FinishReason,
    Job,
    Sampling,
    SpeechRequest,
    derive_seed,
    draw_seed,
)


@pytest.mark.parametrize("seed", [0, 1, 42, SEED_LIMIT - 1])
def test_the_first_part_keeps_the_seed(seed: int) -> None:
    assert derive_seed(seed, 0) == seed


@pytest.mark.parametrize("seed", [0, 1, 42, SEED_LIMIT - 1])
def test_derived_seeds_are_in_range_repeatable_and_all_different(seed: int) -> None:
    seeds = [derive_seed(seed, index) for index in range(200)]
    assert seeds == [derive_seed(seed, index) for index in range(200)]
    assert all(0 <= each < SEED_LIMIT for each in seeds)
    assert len(set(seeds)) == 200


def test_parts_of_neighbouring_seeds_do_not_share_seeds() -> None:
    seeds = {derive_seed(seed, index) for seed in range(50) for index in range(1, 50)}
    assert len(seeds) == 50 * 49


def test_a_derived_seed_never_changes_between_releases() -> None:
    # A stored request must sound the same later: SplitMix64's published first outputs for seed 0.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [derive_seed(0, index) for index in (1, 2, 3)] == [x % 2**63 for x in published]


def test_drawn_seeds_are_in_range_and_differ() -> None:
    seeds = [draw_seed() for _ in range(100)]
    assert all(0 <= seed < SEED_LIMIT for seed in seeds)
    assert len(set(seeds)) == 100


def test_sampling_and_job_survive_pickling() -> None:
    sampling = Sampling(temperature=0.5, top_k=3, seed=7, max_new_tokens=9)
    job = Job("a", "tiny", 24, tenant="t", priority=2, deadline=5.0, continuation=True)
    assert pickle.loads(pickle.dumps(sampling)) == sampling
    assert pickle.loads(pickle.dumps(job)) == job


def test_a_request_survives_pickling_with_its_arrays() -> None:
    request = SpeechRequest(
        "Grüße 你好",
        voice="vivian",
        language="de",
        instructions="softly",
        speaker_embedding=np.arange(4, dtype=np.float32),
        reference_codes=np.arange(8, dtype=np.int64).reshape(4, 2),
        reference_text="hi",
        sampling=Sampling(seed=1),
    )
    copy = pickle.loads(pickle.dumps(request))
    for field in dataclasses.fields(SpeechRequest):
        mine, theirs = getattr(request, field.name), getattr(copy, field.name)
        assert np.array_equal(mine, theirs), field.name
        assert type(mine) is type(theirs), field.name


def test_a_request_cannot_be_changed() -> None:
    request = SpeechRequest("Hello")
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.text = "other"  # type: ignore[misc]


def test_a_request_asks_for_nothing_but_its_text_by_default() -> None:
    request = SpeechRequest("Hello")
    assert request.language == "auto"
    assert request.sampling == Sampling()
    assert request.voice is request.task is request.model is request.non_streaming_mode is None


def test_finish_reasons_read_as_their_names_on_the_wire() -> None:
    assert [str(reason) for reason in FinishReason] == ["stop", "length", "loop", "silence"]
