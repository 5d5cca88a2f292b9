"""A stack in one call against a row of plain layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("numba")

from engine.config import DecoderSpec
from engine.models.kv_cache import KVCache
from engine.models.layers import DecoderLayer, RopeTable, Stack, attend_causal
from engine.native.stack import NativeStack, pack_layer

SPEC = DecoderSpec(
    hidden=256, ffn=320, layers=3, heads=4, kv_heads=2, head_dim=64, rope_theta=1e6, norm_eps=1e-6,
    context=128,
)  # fmt: skip
POSITIONS = 80
CPU = torch.device("cpu")
BITS = dict.fromkeys(("qkv", "output", "gate_up", "down"), 8)


def plain_stack(spec: DecoderSpec = SPEC) -> Stack:
    torch.manual_seed(3)
    stack = Stack(DecoderLayer(spec) for _ in range(spec.layers)).requires_grad_(False)
    for value in stack.parameters():
        if value.dim() == 2:
            value.normal_(0, value.shape[1] ** -0.5)
        else:
            value.uniform_(0.5, 1.5)
    return stack


@pytest.fixture
def plain():
    return plain_stack()


@pytest.fixture
def native(plain, team):
    return NativeStack(SPEC, [pack_layer(layer, BITS) for layer in plain], team)


def cache(dtype: torch.dtype = torch.float32, spec: DecoderSpec = SPEC) -> KVCache:
    return KVCache(spec, 5, POSITIONS, device=CPU, dtype=dtype, nan_fill=True)


def whole(stack: Stack, x: torch.Tensor, spec: DecoderSpec = SPEC) -> torch.Tensor:
    rope = RopeTable(spec, POSITIONS, CPU, torch.float32).span(0, x.shape[1])
    return stack(x, rope, [attend_causal] * spec.layers)


def alike(got: torch.Tensor, wanted: torch.Tensor, given: torch.Tensor) -> float:
    return float(F.cosine_similarity((got - given).flatten(), (wanted - given).flatten(), dim=0))


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prompt_in_pieces_and_single_steps_equal_the_whole_sequence(plain, native, dtype):
    x = torch.randn(2, 70, SPEC.hidden, generator=torch.Generator().manual_seed(1))
    wanted, kept = whole(plain, x), cache(dtype)
    for lane, slot in enumerate((3, 1)):
        for start, end in ((0, 41), (41, 60 + lane)):  # more rows than one job takes
            piece = x[lane : lane + 1, start:end]
            got = native(piece, (), kept.prefill(slot, end - start))
            assert alike(got, wanted[lane : lane + 1, start:end], piece) >= 0.999
    for step in range(6):
        at = torch.tensor([60 + step, 61 + step])
        given = x[torch.arange(2), at][:, None]
        got = native(given, (), kept.decode([3, 1]))
        assert alike(got[:, 0], wanted[torch.arange(2), at], given[:, 0]) >= 0.999


@torch.inference_mode()
def test_lanes_in_lockstep_equal_the_whole_sequence(plain, native):
    x = torch.randn(5, 4, SPEC.hidden, generator=torch.Generator().manual_seed(2))
    wanted, kept = whole(plain, x), cache()
    first = native(x[:, :2], (), kept.lockstep(5, 0, 2))
    assert alike(first, wanted[:, :2], x[:, :2]) >= 0.999
    for at in (2, 3):
        given = x[:, at : at + 1]
        got = native(given, (), kept.lockstep(5, at, 1))
        assert alike(got, wanted[:, at : at + 1], given) >= 0.999


@torch.inference_mode()
def test_a_slot_has_the_same_bits_beside_any_neighbours(native):
    x = torch.randn(5, 12, SPEC.hidden, generator=torch.Generator().manual_seed(4))

    def spoken(together: bool) -> torch.Tensor:
        kept, out = cache(torch.bfloat16), []
        for slot in range(5):
            native(x[slot : slot + 1, : 3 + slot], (), kept.prefill(slot, 3 + slot))
        for step in range(4):
            given = x[:, 8 + step : 9 + step]
            if together:
                out.append(native(given, (), kept.decode(range(5))))
            else:
                parts = [native(given[slot, None], (), kept.decode([slot])) for slot in range(5)]
                out.append(torch.cat(parts))
        return torch.cat(out, dim=1)

    assert torch.equal(spoken(True), spoken(False))


@torch.inference_mode()
def test_what_is_given_is_not_changed(native):
    x = torch.randn(1, 3, SPEC.hidden)
    before = x.clone()
    native(x, (), cache().prefill(0, 3))
    assert torch.equal(x, before)


@torch.inference_mode()
def test_a_longer_cache_than_before_is_attended_to(plain, native):
    x = torch.randn(1, 50, SPEC.hidden, generator=torch.Generator().manual_seed(6))
    short = KVCache(SPEC, 1, 4, device=CPU, dtype=torch.float32)
    native(x[:, :4], (), short.prefill(0, 4))
    assert alike(native(x, (), cache().prefill(2, 50)), whole(plain, x), x) >= 0.999


@torch.inference_mode()
def test_a_position_past_the_cache_is_refused_and_nothing_is_written(native):
    kept = cache()
    x = torch.randn(1, POSITIONS, SPEC.hidden)
    native(x, (), kept.prefill(1, POSITIONS))
    before = kept.k.clone()
    with pytest.raises(IndexError, match="80 of a cache of 80"):
        native(x[:, :1], (), kept.decode([1]))
    assert torch.equal(kept.k.isnan(), before.isnan())


def test_attention_without_a_cache_is_refused(native):
    with pytest.raises(TypeError, match="KVCache"):
        native(torch.zeros(1, 2, SPEC.hidden), (), [attend_causal] * SPEC.layers)


@torch.inference_mode()
def test_four_bits_are_those_of_the_weights(team):
    plain = plain_stack()
    bits = dict.fromkeys(BITS, 4)
    native = NativeStack(SPEC, [pack_layer(layer, bits) for layer in plain], team)
    x = torch.randn(1, 20, SPEC.hidden, generator=torch.Generator().manual_seed(5))
    assert alike(native(x, (), cache().prefill(0, 20)), whole(plain, x), x) >= 0.97
    assert native.packed_nbytes < 0.6 * sum(p.numel() for p in plain.parameters())
