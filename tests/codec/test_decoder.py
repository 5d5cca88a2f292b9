"""The whole codec decoder: streaming is offline, lanes are private, state is plain data."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from engine.codec.decoder import CodecDecoder, decode_lanes
from engine.codec.state import CodecState
from tests.codec.specs import ODD_RATES, PUBLISHED_RATES, SPECS, random_codes, random_decoder

FRAMES = 120  # more than any window, so the oldest keys and values fall out
RANDOM_CHUNKS = [3, 1, 17, 2, 30, 1, 1, 8, 40, 5, 12]
CHUNKINGS = {
    "1": [1] * FRAMES,
    "4": [4] * 30,
    "25": [25, 25, 25, 25, 20],
    "120": [FRAMES],
    "random": RANDOM_CHUNKS,
}


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def decoder(request):
    return random_decoder(request.param)


@pytest.fixture(scope="module")
def small():
    return random_decoder(ODD_RATES)


def fresh(decoder: CodecDecoder, lanes: int, nan_fill: bool = True) -> CodecState:
    return decoder.init_state(lanes, device="cpu", dtype=torch.float32, nan_fill=nan_fill)


def same(left: CodecState, right: CodecState, lane: int) -> bool:
    """Bit-identical, NaN included."""
    pairs = [(left.tensors[key], right.tensors[key]) for key in left.tensors]
    pairs.append((left.position, right.position))
    return all(torch.equal(lane_bytes(a, lane), lane_bytes(b, lane)) for a, b in pairs)


def lane_bytes(tensor: torch.Tensor, lane: int) -> torch.Tensor:
    return tensor[lane : lane + 1].flatten().view(torch.uint8)


@pytest.mark.parametrize("sizes", CHUNKINGS.values(), ids=CHUNKINGS)
@torch.no_grad()
def test_streaming_is_offline(decoder, sizes):
    codes = random_codes(decoder.spec, 1, FRAMES, seed=7)
    offline = decoder(codes)
    state = fresh(decoder, 1)
    streamed = torch.cat([decoder(part, state) for part in codes.split(sizes, -1)], -1)
    assert 0.05 < offline.std() < 0.5
    assert streamed.shape == offline.shape == (1, FRAMES * decoder.spec.samples_per_frame)
    torch.testing.assert_close(streamed, offline, atol=1e-4, rtol=0)
    assert state.position.tolist() == [FRAMES]


@torch.no_grad()
def test_a_prefix_of_the_codes_gives_a_prefix_of_the_sound(decoder):
    codes = random_codes(decoder.spec, 2, 30, seed=8)
    whole = decoder(codes)
    for frames in (1, 5, 29):
        prefix = decoder(codes[..., :frames])
        torch.testing.assert_close(prefix, whole[:, : prefix.shape[1]], atol=1e-5, rtol=0)


@torch.no_grad()
def test_lanes_at_different_positions_equal_their_solo_runs(decoder):
    spec = decoder.spec
    starts = [0, 3, 11, 90]
    codes = random_codes(spec, 4, 100, seed=9)
    pool = fresh(decoder, 6)
    lanes = torch.tensor([4, 0, 5, 2])
    for row, start in enumerate(starts):
        if start:
            decode_lanes(decoder, pool, lanes[row : row + 1], codes[row : row + 1, :, :start])
    rows = torch.stack([codes[row, :, start : start + 6] for row, start in enumerate(starts)])
    together = decode_lanes(decoder, pool, lanes, rows)
    for row, start in enumerate(starts):
        solo = decoder(codes[row : row + 1, :, : start + 6])[0, start * spec.samples_per_frame :]
        torch.testing.assert_close(together[row], solo, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_lane_outside_the_batch_stays_bit_identical(small):
    pool = fresh(small, 4)
    decode_lanes(small, pool, torch.arange(4), random_codes(small.spec, 4, 5, seed=10))
    before = pool.clone()
    decode_lanes(small, pool, torch.tensor([2, 0]), random_codes(small.spec, 2, 3, seed=11))
    assert [same(pool, before, lane) for lane in range(4)] == [False, True, False, True]


@torch.no_grad()
def test_a_reset_lane_equals_a_fresh_one_and_spares_the_others(small):
    pool = fresh(small, 3)
    decode_lanes(small, pool, torch.arange(3), random_codes(small.spec, 3, 20, seed=12))
    before = pool.clone()
    pool.reset(torch.tensor([1]))
    assert same(pool, fresh(small, 3), 1)
    assert [same(pool, before, lane) for lane in range(3)] == [True, False, True]
    codes = random_codes(small.spec, 1, 20, seed=13)
    again = decode_lanes(small, pool, torch.tensor([1]), codes)
    torch.testing.assert_close(again, small(codes), atol=1e-5, rtol=0)


@torch.no_grad()
def test_nan_in_the_unset_past_changes_no_bit(small):
    codes = random_codes(small.spec, 2, 7, seed=14)
    clean, filled = fresh(small, 2, nan_fill=False), fresh(small, 2)
    assert any(t.isnan().any() for t in filled.tensors.values())
    assert not any(t.isnan().any() for t in clean.tensors.values())
    for part in codes.split(2, -1):
        assert torch.equal(small(part, filled), small(part, clean))


@torch.no_grad()
def test_a_snapshot_of_a_primed_lane_starts_any_other_lane(small):
    primer, codes = (
        random_codes(small.spec, 1, 30, seed=15),
        random_codes(small.spec, 1, 9, seed=16),
    )
    pool = fresh(small, 3)
    decode_lanes(small, pool, torch.tensor([0]), primer)
    snapshot = pool.select(torch.tensor([0]))
    expected = decode_lanes(small, pool, torch.tensor([0]), codes)
    for lane in (2, 0):
        pool.update(torch.tensor([lane]), snapshot)
        assert torch.equal(decode_lanes(small, pool, torch.tensor([lane]), codes), expected)
    assert snapshot.position.tolist() == [30]


def test_the_size_of_a_state_is_that_of_its_tensors(small):
    state = fresh(small, 3)
    values = sum(math.prod(t.shape) for t in state.tensors.values())
    assert (state.lanes, state.nbytes) == (3, 4 * values + 3 * 8)
    assert state.select(torch.tensor([1])).nbytes * 3 == state.nbytes


def test_every_weight_gets_a_gradient_offline(small):
    small.zero_grad()
    small(random_codes(small.spec, 2, 12, seed=17)).square().mean().backward()
    silent = [name for name, p in small.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


@torch.no_grad()
def test_bfloat16_stays_near_float32():
    decoder = random_decoder(ODD_RATES)
    codes = random_codes(decoder.spec, 1, 12, seed=18)
    expected = decoder(codes)
    low = decoder.to(torch.bfloat16)
    state = low.init_state(1, device="cpu", dtype=torch.bfloat16, nan_fill=True)
    streamed = torch.cat([low(part, state) for part in codes.split(5, -1)], -1)
    assert streamed.dtype == torch.bfloat16
    assert (streamed.float() - expected).square().mean().sqrt() < 0.05 * expected.std()


def test_the_decoder_is_built_on_the_meta_device_and_filled_by_names(small):
    with torch.device("meta"):
        decoder = CodecDecoder(ODD_RATES)
    assert all(t.is_meta for t in (*decoder.parameters(), *decoder.buffers()))
    decoder.load_state_dict(small.state_dict(), assign=True)
    codes = random_codes(ODD_RATES, 1, 5, seed=19)
    assert torch.equal(decoder(codes), small(codes))


def test_the_weights_carry_the_names_and_shapes_of_the_file():
    spec = PUBLISHED_RATES
    shapes = {name: tuple(t.shape) for name, t in CodecDecoder(spec).state_dict().items()}
    expected = {
        "vq_first.0.codebook": (32, 8),
        "vq_first.output_proj.weight": (16, 8, 1),
        "vq_rest.14.codebook": (32, 8),
        "vq_rest.output_proj.weight": (16, 8, 1),
        "pre_conv.weight": (24, 16, 3),
        "pre_conv.bias": (24,),
        "pre_tfm.input_proj.weight": (24, 24),
        "pre_tfm.output_proj.bias": (24,),
        "pre_tfm.norm.weight": (24,),
        "pre_tfm.blk.1.attn_norm.weight": (24,),
        "pre_tfm.blk.1.attn_q.weight": (32, 24),
        "pre_tfm.blk.1.attn_output.weight": (24, 32),
        "pre_tfm.blk.1.attn_scale": (24,),
        "pre_tfm.blk.1.ffn_down.weight": (24, 40),
        "pre_tfm.blk.1.ffn_scale": (24,),
        "upsample.1.conv.weight": (24, 24, 2),
        "upsample.1.dwconv.weight": (24, 1, 7),
        "upsample.1.norm.bias": (24,),
        "upsample.1.pwconv1.weight": (96, 24),
        "upsample.1.pwconv2.bias": (24,),
        "upsample.1.gamma": (24,),
        "dec.0.conv.weight": (32, 24, 7),
        "dec.1.snake.alpha": (32,),
        "dec.1.conv_t.weight": (32, 16, 16),
        "dec.4.res.2.act1.beta": (2,),
        "dec.4.res.2.conv1.weight": (2, 2, 7),
        "dec.4.res.2.conv2.bias": (2,),
        "dec.5.snake.beta": (2,),
        "dec.6.conv.weight": (1, 2, 7),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    quantizer, ends, block, stage, up = 16 + 2, 2 + 5, 11, 11, 4 + 3 * 8
    assert len(shapes) == quantizer + ends + 2 * block + 2 * stage + (2 + 4 * up + 2 + 2)


@pytest.mark.parametrize("wrong", [-1, 32])
def test_a_code_out_of_range_is_refused_before_any_lane_changes(small, wrong):
    pool = fresh(small, 1)
    codes = random_codes(small.spec, 1, 3, seed=20)
    codes[0, 2, 1] = wrong
    with pytest.raises(ValueError, match=f"`codes` must lie in 0 to 31, got {wrong}"):
        decode_lanes(small, pool, torch.tensor([0]), codes)
    assert same(pool, fresh(small, 1), 0)


@pytest.mark.parametrize("shape", [(1, 3, 5), (1, 4, 0), (4, 5)], ids=str)
def test_codes_of_another_shape_are_refused(small, shape):
    with pytest.raises(ValueError, match=r"`codes` must be \[batch, 4, frames >= 1\]"):
        small(torch.zeros(shape, dtype=torch.int64))


def test_a_state_of_another_width_is_refused(small):
    with pytest.raises(ValueError, match="`state` has 2 lanes for 1 rows of codes"):
        small(random_codes(small.spec, 1, 1, seed=21), fresh(small, 2))


def test_rates_that_do_not_make_a_frame_are_refused():
    with pytest.raises(ValueError, match=r"`samples_per_frame` is 100, but .* make 120"):
        CodecDecoder(dataclasses.replace(ODD_RATES, samples_per_frame=100))
