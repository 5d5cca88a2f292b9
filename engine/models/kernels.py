"""Products with packed weights: the kernels there are, and which this machine runs fastest.

A kernel is a module that takes F32 rows [..., K] and gives F32 rows [..., N], like `nn.Linear`,
which is its plain twin; `bf16` takes and gives BF16 rows too. It owns its weights in its own
layout; the F32 ones can be dropped.

    kind      weights                      activations            accumulated in
    native    int8 or int4, a scale per    int8, a scale per      int32 per block, then F32
              block of 32                  block of 32
    int8      int8, one scale per row      int8, one scale/row    int32, exact
    int8w     int8, one scale per row      BF16                   F32
    bf16      BF16, laid out by oneDNN     BF16                   F32
    f32       F32                          F32                    F32

`int8` gives a row the same bits at every batch width: its activations are scaled by the row's own
largest value and whole numbers are summed. Where one int8 per activation is too coarse (a few
values tower over the rest), `terms` 2 adds a second one for what the first left over. `native`
does so too, see `engine.native`; where it is chosen, whole stacks run in it.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from engine.native.team import Team

log = logging.getLogger("framecast.engine")

Kind = Literal["native", "int8", "int8w", "bf16", "f32"]

COSINE = 0.9995  # a kernel that is further from F32 is not used
COARSE = 0.02  # relative error from which a second term is worth its time
_LEVELS = 127
_REPEATS = 5
_BLOCK = 32  # values under one scale of `native`
_BETWEEN = 1.5  # what else a product of another kind costs, at the least
_MEASURED_BYTES = 32 << 20  # weights are read from memory, so measure more than fits near the core


class Kernel(nn.Module):
    """A packed product; `packed_nbytes` is what its weights take."""

    packed_nbytes: int = 0

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Int8(Kernel):
    """int8 times int8, for CPUs that FBGEMM knows."""

    def __init__(self, weight: Tensor, bias: Tensor | None, terms: int = 1) -> None:
        super().__init__()
        quantised, scale = quantise_rows(weight)
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        with _packing_for("fbgemm"):
            stored = torch._make_per_channel_quantized_tensor(quantised, scale.double(), zeros, 0)
            self._packed: Any = torch.ops.quantized.linear_prepack(stored, None)
        self._multiply: Any = (
            torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        )
        self.bias = bias
        self.terms = terms
        self.packed_nbytes = quantised.nbytes + scale.nbytes

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        top = rows.abs().amax(-1, keepdim=True).clamp_min_(1e-30)
        out: Tensor = self._product(rows / top).mul_(top)
        if self.bias is not None:
            out += self.bias
        return out.view(*x.shape[:-1], -1)

    def _product(self, rows: Tensor) -> Tensor:
        """Rows within [-1, 1] times the weights."""
        if self.terms == 1:
            once: Tensor = self._multiply(rows, 1 / _LEVELS, _LEVELS + 1, self._packed)
            return once
        first = (rows * _LEVELS).round_().div_(_LEVELS)
        rest = (rows - first).mul_(2 * _LEVELS)
        both: Tensor = self._multiply(
            torch.cat((first, rest)), 1 / _LEVELS, _LEVELS + 1, self._packed
        )
        count = len(rows)
        return both[:count].add_(both[count:], alpha=1 / (2 * _LEVELS))


class Int8Weight(Kernel):
    """int8 weights, BF16 activations."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight, scale = quantise_rows(weight)
        self._scale = scale.to(torch.bfloat16)
        self.bias = bias
        self.packed_nbytes = self._weight.nbytes + self._scale.nbytes

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        product = torch.ops.aten._weight_int8pack_mm(rows, self._weight, self._scale)
        out: Tensor = product.float()
        if self.bias is not None:
            out += self.bias
        return out.view(*x.shape[:-1], -1)


class BFloat16(Kernel):
    """BF16 weights in the order oneDNN likes best."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        low = weight.to(torch.bfloat16).contiguous()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(low, None)
        self._bias = None if bias is None else bias.to(torch.bfloat16)
        self.packed_nbytes = low.nbytes

    def forward(self, x: Tensor) -> Tensor:
        low = x.to(torch.bfloat16)
        product = torch.ops.mkldnn._linear_pointwise(low, self._packed, self._bias, "none", [], "")
        out: Tensor = product.to(x.dtype)
        return out


class Float32(Kernel):
    """The plain product."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight, self._bias = weight.contiguous(), bias
        self.packed_nbytes = weight.nbytes

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


_KERNELS: dict[Kind, Callable[[Tensor, Tensor | None], Kernel]] = {
    "int8": Int8,
    "int8w": Int8Weight,
    "bf16": BFloat16,
    "f32": Float32,
}
# What a stored type may be multiplied as: nothing coarser than the file itself, but for int8's
# one scale per row in place of one per block.
WHOLE_TYPES = frozenset({"F32", "F16", "BF16"})
_WHOLE: tuple[Kind, ...] = ("bf16", "f32")
_QUANTISED: tuple[Kind, ...] = ("int8", "int8w", "bf16", "f32")
_FOUR_BITS = frozenset({"Q4_0"})


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [N, K] as int8[N, K] and one F32 scale per row [N]."""
    scale = weight.abs().amax(1).clamp_min(1e-30) / _LEVELS
    return (weight / scale[:, None]).round_().to(torch.int8), scale


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels chosen: for quantised tensors and for whole ones (F32, F16, BF16).

    `odd` is for quantised rows that `native` cannot take; `team` runs what is native.
    """

    quantised: Kind
    whole: Kind
    odd: Kind = "f32"
    team: Team | None = None

    def kind(self, stored: Iterable[str], width: int = _BLOCK) -> Kind:
        """The kernel for tensors stored as "Q8_0", "F16", ... and multiplied together, by rows of
        `width`."""
        if not WHOLE_TYPES.isdisjoint(stored):
            return self.whole
        return self.odd if self.quantised == "native" and width % _BLOCK else self.quantised

    def native(self, stored: Iterable[str]) -> Callable[[Tensor, Tensor | None], Kernel] | None:
        """What packs other weights of a file that stores some as quantised blocks; None where
        that is not `native`."""
        if self.quantised != "native" or WHOLE_TYPES.issuperset(stored):
            return None
        return lambda weight, bias: _made("native", weight, bias, self.team)

    def bits(self, stored: Iterable[str]) -> int:
        """What `native` keeps the weights of quantised tensors in."""
        return 4 if _FOUR_BITS.issuperset(stored) else 8

    def pack(
        self, stored: Collection[str], weight: Tensor, bias: Tensor | None, sample: Tensor
    ) -> Kernel:
        """Pack a weight [N, K] that the file stores as `stored`.

        Args:
            sample: typical inputs F32[..., K]; where int8 activations lose too much of them, they
                get a second term.
        """
        kind = self.kind(stored, weight.shape[1])
        kernel = _made(kind, weight, bias, self.team, self.bits(stored))
        if isinstance(kernel, Int8):
            lost = _error(kernel(sample), F.linear(sample, weight, bias))
            kernel.terms = 1 if lost < COARSE else 2
        return kernel


def _made(
    kind: Kind, weight: Tensor, bias: Tensor | None, team: Team | None, bits: int = 8
) -> Kernel:
    if kind != "native":
        return _KERNELS[kind](weight, bias)
    from engine.native.packed import Native  # noqa: PLC0415 - where the CPU has what it needs

    assert team is not None
    return Native(weight, bias, team, bits)


def refine(kernel: Kernel) -> Kernel:
    """Give the activations of int8 a second term, whatever they are: for products whose errors
    nothing behind them damps."""
    if isinstance(kernel, Int8):
        kernel.terms = 2
    return kernel


def choose(width: int, height: int, widths: Sequence[int], team: Team | None = None) -> Plan:
    """Measure the kernels on random weights [height, width] at the given batch widths; `native`
    takes part where there is a team.

    The fastest in the geometric mean over the widths wins; kernels this machine lacks, or computes
    too coarsely, do not take part. Takes a fraction of a second.
    """
    kinds: tuple[Kind, ...] = _QUANTISED if team is None else ("native", *_QUANTISED)
    spent = {kind: _measure(kind, width, height, widths, team) for kind in kinds}
    for kind, times in spent.items():
        told = "not on this machine" if times is None else _table(widths, times)
        log.info("kernel %s, %d x %d: %s", kind, height, width, told)

    def total(kind: Kind) -> float:
        times = spent[kind]
        return float("inf") if times is None else float(torch.tensor(times).log().mean())

    odd = min(_QUANTISED, key=total)
    # Nothing stands between the products of a native stack, which a single product cannot show.
    native = team is not None and total("native") <= total(odd) + math.log(_BETWEEN)
    return Plan("native" if native else odd, min(_WHOLE, key=total), odd, team)


def _table(widths: Sequence[int], times: Sequence[float]) -> str:
    pairs = zip(widths, times, strict=True)
    return ", ".join(f"{spent * 1e3:.3f} ms at width {width}" for width, spent in pairs)


@torch.inference_mode()
def _measure(
    kind: Kind, width: int, height: int, widths: Sequence[int], team: Team | None
) -> list[float] | None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(height, width, generator=generator) / width**0.5
    x = torch.randn(max(widths), width, generator=generator)
    try:
        kernel = _made(kind, weight, None, team)
        if not agrees(kernel(x), F.linear(x, weight)):
            return None
        copies = min(16, max(1, _MEASURED_BYTES // kernel.packed_nbytes))
        kernels = [kernel, *(_made(kind, weight, None, team) for _ in range(copies - 1))]
        return [_shortest(kernels, x[:count]) for count in widths]
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        log.debug("kernel %s does not run here: %s", kind, error)
        return None


def _shortest(kernels: Sequence[Kernel], x: Tensor) -> float:
    """Seconds per product, the best of a few rounds over all copies."""
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for kernel in kernels:
            kernel(x)
        best = min(best, time.perf_counter() - start)
    return best / len(kernels)


def agrees(got: Tensor, wanted: Tensor) -> bool:
    """The cosine of two results is at least `COSINE`; NaN never is."""
    cosine = F.cosine_similarity(got.flatten().double(), wanted.flatten().double(), dim=0)
    return bool(cosine >= COSINE)


def _error(got: Tensor, wanted: Tensor) -> float:
    """The largest relative error of a row."""
    off = (got - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-30)
    return float(off.max())


@contextmanager
def _packing_for(name: str) -> Iterator[None]:
    # The library packs for whatever its global setting names at that moment, and warns that this
    # way to make a quantised tensor will go; where it has gone, the other kernels take over.
    backend: Any = torch.backends.quantized
    before = backend.engine
    backend.engine = name
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            yield
    finally:
        backend.engine = before


def module_nbytes(module: nn.Module) -> int:
    """Bytes of a module's parameters, buffers and packed weights."""
    packed = sum(int(getattr(part, "packed_nbytes", 0)) for part in module.modules())
    tensors = [*module.parameters(), *module.buffers()]
    return packed + sum(tensor.nbytes for tensor in tensors)


__all__ = [
    "WHOLE_TYPES",
    "BFloat16",
    "Float32",
    "Int8",
    "Int8Weight",
    "Kernel",
    "Kind",
    "Plan",
    "agrees",
    "choose",
    "module_nbytes",
    "quantise_rows",
    "refine",
]
