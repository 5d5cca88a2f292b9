"""The speaker encoder: what a voice sounds like, as one vector.

Mirrors Qwen3TTSSpeakerEncoder of the official core/models/modeling_qwen3_tts.py, an ECAPA-TDNN
(Desplanques et al. 2020). Attribute names are the GGUF tensor names without their `spk_enc.`
prefix. Signals are [B, C, T]; every convolution keeps T, with reflection at the ends.

    mel [B, mels, T] -> conv0 -> blk.1 to blk.n [B, channels, T], each heard by the next
    -> mfa over all blocks side by side -> asp: attentive mean and deviation over T -> fc [B, width]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.config import SpeakerEncoderSpec
from engine.pieces import Steps, run_through

VARIANCE_FLOOR = 1e-12
# Mel frames a pointwise convolution takes in one piece: a few hundredths of a second of one core.
FRAMES = 200
CHANNELS = 256  # whose statistics are taken in one piece


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
        return run_through(self.steps(mel))

    def steps(self, mel: Tensor) -> Steps[Tensor]:
        """The same in pieces; what they come to does not depend on what is done between them."""
        x = F.relu(self.conv0(mel))
        heard: list[Tensor] = []
        for block in self.blk.values():
            assert isinstance(block, _Block)
            yield
            x = yield from block.steps(x)
            heard.append(x)
        x = yield from _in_parts(lambda x: F.relu(self.mfa(x)), torch.cat(heard, dim=1))
        pooled = yield from self.asp.steps(x)
        out: Tensor = self.fc(pooled)
        return out.squeeze(-1)


def _conv(channels: int, out_channels: int, kernel: int = 1, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(
        channels, out_channels, kernel, dilation=dilation, padding="same", padding_mode="reflect"
    )


def _in_parts(pointwise: Callable[[Tensor], Tensor], x: Tensor) -> Steps[Tensor]:
    """What looks at no neighbours, over a part of the columns after the other."""
    parts = []
    for part in torch.split(x, FRAMES, dim=2):
        parts.append(pointwise(part))
        yield
    return torch.cat(parts, dim=2)


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

    def steps(self, x: Tensor) -> Steps[Tensor]:
        h = yield from _in_parts(lambda x: F.relu(self.tdnn1(x)), x)
        h = yield from self._res2net(h)
        h = yield from _in_parts(lambda h: F.relu(self.tdnn2(h)), h)
        out: Tensor = x + self.se(h)
        return out

    def _res2net(self, x: Tensor) -> Steps[Tensor]:
        parts = list(x.chunk(self.scale, dim=1))
        for index, conv in enumerate(self.res2net, start=1):
            # The first part is passed on as it is and enters no convolution.
            entered = parts[index] if index == 1 else parts[index] + parts[index - 1]
            parts[index] = F.relu(conv(entered))
            yield
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

    def steps(self, x: Tensor) -> Steps[Tensor]:
        everywhere = yield from _statistics(x, torch.zeros_like(x[:1, :1]).expand_as(x))

        def score(part: Tensor) -> Tensor:
            context = torch.cat((part, everywhere.expand(-1, -1, part.shape[2])), dim=1)
            scores: Tensor = self.conv(torch.tanh(F.relu(self.tdnn(context))))
            return scores

        scores = yield from _in_parts(score, x)
        return (yield from _statistics(x, scores))


def _statistics(x: Tensor, scores: Tensor) -> Steps[Tensor]:
    """Mean and deviation over time, one above the other [B, 2 C, 1]; scores say what weighs."""
    means, deviations = [], []
    parts = (torch.split(each, CHANNELS, dim=1) for each in (x, scores))
    for part, score in zip(*parts, strict=True):
        weights = F.softmax(score, dim=2)
        mean = (weights * part).sum(2, keepdim=True)
        variance = (weights * (part - mean).square()).sum(2, keepdim=True)
        means.append(mean)
        deviations.append(variance.clamp(min=VARIANCE_FLOOR).sqrt())
        yield
    return torch.cat((*means, *deviations), dim=1)


__all__ = ["SpeakerEncoder"]
