"""Step 3, codec: the engine's decoder learns to speak the teacher's codes.

`outline` trains everything below 75 Hz (codebooks, transformer, first upsampling stages) against
log-mels through a throw-away head: cheap, and it teaches pronunciation. `wave` trains the whole
decoder on short pieces against spectra at four resolutions. `polish` adds discriminators.
Each step saves `codec.pt` once a minute and goes on from it.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from shape import codec_spec
from teacher import FRAME, HOP
from torch import Tensor, nn

from engine.codec import conv
from engine.codec.decoder import CodecDecoder

MELS = 80
WARM = 1  # frames of context before a piece that is scored


# Convolutions over images in channels-last order are several times faster on CPUs.


def _conv_forward(self: conv.CausalConv1d, x: Tensor, state: None = None) -> Tensor:
    x = F.pad(x.unsqueeze(2), (self.context, 0, 0, 0))
    dilation = (1, self.dilation[0])
    x = F.conv2d(x, self.weight.unsqueeze(2), self.bias, dilation=dilation, groups=self.groups)
    return x.squeeze(2)


def _transposed_forward(self: conv.CausalConvTranspose1d, x: Tensor, state: None = None) -> Tensor:
    if self.overlap:
        y = F.conv_transpose2d(x.unsqueeze(2), self.weight.unsqueeze(2), stride=(1, self.stride))
        return y.squeeze(2)[..., : x.shape[-1] * self.stride] + self.bias[:, None]
    # Without overlap it is one product of matrices.
    channels, out, taps = self.weight.shape
    y = x.transpose(1, 2) @ self.weight.permute(0, 2, 1).reshape(channels, taps * out)
    return y.reshape(len(x), -1, out).transpose(1, 2) + self.bias[:, None]


def speed_up() -> None:
    """Training only: offline forwards of the engine's layers, replaced by faster equals."""
    conv.CausalConv1d.forward = _conv_forward  # type: ignore[assignment, method-assign]
    conv.CausalConvTranspose1d.forward = _transposed_forward  # type: ignore[assignment, method-assign]


def synthesis(bins: int) -> Tensor:
    """The inverse MDCT with a sine window as transposed-convolution taps [bins, 2 * bins]."""
    n, k = torch.arange(2 * bins) + 0.5, torch.arange(bins)[:, None] + 0.5
    window = torch.sin(math.pi * n / (2 * bins))
    return window * torch.cos(math.pi / bins * (n + bins / 2) * k) * math.sqrt(2 / bins)


class Voice(nn.Module):
    """The decoder and the head that reads log-mels off its 75 Hz features.

    The decoder is set up as a transform codec: everything up to its first wave convolution
    predicts MDCT coefficients, 64 for each 64 samples; the one upsampling block begins as the
    inverse transform into its first channel, and all behind it as the identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decoder = CodecDecoder(codec_spec())
        self.head = nn.Linear(self.decoder.spec.latent_dim, MELS)
        for name, value in self.decoder.named_parameters():
            if name.endswith((".gamma", "_scale")):
                nn.init.constant_(value, 0.3)
        _, block, snake, last = self.decoder.dec
        with torch.no_grad():
            for part in (block, snake, last):
                for name, value in part.named_parameters():
                    # A snake with a huge beta is the identity, a unit without output too.
                    value.fill_(20 if name.endswith("beta") else 0)
            block.conv_t.weight[:, 0] = synthesis(self.decoder.spec.decoder_dim)
            last.conv.weight[0, 0, -1] = 1
            self.decoder.dec[0].conv.weight.mul_(0.3)

    def features(self, codes: Tensor) -> Tensor:
        """codes int64[B, K, T] -> [B, C, 6T]."""
        d = self.decoder
        x = d.vq_first(codes[:, :1]) + d.vq_rest(codes[:, 1:])
        x = d.pre_tfm(d.pre_conv(x))
        out: Tensor = d.upsample[1](d.upsample[0](x))
        return out

    def mel(self, features: Tensor) -> Tensor:
        out: Tensor = self.head(features.transpose(1, 2)).transpose(1, 2)
        return out

    def wave(self, features: Tensor) -> Tensor:
        """Features [B, C, 6T] -> samples, past all that is still the identity."""
        for stage in self.decoder.upsample[2:]:
            features = stage(features)
        block = self.decoder.dec[1]
        x = self.decoder.dec[0](features).unsqueeze(2)
        y = F.conv_transpose2d(
            x, block.conv_t.weight[:, :1].unsqueeze(2), stride=(1, block.conv_t.stride)
        )
        return y[:, 0, 0, : x.shape[-1] * block.conv_t.stride]


# Spectra


def mel_bank(fft: int, bands: int) -> Tensor:
    """Triangular filters [bands, fft // 2 + 1] on the mel scale up to 12 kHz."""
    top = 2595 * math.log10(1 + 12000 / 700)
    edges = torch.linspace(0, top, bands + 2)
    edges = 700 * (10 ** (edges / 2595) - 1)
    hertz = torch.linspace(0, 12000, fft // 2 + 1)
    rise = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rise, fall).clamp(min=0)


RESOLUTIONS = ((1024, 80), (512, 48), (256, 24))
BANKS = {fft: mel_bank(fft, bands) for fft, bands in RESOLUTIONS}
WINDOWS = {fft: torch.hann_window(fft) for fft, _ in RESOLUTIONS}


def log_mel(wave: Tensor) -> Tensor:
    """[B, n * HOP] -> [B, MELS, n], frame k centred on its own hop."""
    padded = F.pad(wave, (512 - HOP // 2, 512 - HOP // 2))
    frames = padded.unfold(1, 1024, HOP)
    spectrum = torch.fft.rfft(frames * WINDOWS[1024]).abs()
    return (spectrum @ BANKS[1024].T).clamp(min=1e-4).log().transpose(1, 2)


def spectral_loss(got: Tensor, wanted: Tensor) -> Tensor:
    """Distance of magnitudes at several resolutions, on mel and linear scales."""
    total = torch.zeros(())
    for fft, _ in RESOLUTIONS:
        a, b = (_magnitude(x, fft) for x in (got, wanted))
        mel_a, mel_b = ((BANKS[fft] @ x).clamp(min=1e-4).log() for x in (a, b))
        total = total + F.l1_loss(mel_a, mel_b) + 0.3 * F.l1_loss(a, b) / (b.mean() + 1e-3)
        total = total + 0.15 * F.l1_loss(a.clamp(min=1e-3).log(), b.clamp(min=1e-3).log())
    return total / len(RESOLUTIONS)


def _magnitude(wave: Tensor, fft: int) -> Tensor:
    spectrum = torch.stft(wave, fft, fft // 4, window=WINDOWS[fft], return_complex=True)
    return torch.view_as_real(spectrum).square().sum(-1).add(1e-9).sqrt()


# Data


class Pieces:
    """Random stretches of the rendered utterances; new shards are picked up as they appear."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.looked = folder, set[str](), 0.0
        self.items: list[tuple[Tensor, np.ndarray]] = []
        self.refresh()

    def refresh(self) -> None:
        self.looked = time.time()
        for path in sorted(self.folder.glob("[0-9]*.npz")):
            if path.name in self.seen:
                continue
            self.seen.add(path.name)
            with np.load(path) as file:
                for i in range(len(file.files) // 2):
                    rows = torch.from_numpy(file[f"codes{i}"].astype(np.int64))
                    self.items.append((rows, file[f"wave{i}"]))

    def batch(self, size: int, frames: int) -> tuple[Tensor, Tensor]:
        """codes [B, K, frames] and samples [B, frames * FRAME]; short ones end in silence."""
        if time.time() - self.looked > 60:
            self.refresh()
        codes, waves = [], []
        for rows, wave in random.choices(self.items, k=size):
            start = random.randint(min(0, len(rows) - frames), max(0, len(rows) - frames))
            start = max(0, start) if random.random() < 0.8 else 0
            part, sound = rows[start : start + frames], wave[start * FRAME :][: frames * FRAME]
            lack = frames - len(part)
            rest = torch.zeros(lack, rows.shape[1], dtype=torch.int64)
            rest[:, -1] = rows[0, -1]
            codes.append(torch.cat([part, rest]).T)
            waves.append(np.pad(sound, (0, lack * FRAME)).astype(np.float32) / 32768)
        return torch.stack(codes), torch.from_numpy(np.stack(waves))


# Training


def rate(passed: float, step: int, peak: float) -> float:
    """Warm up over 100 steps, fall by a cosine to a twentieth over the time given."""
    return peak * min(1, (step + 1) / 50) * (0.525 + 0.475 * math.cos(math.pi * min(1, passed)))


class Clock:
    """Time budget, log and checkpoints of one training run."""

    def __init__(self, path: Path, seconds: float, **parts: Any) -> None:
        self.path, self.seconds, self.parts = path, seconds, parts
        self.began = self.saved = time.time()
        self.step, self.means = 0, dict[str, float]()

    @property
    def passed(self) -> float:
        return (time.time() - self.began) / self.seconds

    def tick(self, **values: float) -> None:
        self.step += 1
        for name, value in values.items():
            self.means[name] = 0.98 * self.means.get(name, value) + 0.02 * value
        if self.step % 25 == 0:
            shown = " ".join(f"{k} {v:.3f}" for k, v in self.means.items())
            print(f"{self.step} {time.time() - self.began:.0f} s {shown}", flush=True)
        if time.time() - self.saved > 60:
            self.save()

    def save(self) -> None:
        self.saved = time.time()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save(state, self.path.with_suffix(".tmp"))
        self.path.with_suffix(".tmp").rename(self.path)


def outline(voice: Voice, pieces: Pieces, clock: Clock, peak: float) -> None:
    used = [p for n, p in voice.named_parameters() if ".dec." not in n and "upsample.2" not in n]
    adam = torch.optim.AdamW(used, lr=peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    while clock.passed < 1:
        adam.param_groups[0]["lr"] = rate(clock.passed, clock.step, peak)
        codes, wave = pieces.batch(6, 24)
        loss = F.l1_loss(voice.mel(voice.features(codes)), log_mel(wave))
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(used, 1.0)
        adam.step()
        clock.tick(mel=loss.item())


def wave(voice: Voice, pieces: Pieces, clock: Clock, peak: float, *, first: bool) -> None:
    live = [p for n, p in voice.named_parameters() if ".dec." not in n or ".dec.0." in n]
    live.append(voice.decoder.dec[1].conv_t.weight)
    adam = torch.optim.AdamW(live, lr=peak, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    while clock.passed < 1:
        adam.param_groups[0]["lr"] = rate(clock.passed, clock.step, peak)
        codes, sound = pieces.batch(7, 15)
        features = voice.features(codes)
        coarse = F.l1_loss(voice.mel(features)[..., 6:], log_mel(sound)[..., 6:])
        got = voice.wave(features)[:, WARM * FRAME :]
        wanted = sound[:, WARM * FRAME :]
        # The mean waveform first: magnitudes in a wrong phase would stand in its way.
        phase = (got - wanted).square().mean() / wanted.square().mean()
        shape = torch.zeros(())
        if not first:
            shape = spectral_loss(got, wanted)
            phase = 0.5 * phase
        adam.zero_grad()
        (shape + phase + 2 * coarse).backward()
        nn.utils.clip_grad_norm_(live, 5.0)
        adam.step()
        clock.tick(shape=shape.item(), phase=phase.item(), mel=coarse.item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("outline", "phase", "wave"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    random.seed(time.time_ns())
    speed_up()
    voice, path = Voice(), args.work / "codec.pt"
    if path.exists():
        voice.load_state_dict(torch.load(path)["voice"])
    clock = Clock(path, args.minutes * 60, voice=voice)
    pieces = Pieces(args.work / "sound")
    if args.step == "outline":
        outline(voice, pieces, clock, args.rate)
    else:
        wave(voice, pieces, clock, args.rate, first=args.step == "phase")
    clock.save()


if __name__ == "__main__":
    main()
