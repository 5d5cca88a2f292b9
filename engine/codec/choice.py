"""Which of several ways to decode is taken: the first that sounds like the plain decoder.

Trained weights may need what random ones do not: where a snake's frequency is high, rounding its
input to BF16 leaves noise alone. So a way is heard before it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from engine.codec.decoder import CodecDecoder, Decodes

log = logging.getLogger("framecast.engine")

LEAST_DB = 20.0  # of the sound above its difference from the plain decoder's
_FRAMES = 4


class Way(NamedTuple):
    """A way to decode and its name; `make` may use the plain decoder up."""

    name: str
    make: Callable[[CodecDecoder], Decodes]


@torch.inference_mode()
def choose_way(read: Callable[[], CodecDecoder], ways: Sequence[Way]) -> Decodes:
    """The first of `ways` that is within `LEAST_DB` of the plain decoder, or the last of them.

    Args:
        read: makes the plain F32 decoder anew, on its device.
        ways: by preference. If there is one alone it is taken, and a warning says what it loses.
    """
    decoder = read()
    chance = torch.Generator().manual_seed(0)
    shape = (1, decoder.spec.quantizers, _FRAMES)
    codes = torch.randint(decoder.spec.codebook_size, shape, generator=chance).to(decoder.device)
    wanted = decoder(codes).float()
    for way in ways:
        made = way.make(decoder)
        level = _level(made(codes).float(), wanted)
        if level >= LEAST_DB:
            break
        log.warning("codec in %s is far from the plain one: %.0f dB", way.name, level)
        decoder = read() if way is not ways[-1] else decoder
    log.info("codec in %s", way.name)
    return made


def _level(got: torch.Tensor, wanted: torch.Tensor) -> float:
    noise = (got - wanted).square().sum().clamp_min(1e-20)
    return float(10 * torch.log10(wanted.square().sum() / noise))


__all__ = ["LEAST_DB", "Way", "choose_way"]
