"""The voice files of the C++ peer (qwentts.cpp): a vector as `.spk`, codes as `.rvq`. No header.

.spk   F32[width], little-endian
.rvq   int[groups, frames] row after row, each code in as few bits as the codebook needs (11 for
       2,048 codes), least significant bit first; the last byte is filled up with zeros
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidRequest

GROUPS = 16
CODEBOOK_SIZE = 2048


def pack_spk(embedding: npt.NDArray[np.float32]) -> bytes:
    """The bytes of a `.spk` file of F32[width]."""
    return embedding.astype("<f4").tobytes()


def unpack_spk(data: bytes, width: int | None = None) -> npt.NDArray[np.float32]:
    """F32[width] of a `.spk` file.

    Raises:
        InvalidRequest: of `spk`: no whole number of values, not `width` of them, not finite.
    """
    if not data or len(data) % 4:
        _refuse("spk", f"must hold 4 bytes per value, got {len(data)} bytes")
    if width is not None and len(data) != 4 * width:
        _refuse("spk", f"holds {len(data) // 4} values; the model's voices have {width}")
    vector = np.frombuffer(data, "<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        _refuse("spk", "holds values that are not finite numbers")
    return vector


def pack_rvq(codes: npt.NDArray[Any], codebook_size: int = CODEBOOK_SIZE) -> bytes:
    """The bytes of a `.rvq` file of int[groups, frames].

    Raises:
        InvalidRequest: of `rvq`: another shape, or a code the codebook does not have.
    """
    if codes.ndim != 2 or codes.size == 0 or codes.dtype.kind not in "iu":
        _refuse("rvq", f"must be integers [groups, frames], got {codes.dtype}{list(codes.shape)}")
    _check_range(codes, codebook_size)
    each = np.arange(_bits(codebook_size))
    bits = (codes.reshape(-1, 1) >> each) & 1
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()


def unpack_rvq(
    data: bytes, groups: int = GROUPS, codebook_size: int = CODEBOOK_SIZE
) -> npt.NDArray[np.int64]:
    """int64[groups, frames] of a `.rvq` file; its length says how many frames there are.

    Raises:
        InvalidRequest: of `rvq`: no whole number of frames, or a code the codebook does not have.
    """
    width = _bits(codebook_size)
    frames, left = divmod(8 * len(data), groups * width)
    # Frames need not end on a byte, but what is left over is less than one.
    if not frames or left >= 8:
        _refuse("rvq", f"holds {len(data)} bytes, no frames of {groups} codes of {width} bits")
    count = groups * frames
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width, bitorder="little")
    codes = bits.reshape(count, width).astype(np.int64) @ (1 << np.arange(width))
    _check_range(codes, codebook_size)
    return codes.reshape(groups, frames)


def _bits(codebook_size: int) -> int:
    return (codebook_size - 1).bit_length()


def _check_range(codes: npt.NDArray[Any], codebook_size: int) -> None:
    if codes.min() < 0 or codes.max() >= codebook_size:
        _refuse("rvq", f"holds codes outside 0..{codebook_size - 1}")


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidRequest(f"`{field}` {problem}", field)


__all__ = ["pack_rvq", "pack_spk", "unpack_rvq", "unpack_spk"]
