"""Causal convolutions of the codec decoder, offline and streamed.

Mirrors Qwen3TTSTokenizerV2CausalConvNet and ...CausalTransConvNet of the official
core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py. Signals are [B, C, T].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.codec.state import CodecState, Stateful, extend


class CausalConv1d(Stateful, nn.Conv1d):
    """A stride-1 convolution of [B, C_in, T] to [B, C_out, T] that sees no future.

    Weight [C_out, C_in/groups, kernel]; carries its last (kernel-1)*dilation input columns.
    """

    def __init__(
        self, channels: int, out_channels: int, kernel: int, *, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__(channels, out_channels, kernel, dilation=dilation, groups=groups)
        self.context = (kernel - 1) * dilation

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"": (self.in_channels, self.context)} if self.context else {}

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        if self.context:
            if state is None:
                x = F.pad(x, (self.context, 0))
            else:
                x = extend(state.tensors[self.path], x, -1)
        return super().forward(x)


class CausalConvTranspose1d(Stateful):
    """A transposed convolution of [B, C_in, T] to [B, C_out, T*stride] that sees no future.

    Weight [C_in, C_out, kernel] with kernel >= stride; carries the kernel-stride columns that
    the next input columns overlap.
    """

    def __init__(self, channels: int, out_channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, out_channels, kernel))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.stride = stride
        self.overlap = kernel - stride

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"": (self.weight.shape[1], self.overlap)} if self.overlap else {}

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        # The bias waits until the overlaps are summed: inside the tail it would be added twice.
        y = F.conv_transpose1d(x, self.weight, stride=self.stride)
        length = x.shape[-1] * self.stride
        if state is not None and self.overlap:
            tail = state.tensors[self.path]
            y = y + F.pad(tail, (0, length))
            tail.copy_(y[..., length:].detach())
        return y[..., :length] + self.bias[:, None]


__all__ = ["CausalConv1d", "CausalConvTranspose1d"]
