"""Tiny codec specs and random weights loud enough to test with."""

from __future__ import annotations

import math

import torch
from torch import nn

from engine.codec.decoder import CodecDecoder
from engine.config import CodecSpec, DecoderSpec


def transformer_spec(**changes: float) -> DecoderSpec:
    widths = {
        "hidden": 24,
        "ffn": 40,
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "context": 8000,
    }
    return DecoderSpec(**{**widths, **changes})


def codec_spec(
    rates: tuple[int, ...],
    ratios: tuple[int, ...],
    *,
    window: int,
    transformer: DecoderSpec,
    latent_dim: int,
    decoder_dim: int,
    quantizers: int,
    semantic_quantizers: int = 1,
) -> CodecSpec:
    return CodecSpec(
        sample_rate=24000,
        samples_per_frame=math.prod(rates + ratios),
        quantizers=quantizers,
        semantic_quantizers=semantic_quantizers,
        codebook_size=32,
        codebook_dim=16,
        codebook_width=8,
        latent_dim=latent_dim,
        decoder_dim=decoder_dim,
        transformer=transformer,
        window=window,
        upsample_rates=rates,
        upsampling_ratios=ratios,
    )


PUBLISHED_RATES = codec_spec(
    (8, 5, 4, 3),
    (2, 2),
    window=72,
    transformer=transformer_spec(heads=4, kv_heads=4),
    latent_dim=24,
    decoder_dim=32,
    quantizers=16,
)
ODD_RATES = codec_spec(
    (5, 4, 3),
    (2,),
    window=9,
    transformer=transformer_spec(hidden=20, heads=6, kv_heads=2, head_dim=10, layers=3),
    latent_dim=18,
    decoder_dim=36,
    quantizers=4,
    semantic_quantizers=2,
)
SPECS = {"published-rates": PUBLISHED_RATES, "odd-rates": ODD_RATES}


@torch.no_grad()
def randomise(module: nn.Module, seed: int) -> nn.Module:
    """Variance-keeping random weights; norms near 1, scales large enough to matter."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        parameter.normal_(generator=generator)
        if name.endswith("norm.weight"):
            parameter.mul_(0.1).add_(1)
        elif name.rsplit(".", 1)[-1] in ("gamma", "attn_scale", "ffn_scale"):
            parameter.mul_(0.1).add_(0.5)
        elif parameter.dim() == 1:
            parameter.mul_(0.1)
        elif not name.endswith("codebook"):
            # A residual branch as loud as its path would double the signal at every unit, and sin
            # of a loud signal turns rounding into audible differences.
            gain = 0.3 if "conv2" in name else 1.0
            parameter.mul_(gain / math.sqrt(parameter[0].numel()))
    return module


def random_codes(spec: CodecSpec, batch: int, frames: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, spec.quantizers, frames)
    return torch.randint(spec.codebook_size, shape, generator=generator)


@torch.no_grad()
def random_decoder(spec: CodecSpec, seed: int = 0) -> CodecDecoder:
    """A decoder whose output has a standard deviation of 0.2: neither silent nor clipped."""
    decoder = CodecDecoder(spec)
    randomise(decoder, seed)
    last = decoder.dec[-1].conv
    for _ in range(3):  # the clamp hides how loud it was at first
        loudness = decoder(random_codes(spec, 1, 40, seed)).std()
        last.weight.mul_(0.2 / loudness)
        last.bias.zero_()
    return decoder
