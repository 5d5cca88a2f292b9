"""Which type each converted tensor gets, and the conversion to that type.

The policy is that of qwentts.cpp's `tools/quantize.cpp`: what a nearest-neighbour search or an
activation depends on stays F32, and what has no whole blocks in its rows becomes F16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize

from engine.errors import InvalidRequest, ModelFileError

TYPES = {
    kind.name.lower(): kind
    for kind in (
        GGMLQuantizationType.F32,
        GGMLQuantizationType.BF16,
        GGMLQuantizationType.F16,
        GGMLQuantizationType.Q8_0,
        GGMLQuantizationType.Q5_0,
        GGMLQuantizationType.Q4_0,
    )
}

_KEPT_F32 = ("tok_enc.vq_", "tok_dec.vq_", "spk_enc.fc.weight")
_CHUNK = 1 << 18  # values converted at a time: bounds temporary memory and stays in cache
_F16_MAX = 65504.0


def parse_type(name: str) -> GGMLQuantizationType:
    """The tensor type a user named ("q8_0"; case does not matter).

    Raises:
        InvalidRequest: no such type; `field` is "type".
    """
    try:
        return TYPES[name.lower()]
    except KeyError:
        valid = ", ".join(f"`{name}`" for name in TYPES)
        raise InvalidRequest(f"unknown type {name!r}; valid types: {valid}", "type") from None


def tensor_type(
    name: str, shape: Sequence[int], wanted: GGMLQuantizationType
) -> GGMLQuantizationType:
    """The type a tensor (GGUF name, row-major shape) is stored as when `wanted` was asked for."""
    if len(shape) < 2 or name.startswith(_KEPT_F32):
        return GGMLQuantizationType.F32
    block, _ = GGML_QUANT_SIZES[wanted]
    return GGMLQuantizationType.F16 if shape[-1] % block else wanted


def stored_size(shape: Sequence[int], kind: GGMLQuantizationType) -> int:
    """Bytes a tensor of this shape takes as `kind`."""
    block, block_bytes = GGML_QUANT_SIZES[kind]
    return math.prod(shape) // block * block_bytes


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to the calling thread, so that none of its helpers outlives a conversion; see
    `engine.machine.aside`. Conversions are bound by reading and writing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def encode(name: str, values: torch.Tensor, kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """Convert a tensor of any float type to the bytes of `kind`, a bounded part at a time.

    Returns: uint8[stored_size].

    Raises:
        ModelFileError: F16 cannot hold a value; the message names the tensor.
    """
    rows = values.reshape(-1, values.shape[-1])
    out = np.empty((rows.shape[0], stored_size(rows.shape[1:], kind)), np.uint8)
    step = max(1, _CHUNK // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        part = rows[start : start + step].float()
        if kind is GGMLQuantizationType.F16:
            _check_f16(name, part)
        out[start : start + step] = quantize(part.numpy(), kind).view(np.uint8)
    return out.reshape(-1)


def _check_f16(name: str, part: torch.Tensor) -> None:
    largest = float(part.abs().max())
    if not largest <= _F16_MAX:
        raise ModelFileError(
            f"the tensor `{name}` holds the value {largest:g}, which F16 cannot; the types `f32`"
            " and `bf16` can"
        )


__all__ = ["TYPES", "encode", "parse_type", "stored_size", "tensor_type"]
