"""Packed products against the plain one, and the choice between them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engine.models import kernels
from engine.models.kernels import BFloat16, Float32, Int8, Int8Weight, Plan, agrees, choose, refine

SHAPES = [pytest.param(64, 48, id="small"), pytest.param(96, 200, id="odd")]
KINDS = {"int8": Int8, "int8w": Int8Weight, "bf16": BFloat16, "f32": Float32}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("width", "height"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("biased", [False, True], ids=["no-bias", "bias"])
@torch.inference_mode()
def test_a_kernel_agrees_with_its_plain_twin(kind, width, height, biased):
    weight, x = drawn(height, width), drawn(2, 3, width, seed=1)
    bias = drawn(height, seed=2) if biased else None
    got, wanted = KINDS[kind](weight, bias)(x), F.linear(x, weight, bias)
    assert got.shape == wanted.shape == (2, 3, height)
    assert got.dtype == torch.float32
    assert F.cosine_similarity(got.flatten(), wanted.flatten(), dim=0) >= 0.9995


@pytest.mark.parametrize("terms", [1, 2])
@torch.inference_mode()
def test_an_int8_row_has_the_same_bits_at_every_width(terms):
    kernel = Int8(drawn(200, 96), None, terms)
    x = drawn(17, 96, seed=1) * torch.logspace(-3, 3, 17)[:, None]
    together = kernel(x)
    for row in range(17):
        assert torch.equal(kernel(x[row : row + 1]), together[row : row + 1])
    assert torch.equal(kernel(x.flip(0)), together.flip(0))


@torch.inference_mode()
def test_a_second_term_keeps_what_a_towering_value_hides():
    weight, x = drawn(64, 512), drawn(4, 512, seed=1)
    weight[:, 7] = 0  # so that the towering value costs the others and shows nowhere itself
    x[:, 7] = 100
    wanted = F.linear(x, weight)

    def lost(terms: int) -> float:
        return float((Int8(weight, None, terms)(x) - wanted).norm() / wanted.norm())

    assert lost(1) > 0.1
    assert lost(2) < 0.01


@torch.inference_mode()
def test_packing_adds_a_second_term_where_typical_inputs_need_it():
    plan, weight = Plan("int8", "f32"), drawn(64, 512)
    even, towering = drawn(4, 512, seed=1), drawn(4, 512, seed=1)
    towering[:, 7] = 100
    assert plan.pack({"Q8_0"}, weight, None, even).terms == 1
    assert plan.pack({"Q8_0"}, weight, None, towering).terms == 2
    assert refine(plan.pack({"Q8_0"}, weight, None, even)).terms == 2


@torch.inference_mode()
def test_rows_of_zeros_and_of_nan_touch_no_other_row():
    kernel, x = Int8(drawn(40, 64), None), drawn(3, 64, seed=1)
    alone = kernel(x[2:])
    x[0], x[1] = 0, float("nan")
    out = kernel(x)
    assert not out[0].any()
    assert out[1].isnan().all()
    assert torch.equal(out[2:], alone)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [({"Q8_0"}, "int8"), ({"Q4_0", "Q6_K"}, "int8"), ({"F32"}, "bf16"), ({"Q8_0", "F16"}, "bf16")],
    ids=str,
)
def test_a_plan_rounds_no_whole_weight_to_int8(stored, kind):
    assert Plan("int8", "bf16").kind(stored) == kind


def test_the_fastest_kernel_over_the_widths_is_chosen(monkeypatch):
    times = {"int8": [2.0, 2.0], "int8w": [1.0, 9.0], "bf16": [5.0, 3.0], "f32": [4.0, 4.0]}
    monkeypatch.setattr(kernels, "_measure", lambda kind, *_: times[kind])
    assert choose(64, 64, [1, 2]) == Plan("int8", "bf16", odd="int8")


@pytest.mark.parametrize(
    ("native", "kind"), [([3.5, 3.5], "native"), ([4.0, 4.0], "int8w"), (None, "int8w")]
)
def test_native_may_be_a_little_slower_alone_for_what_it_saves_between(monkeypatch, native, kind):
    times = {"int8": [9.0] * 2, "int8w": [2.5] * 2, "bf16": [5.0] * 2, "f32": [4.0] * 2}
    monkeypatch.setattr(kernels, "_measure", lambda kind, *_: {**times, "native": native}[kind])
    plan = choose(64, 64, [1, 2], object())
    assert (plan.quantised, plan.odd) == (kind, "int8w")
    assert plan.kind({"Q8_0"}, 40) == "int8w"  # rows of no whole blocks
    assert choose(64, 64, [1, 2]).quantised == "int8w"  # there is nobody to run it


def test_native_keeps_four_bits_of_what_has_four():
    plan = Plan("native", "bf16", "int8")
    assert plan.bits({"Q4_0"}) == 4
    assert plan.bits({"Q4_0", "Q8_0"}) == plan.bits({"Q5_0"}) == 8
    assert plan.native({"F16", "F32"}) is None
    assert Plan("int8", "bf16").native({"Q8_0"}) is None


def test_a_kernel_this_machine_lacks_is_not_chosen(monkeypatch, caplog):
    def missing(*_):
        raise RuntimeError("no such instruction")

    for kind in ("int8", "int8w", "bf16"):
        monkeypatch.setitem(kernels._KERNELS, kind, missing)
    with caplog.at_level("INFO", "framecast.engine"):
        assert choose(64, 64, [1]) == Plan("f32", "f32")
    assert "kernel int8, 64 x 64: not on this machine" in caplog.text


def test_a_kernel_that_computes_too_coarsely_is_not_chosen(monkeypatch):
    class Wrong(Float32):
        def forward(self, x):
            return super().forward(x) + 0.1

    monkeypatch.setitem(kernels._KERNELS, "int8", Wrong)
    monkeypatch.setitem(kernels._KERNELS, "int8w", Wrong)
    monkeypatch.setitem(kernels._KERNELS, "bf16", Wrong)
    assert choose(64, 64, [1]) == Plan("f32", "f32")


def test_a_result_with_nan_agrees_with_nothing():
    assert agrees(torch.ones(3), torch.ones(3))
    assert not agrees(torch.tensor([1.0, float("nan"), 1.0]), torch.ones(3))
