"""The codec decoder in packed kernels: the fast twin of `CodecDecoder`.

Signals are [B, T, C] from end to end, the order in which oneDNN convolves fastest, as images of
height 1. A transposed convolution is a convolution to
stride times as many channels, which then stand one after the other in time. A snake is computed
where its convolution reads, behind the carried columns, so that nothing is joined.

    key                       dtype[shape]                        meaning
    position                  int64[L]                            frames a lane has consumed
    <convolution>             dtype[L, (taps-1)*dilation, C_in]   its last input columns
    <attention>.k, .v         F32[L, kv_heads, window-1, hd]      past K after RoPE, past V

`dtype` is BF16 or F32; the transformer's activations are F32 in both. A state is a `CodecState`
of these shapes: one made by `CodecDecoder` does not fit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.codec.conv import CausalConv1d, CausalConvTranspose1d
from engine.codec.decoder import (
    SNAKE_EPS,
    CodecDecoder,
    ConvStage,
    ResidualUnit,
    Snake,
    SnakeStage,
    UpBlock,
    UpsampleStage,
)
from engine.codec.state import CodecState
from engine.codec.transformer import Block
from engine.models.kernels import BFloat16, Float32, Kernel, module_nbytes

log = logging.getLogger("framecast.engine")

_HEAVY = 2_000_000  # values of a weight
_MANY = 250_000
_COLUMNS = 160  # a measured convolution makes so many, and one frame of the middle of the chain
_REPEATS = 5


# A weight F32[N, K], K a multiple of 32, and its bias, as a product of F32 rows
Native = Callable[[Tensor, Tensor | None], Kernel]


@dataclass(frozen=True, slots=True)
class How:
    """What the layers are packed as: `native` products for those whose weights are many and whose
    signals are short, `dtype` for all others."""

    dtype: torch.dtype
    native: Native | None = None

    def product(self, weight: Tensor, bias: Tensor | None) -> Kernel:
        if self.native and weight.numel() >= _MANY and weight.shape[1] % 32 == 0:
            return self.native(weight, bias)
        return BFloat16(weight, bias) if self.dtype is torch.bfloat16 else Float32(weight, bias)


class Activation(nn.Module):
    """A snake over [B, T, C] that writes into `out`."""

    frequency: Tensor
    gain: Tensor

    def __init__(self, snake: Snake, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("frequency", snake.alpha.exp().to(dtype))
        self.register_buffer("gain", (1.0 / (snake.beta.exp() + SNAKE_EPS)).to(dtype))

    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        torch.mul(x, self.frequency, out=out)
        out.sin_().square_()
        return torch.addcmul(x, out, self.gain, out=out)


class Convolution(nn.Module):
    """A causal stride-1 convolution of [B, T, C_in] to [B, T, C_out], after a snake if it has one.

    Where weights outweigh signals (and where there is one tap) it is a product of gathered columns
    with packed weights; elsewhere oneDNN orders the weights anew at every call, which costs little
    then. It can be given them in order, but the order it wants depends on the length, and the wrong
    one costs a hundred times what it saves.

    Args:
        key: of its carried columns.
        weight: F32[C_out, C_in/groups, taps].
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        key: str,
        weight: Tensor,
        bias: Tensor,
        how: How,
        *,
        dilation: int = 1,
        groups: int = 1,
        snake: Snake | None = None,
    ) -> None:
        super().__init__()
        self.key = key
        self.dtype = how.dtype
        self.channels = weight.shape[1] * groups
        self.taps, self.dilation, self.groups = weight.shape[2], dilation, groups
        self.context = (self.taps - 1) * dilation
        self.snake = None if snake is None else Activation(snake, how.dtype)
        self.product: Kernel | None = None
        if groups == 1 and (self.taps == 1 or weight.numel() >= _HEAVY):
            self.product = how.product(weight.permute(0, 2, 1).flatten(1), bias)
        else:
            image = weight.to(how.dtype).unsqueeze(2).contiguous(memory_format=torch.channels_last)
            self.register_buffer("weight", image)
            self.register_buffer("bias", bias.to(how.dtype))

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        joined = self._joined(x, state)
        if self.product is not None:
            made: Tensor = self.product(self._columns(joined, x.shape[1]))
            return made.to(self.dtype)
        image = joined.unsqueeze(1).permute(0, 3, 1, 2)  # channels-last; nothing is moved
        dilation = (1, self.dilation)
        out = F.conv2d(image, self.weight, self.bias, dilation=dilation, groups=self.groups)
        return out.permute(0, 2, 3, 1).squeeze(1)

    def _columns(self, joined: Tensor, length: int) -> Tensor:
        """All that each output sees, side by side: [B, T, taps*C_in]."""
        if self.taps == 1:
            return joined
        batch, every, channels = joined.shape
        shape = (batch, length, self.taps, channels)
        seen = joined.as_strided(shape, (every * channels, channels, self.dilation * channels, 1))
        return seen.flatten(2)

    def _joined(self, x: Tensor, state: CodecState) -> Tensor:
        """The carried columns and then x, or its snake; the last columns are carried on."""
        if not self.context and self.snake is None:
            return x
        batch, length, channels = x.shape
        both = x.new_empty(batch, self.context + length, channels)
        new = both[:, self.context :]
        if self.snake is None:
            new.copy_(x)
        else:
            self.snake(x, new)
        if self.context:
            past = state.tensors[self.key]
            both[:, : self.context] = past
            past.copy_(both[:, length:])
        return both


class Upsampling(nn.Module):
    """A transposed convolution of [B, T, C_in] to [B, T*stride, C_out]."""

    def __init__(
        self,
        key: str,
        conv: CausalConvTranspose1d,
        how: How,
        snake: Snake | None = None,
    ) -> None:
        super().__init__()
        self.stride = conv.stride
        weight, bias = spread(conv.weight, conv.stride), conv.bias.repeat(conv.stride)
        self.conv = Convolution(key, weight, bias, how, snake=snake)
        _forget(conv)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        wide: Tensor = self.conv(x, state)
        return wide.reshape(len(x), x.shape[1] * self.stride, -1)


def spread(weight: Tensor, stride: int) -> Tensor:
    """A transposed kernel [C_in, C_out, kernel] as that of a causal convolution whose outputs are
    the `stride` columns after each other: [stride*C_out, C_in, ceil(kernel/stride)]."""
    channels, out, kernel = weight.shape
    taps = math.ceil(kernel / stride)
    filled = F.pad(weight, (0, taps * stride - kernel)).view(channels, out, taps, stride)
    return filled.flip(2).permute(3, 1, 0, 2).reshape(stride * out, channels, taps)


class PackedUnit(nn.Module):
    """`ResidualUnit`."""

    def __init__(self, key: str, unit: ResidualUnit, how: How) -> None:
        super().__init__()
        self.conv1 = convolution(f"{key}.conv1", unit.conv1, how, unit.act1)
        self.conv2 = convolution(f"{key}.conv2", unit.conv2, how, unit.act2)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        out: Tensor = self.conv2(self.conv1(x, state), state)
        return out.add_(x)


class PackedBlock(nn.Module):
    """`UpBlock`."""

    def __init__(self, key: str, block: UpBlock, how: How) -> None:
        super().__init__()
        self.conv_t = Upsampling(f"{key}.conv_t", block.conv_t, how, block.snake)
        self.res = nn.ModuleList(
            PackedUnit(f"{key}.res.{index}", unit, how)  # type: ignore[arg-type]
            for index, unit in enumerate(block.res)
        )

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        x = self.conv_t(x, state)
        for unit in self.res:
            x = unit(x, state)
        return x


class PackedUpsample(nn.Module):
    """`UpsampleStage`; between its layers' products everything is F32."""

    def __init__(self, key: str, stage: UpsampleStage, how: How) -> None:
        super().__init__()
        self.conv = Upsampling(f"{key}.conv", stage.conv, how)
        self.dwconv = convolution(f"{key}.dwconv", stage.dwconv, how)
        self.norm, self.gamma = stage.norm, stage.gamma
        self.pwconv1 = linear(stage.pwconv1, how)
        self.pwconv2 = linear(stage.pwconv2, how)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        x = self.conv(x, state)
        h = self.norm(self.dwconv(x, state).float())
        h = self.pwconv2(F.gelu(self.pwconv1(h))).mul_(self.gamma)
        out: Tensor = h.add_(x).to(x.dtype)
        return out


class PackedDecoder(nn.Module):
    """Turns codes into sound, like the `CodecDecoder` it is made of.

    Args:
        decoder: F32; its weights are taken, one layer after the other, and it is of no use then.
        dtype: BF16 or F32.
        native: makes products of weights that take longer to read than to multiply.
    """

    def __init__(
        self, decoder: CodecDecoder, dtype: torch.dtype, native: Native | None = None
    ) -> None:
        super().__init__()
        self.spec = decoder.spec
        self.dtype = dtype
        how = How(dtype, native)
        self.vq_first, self.vq_rest = decoder.vq_first, decoder.vq_rest
        self.pre_conv = convolution("pre_conv", decoder.pre_conv, how)
        self.pre_tfm = decoder.pre_tfm
        for block in (self.pre_tfm, *self.pre_tfm.blk):
            _pack_linears(block, how)
        upsample = [
            PackedUpsample(f"upsample.{index}", stage, how)  # type: ignore[arg-type]
            for index, stage in enumerate(decoder.upsample)
        ]
        stages = [*upsample, *_chain(decoder.dec, how)]
        self.stages = nn.ModuleList(stages)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def nbytes(self) -> int:
        return module_nbytes(self)

    def fresh_state(self, lanes: int, *, nan_fill: bool = False) -> CodecState:
        """A fresh state of `lanes` lanes; NaN fills what position masks."""
        tensors: dict[str, Tensor] = {}
        fills: dict[str, float] = {}
        for part in self.modules():
            if isinstance(part, Convolution) and part.context:
                fills[part.key] = 0.0
                shape = (lanes, part.context, part.channels)
                tensors[part.key] = torch.zeros(shape, dtype=part.dtype)
            elif isinstance(part, Block):
                for suffix, each in part.state_shapes().items():
                    key = part.path + suffix
                    fills[key] = float("nan") if nan_fill else 0.0
                    tensors[key] = torch.full((lanes, *each), fills[key])
        return CodecState(tensors, torch.zeros(lanes, dtype=torch.int64), fills)

    def forward(self, codes: Tensor, state: CodecState | None = None) -> Tensor:
        """As `CodecDecoder.forward`, which checks shapes; samples F32[B, T*samples_per_frame]."""
        if state is None:
            state = self.fresh_state(len(codes))
        semantic = self.spec.semantic_quantizers
        x = self.vq_first(codes[:, :semantic]) + self.vq_rest(codes[:, semantic:])
        x = self.pre_conv(x.transpose(1, 2).to(self.dtype), state)
        x = self.pre_tfm(x.float().transpose(1, 2), state).transpose(1, 2).to(self.dtype)
        for stage in self.stages:
            x = stage(x, state)
        samples: Tensor = x.squeeze(-1).float().clamp_(-1, 1)
        return samples


def convolution(key: str, conv: CausalConv1d, how: How, snake: Snake | None = None) -> Convolution:
    """Pack a layer, whose weights are given up."""
    assert conv.bias is not None
    packed = Convolution(
        key,
        conv.weight,
        conv.bias,
        how,
        dilation=conv.dilation[0],
        groups=conv.groups,
        snake=snake,
    )
    _forget(conv)
    return packed


def linear(layer: nn.Linear, how: How) -> Kernel:
    """Pack a layer, whose weights are given up."""
    weight, bias = layer.weight, layer.bias
    packed = how.product(weight, bias)
    _forget(layer)
    return packed


def _chain(stages: nn.ModuleList, how: How) -> list[nn.Module]:
    """The DAC chain; the last convolution takes the snake before it."""
    chain: list[nn.Module] = []
    snake: Snake | None = None
    for index, stage in enumerate(stages):
        key = f"dec.{index}"
        if isinstance(stage, UpBlock):
            chain.append(PackedBlock(key, stage, how))
        elif isinstance(stage, ConvStage):
            chain.append(convolution(f"{key}.conv", stage.conv, how, snake))
        else:
            assert isinstance(stage, SnakeStage)
            snake = stage.snake
    return chain


def _pack_linears(module: nn.Module, how: How) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, linear(child, how))


def _forget(module: nn.Module) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(parameter.to("meta"), requires_grad=False))


@torch.inference_mode()
def choose_dtype(channels: int) -> torch.dtype:
    """The faster of BF16 and F32 at one convolution of `channels` channels."""
    spent = {dtype: _measure(channels, dtype) for dtype in (torch.float32, torch.bfloat16)}
    for dtype, seconds in spent.items():
        name = str(dtype).removeprefix("torch.")
        log.info("convolution in %s: %.3f ms", name, seconds * 1e3)
    return min(spent, key=lambda dtype: spent[dtype])


def _measure(channels: int, dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(channels, channels, 7, generator=generator) / (7 * channels) ** 0.5
    x = torch.randn(1, _COLUMNS, channels, generator=generator)
    conv = Convolution("", weight, torch.zeros(channels), How(dtype))
    given, best = x.to(dtype), math.inf
    for _ in range(_REPEATS):
        state = CodecState({"": given.new_zeros(1, conv.context, channels)}, torch.zeros(1), {})
        start = time.perf_counter()
        conv(given, state)
        best = min(best, time.perf_counter() - start)
    return best


__all__ = ["PackedDecoder", "choose_dtype", "spread"]
