"""A frame's acoustic codes in one call against the same steps one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("numba")

from engine.config import GenerationDefaults
from engine.models.kv_cache import KVCache
from engine.models.layers import RMSNorm
from engine.native.packed import Native
from engine.native.predictor import native_frame
from engine.native.stack import NativeStack, pack_layer
from engine.request import Sampling
from engine.tts.sampling import SamplerBatch, resolve
from tests.native.test_stack import BITS, CPU, SPEC, plain_stack

STEPS, VOCAB = 5, 96
ASKED = (
    {"subtalker_temperature": 0.0},
    {"subtalker_top_k": 1},
    {"subtalker_top_k": 7, "subtalker_temperature": 0.7},
    {"subtalker_top_k": 0, "subtalker_temperature": 1.3},
    {"subtalker_top_k": 0, "subtalker_top_p": 0.6},
    {"subtalker_top_k": 500, "subtalker_top_p": 0.01},
    {"subtalker_top_k": 50},
)


class Parts:
    """A predictor's parts; `width` is the talker's."""

    def __init__(self, team, width: int) -> None:
        generator = torch.Generator().manual_seed(7)

        def some(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        layers = [pack_layer(layer, BITS) for layer in plain_stack()]
        self.stack = NativeStack(SPEC, layers, team)
        self.heads = [Native(some(VOCAB, SPEC.hidden) / 8, None, team) for _ in range(STEPS)]
        self.tables = [some(VOCAB, width) for _ in range(STEPS)]
        self.norm = RMSNorm(SPEC.hidden, SPEC.norm_eps).requires_grad_(False)
        self.norm.weight.uniform_(0.5, 1.5, generator=generator)
        self.projection: nn.Module = nn.Identity()
        if width != SPEC.hidden:
            weight, bias = some(SPEC.hidden, width) / width**0.5, some(SPEC.hidden)
            self.projection = Native(weight, bias, team)
        self.frame = native_frame(
            self.stack, self.heads, self.tables, self.norm.weight, self.projection, team=team
        )

    def step_by_step(self, hidden, first, draw):
        kept = KVCache(SPEC, 20, STEPS + 1, device=CPU, dtype=torch.float32)
        total, codes = first, []
        x, start = torch.stack((hidden, first), dim=1), 0
        for step in range(STEPS):
            attends = kept.lockstep(len(hidden), start, x.shape[1])
            out = self.norm(self.stack(self.projection(x), (), attends)[:, -1])
            code = draw(step, self.heads[step](out))
            embedded = self.tables[step][code]
            codes.append(code)
            total = total + embedded
            start, x = start + x.shape[1], embedded[:, None]
        return torch.stack(codes, dim=1), total


def drawn(count: int, seed: int):
    lanes = [resolve(Sampling(seed=0, **ASKED[i % len(ASKED)]), GenerationDefaults())
             for i in range(count)]  # fmt: skip
    u = torch.rand(count, STEPS, generator=torch.Generator().manual_seed(seed))
    return SamplerBatch(lanes, CPU).frame(u)


def cache() -> KVCache:
    return KVCache(SPEC, 20, STEPS + 1, device=CPU, dtype=torch.float32, nan_fill=True)


@torch.inference_mode()
@pytest.mark.parametrize("width", [SPEC.hidden, 2 * SPEC.hidden])
@pytest.mark.parametrize("count", [1, 3, 8, 19])
def test_codes_and_sums_are_those_of_single_steps(team, width, count):
    parts = Parts(team, width)
    assert parts.frame is not None
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        hidden, first = torch.randn(2, count, width, generator=generator)
        draw = drawn(count, seed)
        codes, total = parts.frame.predict(hidden, first, cache(), draw.lanes())
        wanted, summed = parts.step_by_step(hidden, first, draw)
        assert torch.equal(codes, wanted)
        torch.testing.assert_close(total, summed)


@torch.inference_mode()
def test_a_lane_draws_the_same_beside_any_neighbours(team):
    parts = Parts(team, SPEC.hidden)
    hidden, first = torch.randn(2, 17, SPEC.hidden, generator=torch.Generator().manual_seed(1))
    draw = drawn(17, 1)
    codes, total = parts.frame.predict(hidden, first, cache(), draw.lanes())
    for lane in (0, 4, 16):
        alone = [each[lane : lane + 1] for each in draw.lanes()]
        part = slice(lane, lane + 1)
        code, sums = parts.frame.predict(hidden[part], first[part], cache(), alone)
        assert torch.equal(code[0], codes[lane])
        assert torch.equal(sums[0], total[lane])


@torch.inference_mode()
def test_scores_that_are_no_numbers_still_give_codes_that_exist(team):
    parts = Parts(team, SPEC.hidden)
    hidden = torch.full((7, SPEC.hidden), float("nan"))
    codes, _ = parts.frame.predict(hidden, hidden.clone(), cache(), drawn(7, 0).lanes())
    assert ((codes >= 0) & (codes < VOCAB)).all()


def test_a_predictor_that_is_not_native_as_a_whole_has_no_single_call(team):
    parts = Parts(team, SPEC.hidden)

    def made(stack=parts.stack, heads=parts.heads, given=parts.projection, by=team):
        return native_frame(stack, heads, parts.tables, parts.norm.weight, given, team=by)

    assert made() is not None
    assert made(stack=plain_stack()) is None
    assert made(heads=[*parts.heads[1:], nn.Linear(4, 4)]) is None
    assert made(given=nn.Linear(4, 4)) is None
    assert made(by=None) is None
