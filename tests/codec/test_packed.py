"""The packed codec decoder against its plain twin, in F32 and in BF16."""

from __future__ import annotations

import copy

import pytest
import torch

from engine.codec import packed
from engine.codec.conv import CausalConvTranspose1d
from engine.codec.decoder import decode_lanes
from engine.codec.packed import Convolution, How, PackedDecoder, choose_dtype, spread
from tests.codec.specs import SPECS, random_codes, random_decoder, randomise

PATHS = {
    "f32": {"dtype": torch.float32},
    "bf16": {"dtype": torch.bfloat16},
}
# Largest difference between packed and plain sound of a standard deviation of 0.2.
TOLERANCES = {"f32": 1e-4, "bf16": 0.08}
# And between streamed and offline sound of one decoder: attention sums in another order, and what
# that changes in the seventh digit may round to another BF16 value.
CHUNKED = {"f32": 1e-4, "bf16": 0.03}
FRAMES = 40
CHUNKS = [1, 1, 2, 4, 8, 3, 21]


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def plain(request):
    return random_decoder(request.param)


@pytest.fixture(scope="module", params=PATHS)
def path(request):
    return request.param


@pytest.fixture(scope="module", params=["few-columns", "many-columns"])
def fast(request, plain, path):
    """Both ways to convolve: all as products of columns, or (but for single taps) as images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_HEAVY", 0 if request.param == "many-columns" else 1 << 40)
        return PackedDecoder(copy.deepcopy(plain), **PATHS[path])


@torch.inference_mode()
def test_packed_sound_is_the_plain_sound(plain, fast, path):
    codes = random_codes(plain.spec, 2, FRAMES, seed=3)
    got, wanted = fast(codes), plain(codes)
    assert got.shape == wanted.shape
    assert got.dtype == torch.float32
    assert (got - wanted).abs().max() <= TOLERANCES[path]
    noise = (got - wanted).square().mean().sqrt() / wanted.std()
    assert noise < (1e-5 if path == "f32" else 0.05)


@torch.inference_mode()
def test_packed_streaming_is_offline(plain, fast, path):
    codes = random_codes(plain.spec, 2, FRAMES, seed=4)
    state = fast.fresh_state(2, nan_fill=True)
    streamed = torch.cat([fast(part, state) for part in codes.split(CHUNKS, -1)], -1)
    offline = fast(codes)
    torch.testing.assert_close(streamed, offline, atol=CHUNKED[path], rtol=0)
    assert (streamed - offline).square().mean().sqrt() < 0.02 * offline.std()
    assert state.position.tolist() == [FRAMES, FRAMES]


@torch.inference_mode()
def test_packed_lanes_at_different_positions_equal_their_solo_runs(plain, fast, path):
    starts = [0, 3, 11]
    codes = random_codes(plain.spec, 3, 20, seed=5)
    pool = fast.fresh_state(5)
    lanes = torch.tensor([4, 0, 2])
    for row, start in enumerate(starts):
        if start:
            decode_lanes(fast, pool, lanes[row : row + 1], codes[row : row + 1, :, :start])
    before = pool.clone()
    rows = torch.stack([codes[row, :, start : start + 6] for row, start in enumerate(starts)])
    together = decode_lanes(fast, pool, lanes, rows)
    for row, start in enumerate(starts):
        solo = fast(codes[row : row + 1, :, : start + 6])[0, start * plain.spec.samples_per_frame :]
        torch.testing.assert_close(together[row], solo, atol=CHUNKED[path], rtol=0)
    for key, tensor in pool.tensors.items():
        assert torch.equal(tensor[[1, 3]], before.tensors[key][[1, 3]])


@torch.inference_mode()
def test_nan_in_the_unset_past_changes_no_bit_of_packed_sound(plain, fast):
    codes = random_codes(plain.spec, 1, 7, seed=6)
    clean, filled = fast.fresh_state(1), fast.fresh_state(1, nan_fill=True)
    assert any(tensor.isnan().any() for tensor in filled.tensors.values())
    for part in codes.split(2, -1):
        assert torch.equal(fast(part, filled), fast(part, clean))


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (16, 8), (7, 3), (9, 2)], ids=str)
@torch.inference_mode()
def test_a_spread_kernel_is_the_transposed_convolution(kernel, stride):
    layer = randomise(CausalConvTranspose1d(6, 4, kernel, stride), seed=1)
    x = torch.randn(2, 6, 11, generator=torch.Generator().manual_seed(2))
    weight = spread(layer.weight, stride)
    conv = Convolution("", weight, layer.bias.repeat(stride), How(torch.float32))
    state = packed.CodecState({"": torch.zeros(2, conv.context, 6)}, torch.zeros(2), {})
    out = conv(x.transpose(1, 2), state).reshape(2, 11 * stride, 4).transpose(1, 2)
    torch.testing.assert_close(out, layer(x), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_a_packed_decoder_gives_the_plain_weights_up():
    plain = random_decoder(SPECS["odd-rates"])
    size = plain.nbytes
    fast = PackedDecoder(plain, torch.bfloat16)
    left = {name for name, value in plain.named_parameters() if not value.is_meta}
    assert not any("conv" in name and "vq_" not in name for name in left)
    assert fast.nbytes < 0.7 * size


def test_the_faster_precision_is_chosen(monkeypatch):
    for slow, fast in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)):
        monkeypatch.setattr(packed, "_measure", lambda _, dtype, slow=slow: 1 + (dtype is slow))
        assert choose_dtype(8) is fast
    monkeypatch.undo()
    assert choose_dtype(8) in {torch.float32, torch.bfloat16}
