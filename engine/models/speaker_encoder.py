"""The speaker encoder: what a voice sounds like, as one vector.

Mirrors Qwen3TTSSpeakerEncoder of the official core/models/modeling_qwen3_tts.py, an ECAPA-TDNN
(Desplanques et al. 2020). Attribute names are the GGUF tensor names without their `spk_enc.`
prefix. Signals are [B, C, T]; every convolution keeps T, with reflection at the ends.

    mel [B, mels, T] -> conv0 -> blk.1 to blk.n [B, channels, T], each heard by the next
    -> mfa over all blocks side by side -> asp: attentive mean and deviation over T -> fc [B, width]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.config import SpeakerEncoderSpec

VARIANCE_FLOOR = 1e-12


class SpeakerEncoder(nn.Module):
    """Log-mel F32[B, mels, T] (`engine.codec.mel.log_mel`) to vectors F32[B, width].

    T must exceed `spec.reach`, since a reflection cannot be longer than what it reflects.
    """

    def __init__(self, spec: SpeakerEncoderSpec) -> None:
        super().__init__()
        together = spec.blocks * spec.channels
        self.conv0 = _conv(spec.mels, spec.channels, spec.kernel)
        # Block n dilates by n + 1, which no file says.
        self.blk = nn.ModuleDict({str(n): _Block(spec, n + 1) for n in range(1, spec.blocks + 1)})
        self.mfa = _conv(together, together)
        self.asp = _AttentivePooling(together, spec.attention)
        self.fc = _conv(2 * together, spec.width)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.relu(self.conv0(mel))
        heard: list[Tensor] = []
        for block in self.blk.values():
            x = block(x)
            heard.append(x)
        pooled = self.asp(F.relu(self.mfa(torch.cat(heard, dim=1))))
        out: Tensor = self.fc(pooled)
        return out.squeeze(-1)


def _conv(channels: int, out_channels: int, kernel: int = 1, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(
        channels, out_channels, kernel, dilation=dilation, padding="same", padding_mode="reflect"
    )


class _Block(nn.Module):
    def __init__(self, spec: SpeakerEncoderSpec, dilation: int) -> None:
        super().__init__()
        part = spec.channels // spec.scale
        self.scale = spec.scale
        self.tdnn1 = _conv(spec.channels, spec.channels)
        self.res2net = nn.ModuleList(
            _conv(part, part, spec.block_kernel, dilation) for _ in range(spec.scale - 1)
        )
        self.tdnn2 = _conv(spec.channels, spec.channels)
        self.se = _SqueezeExcitation(spec.channels, spec.squeezed)

    def forward(self, x: Tensor) -> Tensor:
        h = self._res2net(F.relu(self.tdnn1(x)))
        out: Tensor = x + self.se(F.relu(self.tdnn2(h)))
        return out

    def _res2net(self, x: Tensor) -> Tensor:
        parts = list(x.chunk(self.scale, dim=1))
        for index, conv in enumerate(self.res2net, start=1):
            # The first part is passed on as it is and enters no convolution.
            entered = parts[index] if index == 1 else parts[index] + parts[index - 1]
            parts[index] = F.relu(conv(entered))
        return torch.cat(parts, dim=1)


class _SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, squeezed)
        self.conv2 = _conv(squeezed, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.conv2(F.relu(self.conv1(x.mean(dim=2, keepdim=True))))
        return x * torch.sigmoid(gate)


class _AttentivePooling(nn.Module):
    def __init__(self, channels: int, attention: int) -> None:
        super().__init__()
        self.tdnn = _conv(3 * channels, attention)
        self.conv = _conv(attention, channels)

    def forward(self, x: Tensor) -> Tensor:
        everywhere = _statistics(x, x.new_full((1, 1, x.shape[2]), 1.0 / x.shape[2]))
        context = torch.cat((x, everywhere.expand(-1, -1, x.shape[2])), dim=1)
        scores = self.conv(torch.tanh(F.relu(self.tdnn(context))))
        return _statistics(x, F.softmax(scores, dim=2))


def _statistics(x: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean and deviation over time, one above the other: [B, 2 C, 1]."""
    mean = (weights * x).sum(2, keepdim=True)
    variance = (weights * (x - mean).square()).sum(2, keepdim=True)
    return torch.cat((mean, variance.clamp(min=VARIANCE_FLOOR).sqrt()), dim=1)


__all__ = ["SpeakerEncoder"]
