from __future__ import annotations

import pytest
import torch

from engine.config import DecoderSpec
from engine.models.kv_cache import KVCache
from engine.models.layers import DecoderLayer, attend_causal, attend_one, rope_table, rotate

SHAPES = [
    pytest.param(DecoderSpec(32, 48, 3, 4, 4, 8, 1e4, 1e-6, 64), id="multi-head"),
    pytest.param(DecoderSpec(32, 48, 3, 4, 2, 8, 1e6, 1e-6, 64), id="grouped"),
    pytest.param(DecoderSpec(24, 40, 2, 6, 1, 12, 1e6, 1e-5, 64), id="one-key-head"),
]
CPU = torch.device("cpu")


def stack(spec: DecoderSpec) -> torch.nn.ModuleList:
    torch.manual_seed(0)
    return torch.nn.ModuleList(DecoderLayer(spec) for _ in range(spec.layers)).eval()


def run(layers, x, rope, attends):
    for layer, attend in zip(layers, attends, strict=True):
        x = layer(x, rope, attend)
    return x


def whole(layers, x, spec):
    count = x.shape[1]
    return run(
        layers,
        x,
        rope_table(spec, torch.arange(count), torch.float32),
        [attend_causal] * len(layers),
    )


@pytest.mark.parametrize("spec", SHAPES)
@torch.inference_mode()
def test_a_prefix_of_the_input_gives_a_prefix_of_the_output(spec):
    layers, x = stack(spec), torch.randn(1, 17, spec.hidden)
    full = whole(layers, x, spec)
    for count in (1, 2, 9, 16):
        torch.testing.assert_close(whole(layers, x[:, :count], spec), full[:, :count])


@pytest.mark.parametrize("spec", SHAPES)
@torch.inference_mode()
def test_prefill_then_single_steps_equal_the_whole_sequence(spec):
    layers, x = stack(spec), torch.randn(2, 12, spec.hidden)
    cache = KVCache(spec, 3, 12, device=CPU, dtype=torch.float32, nan_fill=True)
    cos, sin = rope_table(spec, torch.arange(12), torch.float32)
    slots, lengths = [2, 0], [5, 8]
    for lane, (slot, n) in enumerate(zip(slots, lengths, strict=True)):
        out = run(layers, x[lane : lane + 1, :n], (cos[:n], sin[:n]), cache.prefill(slot, n))
        torch.testing.assert_close(out, whole(layers, x[lane : lane + 1, :n], spec))
    for step in range(4):
        at = torch.tensor([n + step for n in lengths])
        inputs = torch.stack([x[lane, n + step] for lane, n in enumerate(lengths)])[:, None]
        rope = (cos[at][:, None, None], sin[at][:, None, None])
        out = run(layers, inputs, rope, cache.decode(slots))
        for lane, n in enumerate(lengths):
            full = whole(layers, x[lane : lane + 1, : n + step + 1], spec)
            torch.testing.assert_close(out[lane, 0], full[0, -1])
    assert cache.length == [12, 0, 9]


@pytest.mark.parametrize("spec", SHAPES)
@torch.inference_mode()
def test_an_idle_row_writes_nothing_and_does_not_disturb_the_others(spec):
    layers, x = stack(spec), torch.randn(2, 4, spec.hidden)
    cache = KVCache(spec, 2, 8, device=CPU, dtype=torch.float32, nan_fill=True)
    cos, sin = rope_table(spec, torch.arange(8), torch.float32)
    run(layers, x[:1, :3], (cos[:3], sin[:3]), cache.prefill(0, 3))
    at = torch.tensor([3, 0])
    rope = (cos[at][:, None, None], sin[at][:, None, None])
    out = run(layers, x[:, 3:4], rope, cache.decode([0, None]))
    torch.testing.assert_close(out[0, 0], whole(layers, x[:1], spec)[0, -1])
    assert out.isfinite().all()
    assert cache.k[:, 1].isnan().all()
    assert cache.length == [4, 0]


@pytest.mark.parametrize("spec", SHAPES)
@torch.inference_mode()
def test_lockstep_equals_the_whole_sequence_on_every_lane(spec):
    layers, x = stack(spec), torch.randn(3, 6, spec.hidden)
    cache = KVCache(spec, 4, 6, device=CPU, dtype=torch.float32, nan_fill=True)
    cos, sin = rope_table(spec, torch.arange(6), torch.float32)
    out = [run(layers, x[:, :2], (cos[:2], sin[:2]), cache.lockstep(3, 0, 2))]
    for i in range(2, 6):
        rope = (cos[i : i + 1], sin[i : i + 1])
        out.append(run(layers, x[:, i : i + 1], rope, cache.lockstep(3, i, 1)))
    torch.testing.assert_close(torch.cat(out, 1), whole(layers, x, spec))


def test_a_released_row_holds_nothing():
    spec = SHAPES[0].values[0]
    cache = KVCache(spec, 2, 4, device=CPU, dtype=torch.float32, nan_fill=True)
    cache.k[:, 1] = 1.0
    cache.length[1] = 3
    cache.release(1)
    assert cache.k[:, 1].isnan().all()
    assert cache.length == [0, 0]


def test_grouped_single_query_attention_equals_repeated_keys():
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 6, 1, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    repeated = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    )
    torch.testing.assert_close(attend_one(q, k, v), repeated)


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    spec = SHAPES[0].values[0]
    rope = rope_table(spec, torch.arange(20), torch.float32)
    q, k = torch.randn(1, 8), torch.randn(1, 8)

    def at(x, position):
        return rotate(x, (rope[0][position : position + 1], rope[1][position : position + 1]))

    torch.testing.assert_close(at(q, 13).norm(), q.norm())
    torch.testing.assert_close(at(q, 5) @ at(k, 2).T, at(q, 17) @ at(k, 14).T)
