"""The codec decoder: code frames in, samples out, offline or continuing a carried state.

Mirrors Qwen3TTSTokenizerV2Decoder of the official
core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py. Attribute names are the GGUF tensor names
without their `tok_dec.` prefix, so that `state_dict()` is the file's table of contents.

    codes [B, K, T] -> vq_first + vq_rest [B, codebook_dim, T] -> pre_conv [B, latent_dim, T]
    -> pre_tfm (same shape) -> upsample.N [B, latent_dim, T*ratios]
    -> dec.0 [B, decoder_dim, .] -> dec.1 to dec.n (halve the channels, raise the rate)
    -> dec.n+1 (snake) -> dec.n+2 [B, 1, T*samples_per_frame]

Every layer is causal. Modules hold no state: see engine/codec/state.py.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.codec.conv import CausalConv1d, CausalConvTranspose1d
from engine.codec.quantizer import ResidualQuantizer, check_codes
from engine.codec.state import CodecState, init_state, name_states
from engine.codec.transformer import Transformer
from engine.config import CodecSpec

# Facts of the architecture that no file carries.
PRE_KERNEL = 3
KERNEL = 7
DILATIONS = (1, 3, 9)
NORM_EPS = 1e-6
SNAKE_EPS = 1e-9


class Decodes(Protocol):
    """A codec decoder, plain or packed."""

    spec: CodecSpec

    @property
    def device(self) -> torch.device:
        """Where codes and states lie."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of weights."""
        ...

    def fresh_state(self, lanes: int, *, nan_fill: bool = False) -> CodecState:
        """A state of `lanes` lanes at their start; NaN fills what position masks."""
        ...

    def __call__(self, codes: Tensor, state: CodecState | None = None) -> Tensor:
        """Codes int64[B, K, T] to samples [B, T*samples_per_frame]."""
        ...


class Snake(nn.Module):
    """x + sin(a x)^2 / b per channel, with a = exp(alpha) and b = exp(beta)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        wave = torch.sin(x * self.alpha.exp()[:, None])
        gain = 1.0 / (self.beta.exp() + SNAKE_EPS)
        return torch.addcmul(x, gain[:, None], wave.square())


class UpsampleStage(nn.Module):
    """A transposed convolution and a ConvNeXt block: [B, C, T] to [B, C, T*ratio]."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        self.conv = CausalConvTranspose1d(channels, channels, ratio, ratio)
        self.dwconv = CausalConv1d(channels, channels, KERNEL, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        x = self.conv(x, state)
        h = self.norm(self.dwconv(x, state).transpose(1, 2))
        h = self.pwconv2(F.gelu(self.pwconv1(h))) * self.gamma
        out: Tensor = x + h.transpose(1, 2)
        return out


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a residual path: [B, C, T] to the same."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.act1 = Snake(channels)
        self.conv1 = CausalConv1d(channels, channels, KERNEL, dilation=dilation)
        self.act2 = Snake(channels)
        self.conv2 = CausalConv1d(channels, channels, 1)

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        h = self.conv1(self.act1(x), state)
        out: Tensor = x + self.conv2(self.act2(h), state)
        return out


class UpBlock(nn.Module):
    """One step of the DAC chain: [B, C_in, T] to [B, C_out, T*rate]."""

    def __init__(self, channels: int, out_channels: int, rate: int) -> None:
        super().__init__()
        self.snake = Snake(channels)
        self.conv_t = CausalConvTranspose1d(channels, out_channels, 2 * rate, rate)
        self.res = nn.ModuleList(ResidualUnit(out_channels, d) for d in DILATIONS)

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        x = self.conv_t(self.snake(x), state)
        for unit in self.res:
            x = unit(x, state)
        return x


class ConvStage(nn.Module):
    """The chain's first or last convolution, under the file's name for it."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = CausalConv1d(channels, out_channels, KERNEL)

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        y: Tensor = self.conv(x, state)
        return y


class SnakeStage(nn.Module):
    """The chain's last activation, under the file's name for it; it carries nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.snake = Snake(channels)

    def forward(self, x: Tensor, _state: CodecState | None = None) -> Tensor:
        y: Tensor = self.snake(x)
        return y


class CodecDecoder(nn.Module):
    """Turns codes into sound.

    Args:
        spec: widths and rates.

    Raises:
        ValueError: the rates do not multiply to `samples_per_frame`.
    """

    def __init__(self, spec: CodecSpec) -> None:
        super().__init__()
        rate = math.prod(spec.upsample_rates + spec.upsampling_ratios)
        if rate != spec.samples_per_frame:
            raise ValueError(
                f"`samples_per_frame` is {spec.samples_per_frame}, but the upsampling rates"
                f" {spec.upsampling_ratios} and {spec.upsample_rates} make {rate}"
            )
        self.spec = spec
        self.vq_first = ResidualQuantizer(spec, spec.semantic_quantizers)
        self.vq_rest = ResidualQuantizer(spec, spec.quantizers - spec.semantic_quantizers)
        self.pre_conv = CausalConv1d(spec.codebook_dim, spec.latent_dim, PRE_KERNEL)
        self.pre_tfm = Transformer(spec.latent_dim, spec.transformer, spec.window)
        self.upsample = nn.ModuleList(
            UpsampleStage(spec.latent_dim, ratio) for ratio in spec.upsampling_ratios
        )
        self.dec = nn.ModuleList(_dac_chain(spec))
        name_states(self)

    @property
    def device(self) -> torch.device:
        return self.pre_conv.weight.device

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parameters())

    def fresh_state(self, lanes: int, *, nan_fill: bool = False) -> CodecState:
        """A fresh state that suits the weights."""
        dtype = self.pre_conv.weight.dtype
        return self.init_state(lanes, device=self.device, dtype=dtype, nan_fill=nan_fill)

    def init_state(
        self,
        lanes: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype,
        nan_fill: bool = False,
    ) -> CodecState:
        """A fresh state of `lanes` lanes; `dtype` is that of the decoder's weights."""
        return init_state(self, lanes, device=device, dtype=dtype, nan_fill=nan_fill)

    def forward(self, codes: Tensor, state: CodecState | None = None) -> Tensor:
        """Decode codes int64[B, K, T] to samples [B, T*samples_per_frame] in [-1, 1].

        Args:
            codes: T >= 1 frames of all K quantizers.
            state: B lanes to continue, updated in place; None decodes from the start.

        Raises:
            ValueError: `codes` or `state` has another shape.
        """
        self._check_shapes(codes, state)
        semantic = self.spec.semantic_quantizers
        x = self.vq_first(codes[:, :semantic]) + self.vq_rest(codes[:, semantic:])
        x = self.pre_tfm(self.pre_conv(x, state), state)
        for stage in (*self.upsample, *self.dec):
            x = stage(x, state)
        samples: Tensor = x.squeeze(1).clamp(-1, 1)
        return samples

    def _check_shapes(self, codes: Tensor, state: CodecState | None) -> None:
        if codes.dim() != 3 or codes.shape[1] != self.spec.quantizers or codes.shape[2] == 0:
            raise ValueError(
                f"`codes` must be [batch, {self.spec.quantizers}, frames >= 1],"
                f" got {list(codes.shape)}"
            )
        if state is not None and state.lanes != codes.shape[0]:
            raise ValueError(f"`state` has {state.lanes} lanes for {codes.shape[0]} rows of codes")


def _dac_chain(spec: CodecSpec) -> list[nn.Module]:
    widths = [spec.decoder_dim // 2**i for i in range(len(spec.upsample_rates) + 1)]
    chain: list[nn.Module] = [ConvStage(spec.latent_dim, widths[0])]
    for index, rate in enumerate(spec.upsample_rates):
        chain.append(UpBlock(widths[index], widths[index + 1], rate))
    return [*chain, SnakeStage(widths[-1]), ConvStage(widths[-1], 1)]


def decode_lanes(decoder: Decodes, state: CodecState, lanes: Tensor, codes: Tensor) -> Tensor:
    """Decode codes int64[n, K, T] on the lanes int64[n]; all other lanes stay bit-identical.

    Returns:
        Samples [n, T*samples_per_frame] in [-1, 1].

    Raises:
        ValueError: a shape is wrong or (on the CPU) a code is out of range; no lane has changed.
    """
    check_codes(codes, decoder.spec.codebook_size)
    part = state.select(lanes)
    samples: Tensor = decoder(codes, part)
    state.update(lanes, part)
    return samples


__all__ = ["CodecDecoder", "Decodes", "Snake", "decode_lanes"]
