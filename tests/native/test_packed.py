"""Packed weights and single products against plain ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("numba")

from engine.native.packed import Native, pack


def weights(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator) / width**0.5


def stored(rows: int, width: int, bits: int) -> torch.Tensor:
    """Weights as a file of Q8_0 or Q4_0 gives them: whole numbers times an F16 per block."""
    generator = torch.Generator().manual_seed(1)
    low, high = (-127, 128) if bits == 8 else (-8, 8)
    whole = torch.randint(low, high, (rows, width // 32, 32), generator=generator)
    whole[:, :, 5] = 127 if bits == 8 else -8
    scale = (torch.rand(rows, width // 32, 1, generator=generator) * 0.01 - 0.005).half()
    scale = scale.abs() if bits == 8 else scale
    return (whole * scale.float()).flatten(1)


def unpacked(packed, rows: int) -> torch.Tensor:
    values = packed.values
    if packed.bits == 4:
        values = torch.cat((values & 15, values >> 4), dim=2)
    whole = values.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(2).float()
    whole -= 128 if packed.bits == 8 else 8
    scales = packed.scales.permute(0, 2, 1).flatten(0, 1)
    return (whole * scales[..., None].float()).flatten(1)[:rows]


@pytest.mark.parametrize("bits", [8, 4])
def test_what_a_file_stores_in_blocks_is_kept_exactly(bits):
    weight = stored(48, 96, bits)
    assert torch.equal(unpacked(pack(weight, bits), 48), weight)


@pytest.mark.parametrize(("bits", "lost"), [(8, 0.01), (4, 0.15)])
def test_other_weights_are_kept_to_their_bits(bits, lost):
    weight = weights(40, 64)
    weight[3], weight[7, :32] = 0, 0
    got = unpacked(pack(weight, bits), 40)
    assert (got - weight).norm() < lost * weight.norm()
    assert not got[3].any() and not got[7, :32].any()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 33])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_product_is_the_plain_one(team, rows, bits):
    weight, bias = weights(50, 96), torch.linspace(-1, 1, 50)
    x = torch.randn(rows, 96, generator=torch.Generator().manual_seed(rows))
    kernel = Native(weight, bias, team, bits)
    wanted = F.linear(x, unpacked(pack(weight, bits), 50), bias)
    got = kernel(x)
    assert got.shape == wanted.shape
    assert (got - wanted).norm() < 0.01 * wanted.norm()
    assert torch.equal(kernel(x[None])[0], got)


@pytest.mark.parametrize("bits", [8, 4])
def test_whole_numbers_are_multiplied_exactly(team, bits):
    x = torch.randint(-127, 128, (9, 64), generator=torch.Generator().manual_seed(2)).float()
    x[:, ::32] = 127  # so that the scale of a block is 1
    weight = stored(32, 64, bits)
    got = Native(weight, None, team, bits)(x)
    torch.testing.assert_close(got, F.linear(x, weight), rtol=1e-6, atol=1e-4)


def test_a_row_has_the_same_bits_beside_any_neighbours(team):
    kernel, x = Native(weights(64, 128), None, team), torch.randn(21, 128)
    alone = torch.cat([kernel(row[None]) for row in x])
    assert torch.equal(kernel(x), alone)
    assert torch.equal(kernel(x[5:18]), alone[5:18])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_comes_out_as_none_and_stays_in_its_row(team, bad):
    kernel, x = Native(weights(32, 64), None, team), torch.ones(3, 64)
    whole = kernel(x)
    x[1, 40] = bad
    got = kernel(x)
    assert not torch.isfinite(got[1]).any()
    assert torch.equal(got[[0, 2]], whole[[0, 2]])


def test_a_row_of_zeros_gives_zeros(team):
    assert not Native(weights(32, 64), None, team)(torch.zeros(2, 64)).any()
