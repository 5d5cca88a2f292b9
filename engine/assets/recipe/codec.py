"""Step 3, codec: the engine's decoder learns how loud each band of the teacher's voice is.

Everything else about the sound is fixed (see `vocoder.py`): what is learned are the codebooks, the
transformer, the two upsampling stages and the convolution that reads 128 gains off them.
First comes the outline: everything at 12.5 Hz against the teacher's rows, through a throw-away
head; it costs a sixth. `unfold` writes the head into the upsampling stages and trains the whole,
and `whole` goes on with that. Saves `codec.pt` once a minute and goes on from it.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import vocoder
from shape import codec_spec
from torch import Tensor, nn
from vocoder import BINS, CARRIED, HOPS, LEVEL, STEADY

from engine.codec import conv
from engine.codec.decoder import CodecDecoder

STEPS = 6  # rows of the teacher's gains in a frame
QUIET = 5e-3  # below this share of its loudest a band is as good as silent
VOLUME = 0.6
WARM = 2  # frames of context before what is scored of a piece that does not begin a line


def _transposed_forward(self: conv.CausalConvTranspose1d, x: Tensor, state: None = None) -> Tensor:
    """Without overlap it is one product of matrices, which is several times faster."""
    channels, out, taps = self.weight.shape
    y = x.transpose(1, 2) @ self.weight.permute(0, 2, 1).reshape(channels, taps * out)
    return y.reshape(len(x), -1, out).transpose(1, 2) + self.bias[:, None]


class Voice(nn.Module):
    """The decoder up to its upsampling stages, and the gains read off them.

    `scale` is the loudest a band gets in training, [2 * BINS]; gains are shares of it.
    """

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.decoder = CodecDecoder(codec_spec())
        for name, value in self.decoder.named_parameters():
            if name.endswith((".gamma", "_scale")):
                nn.init.constant_(value, 0.3)
            elif name.endswith("codebook"):
                nn.init.normal_(value, 0, 0.7)
            elif value.dim() > 1 and ".dec." not in name:
                fan = value[0].numel() if "conv.weight" not in name else len(value)
                nn.init.normal_(value, 0, fan**-0.5)
        width = self.decoder.spec.latent_dim - 2 * BINS
        self.gain = nn.Conv1d(width, 2 * BINS, 7)
        self.head = nn.Linear(self.decoder.spec.latent_dim - CARRIED, STEPS * 2 * BINS)
        self.register_buffer("scale", torch.ones(2 * BINS))
        self.fixed = vocoder.carry(self.decoder)

    def latents(self, codes: Tensor) -> Tensor:
        """codes int64[B, K, T] -> [B, C, T]."""
        d = self.decoder
        x = d.vq_first(codes[:, :1]) + d.vq_rest(codes[:, 1:])
        out: Tensor = d.pre_tfm(d.pre_conv(x))
        return out

    def outline(self, codes: Tensor) -> Tensor:
        """codes int64[B, K, T] -> logarithms of shares [B, 2 * BINS, STEPS * T]; see `gains`."""
        x = self.latents(codes)
        rows = self.head(x[:, CARRIED:].transpose(1, 2))
        out: Tensor = rows.view(len(rows), -1, 2 * BINS).transpose(1, 2)
        return out + loudness(x).log().repeat_interleave(STEPS, 2)

    def gains(self, codes: Tensor) -> Tensor:
        """codes int64[B, K, T] -> shares [B, 2 * BINS, HOPS * T], as heard after the norm."""
        x = self.latents(codes)
        loud = loudness(x)
        for stage in self.decoder.upsample:
            x = stage(x)
        shares: Tensor = self.gain(F.pad(x[:, 2 * BINS :], (6, 0)))
        return shares * loud.repeat_interleave(HOPS, 2)

    def unfold(self) -> None:
        """Write the head into the upsampling stages, followed by the exponential function."""
        with torch.enable_grad():
            fitted = exponential()
        with torch.no_grad():
            self._unfold(*fitted)

    def _unfold(self, slopes: Tensor, offsets: Tensor, heights: Tensor, rest: Tensor) -> None:
        first, second = self.decoder.upsample
        rows = self.head.weight.view(STEPS, 2 * BINS, -1)
        bias = self.head.bias.view(STEPS, 2 * BINS)
        places = ((torch.arange(HOPS) + 1) * STEPS / HOPS - 1).clamp(min=0)
        low = places.long()
        part, high = places - low, (low + 1).clamp(max=STEPS - 1)
        both = slice(2 * BINS, None)
        taps = rows[low] * (1 - part)[:, None, None] + rows[high] * part[:, None, None]
        first.conv.weight[CARRIED:, both] = taps.permute(2, 1, 0)
        shifts = bias[low] * (1 - part)[:, None] + bias[high] * part[:, None]
        first.conv.bias[both] = shifts.mean(0)
        first.conv.weight[STEADY, both] = (shifts - shifts.mean(0)).T / LEVEL
        second.conv.weight[both, both] = torch.eye(2 * BINS)[..., None]
        self.gain.weight.zero_()
        self.gain.weight[..., -1] = torch.eye(2 * BINS)
        self.gain.bias.zero_()
        for stage in (first, second):
            stage.dwconv.weight[both] = 0
            stage.dwconv.weight[both, :, -1] = 1
            stage.dwconv.bias[both] = 0
            stage.gamma[both] = 1
            nn.init.normal_(stage.pwconv1.weight, 0, 1e-3)
            nn.init.zeros_(stage.pwconv2.weight)
            nn.init.zeros_(stage.pwconv2.bias)
        count, spread = len(slopes), vocoder.STILL / math.sqrt(2) / (2 * BINS)
        for i in range(2 * BINS):
            units = slice(count * i, count * (i + 1))
            # The norm took the mean away; the constants' channels tell what it was.
            first.pwconv1.weight[units, 2 * BINS + i] += slopes * vocoder.STILL / math.sqrt(2)
            first.pwconv1.weight[units, : 2 * BINS] -= (slopes * spread)[:, None]
            first.pwconv1.bias[units] = offsets
            first.pwconv2.weight[2 * BINS + i, units] = heights
        first.pwconv2.bias[both] = rest

    def finished(self) -> CodecDecoder:
        """The whole decoder."""
        height = torch.ones(2 * BINS)
        height[:BINS] = vocoder.PULSE
        scale = VOLUME * self.scale * height
        vocoder.finish(self.decoder, self.gain.weight, self.gain.bias, scale)
        return self.decoder


def loudness(x: Tensor) -> Tensor:
    """What the norm made of pulses and hiss: [B, 1, T]."""
    return x[:, STEADY : STEADY + 1] / LEVEL


def exponential(units: int = 8) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """GELU units whose sum is exp(x) - x from silence to the loudest: slopes, offsets, heights.

    gelu(x) - gelu(-x) is x itself; the others are fitted to the exponential function.
    """
    x = torch.linspace(math.log(QUIET) - 1, 1.2, 800, dtype=torch.float64)
    knots = torch.linspace(-3.5, 0.6, units - 2, dtype=torch.float64)
    slopes, heights = torch.linspace(1, 2, units - 2, dtype=torch.float64), 0.3 * knots.exp()
    rest = torch.full((1,), QUIET, dtype=torch.float64)
    parts = [knots, slopes, heights, rest]
    for part in parts:
        part.requires_grad_()
    search = torch.optim.LBFGS(parts, max_iter=3000, line_search_fn="strong_wolfe")

    def miss() -> Tensor:
        search.zero_grad()
        got = F.gelu(slopes * (x[:, None] - knots)) @ heights + rest
        off = ((got - x.exp()) / (x.exp() + 2 * QUIET)).square().mean()
        off.backward()  # type: ignore[no-untyped-call]
        return off

    search.step(miss)  # type: ignore[no-untyped-call]
    ends = torch.tensor([1.0, -1.0])
    all_slopes = torch.cat([ends, slopes.detach().float()])
    offsets = torch.cat([ends * 0, (-slopes * knots).detach().float()])
    return all_slopes, offsets, torch.cat([-ends, heights.detach().float()]), rest.detach().float()


# Data


class Pieces:
    """Random stretches of the teacher's lines; new shards are picked up as they appear."""

    def __init__(self, folder: Path, held: int = 0) -> None:
        self.folder, self.seen, self.looked = folder, set[str](), 0.0
        self.items: list[tuple[Tensor, np.ndarray]] = []
        self.spared: list[tuple[Tensor, np.ndarray]] = []  # of the first shard, never trained on
        self.refresh()

    def refresh(self) -> None:
        self.looked = time.time()
        for path in sorted(self.folder.glob("[0-9]*.npz")):
            if path.name in self.seen:
                continue
            self.seen.add(path.name)
            with np.load(path) as file:
                for name in file.files:
                    if name.startswith("codes"):
                        rows = torch.from_numpy(file[name].astype(np.int64))
                        kept = self.spared if path.stem == "0000" else self.items
                        kept.append((rows, file[name.replace("codes", "gains")]))

    def loudest(self) -> Tensor:
        """The 99.5th percentile of each band [2 * BINS]."""
        rows = np.concatenate([g[::5] for _, g in random.sample(self.items, 200)]).astype(float)
        return torch.from_numpy(np.quantile(rows, 0.995, axis=0)).float().clamp(min=1e-5)

    def batch(self, size: int, frames: int) -> Batch:
        """codes [B, K, frames], gains [B, 2 * BINS, STEPS * frames + 1], and which pieces begin a
        line [B]; silence fills up."""
        if time.time() - self.looked > 60:
            self.refresh()
        return self._cut(random.choices(self.items, k=size), frames)

    def held_out(self) -> list[Batch]:
        """Batches that are the same every time."""
        state = random.getstate()
        random.seed(3)
        batches = [self._cut(random.choices(self.spared, k=8), 28) for _ in range(8)]
        random.setstate(state)
        return batches

    @staticmethod
    def _cut(chosen: list[tuple[Tensor, np.ndarray]], frames: int) -> Batch:
        codes, gains, begins = [], [], []
        for rows, loud in chosen:
            start = random.randint(min(0, len(rows) - frames), max(0, len(rows) - frames))
            start = max(0, start) if random.random() < 0.8 else 0
            begins.append(start == 0)
            part = rows[start : start + frames]
            lack = frames - len(part)
            rest = torch.zeros(lack, rows.shape[1], dtype=torch.int64)
            rest[:, -1] = rows[0, -1]
            # The first code tells where in the text the voice is; no sound depends on it.
            codes.append(F.pad(torch.cat([part, rest]).T, (0, 0, 1, 0)))
            wanted = loud[STEPS * start :][: STEPS * frames + 1].astype(np.float32)
            gains.append(np.pad(wanted, ((0, STEPS * frames + 1 - len(wanted)), (0, 0))))
        wanted = torch.from_numpy(np.stack(gains)).transpose(1, 2)
        return torch.stack(codes), wanted, torch.tensor(begins)


def between(steps: Tensor) -> Tensor:
    """Rows of the teacher [B, C, STEPS * T + 1] at the middle of each hop [B, C, HOPS * T]."""
    each = HOPS // STEPS
    places = (torch.arange(each) + 1) / each
    low, high = steps[..., :-1, None], steps[..., 1:, None]
    return (low * (1 - places) + high * places).flatten(-2)


# Training

Batch = tuple[Tensor, Tensor, Tensor]
Loss = Callable[[Voice, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def logarithm(shares: Tensor) -> Tensor:
    return (shares.square() + QUIET**2).log() / 2


def weights(codes: Tensor, begins: Tensor, each: int) -> Tensor:
    """Pulses count in frames that have any: [B, 2 * BINS, each * T]."""
    voiced = (codes[:, 4:5] > 0).float().repeat_interleave(each, 2)
    counts = torch.ones_like(voiced)
    counts[~begins, :, : WARM * each] = 0
    voiced = voiced * counts
    return torch.cat([voiced.expand(-1, BINS, -1), counts.expand(-1, BINS, -1)], 1)


def mean(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum()


def rate(passed: float, step: int, peak: float) -> float:
    """Warm up over 50 steps, fall by a cosine to a twentieth over the time given."""
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


class Optimizers:
    """Muon for the matrices of transformers, AdamW for all else, at one learning rate."""

    def __init__(self, module: nn.Module, used: list[nn.Parameter], decay: float) -> None:
        named = dict(module.named_parameters())
        matrices = {id(p) for name, p in named.items() if ".blk." in name and p.dim() == 2}
        inner = [p for p in used if id(p) in matrices]
        rest = [p for p in used if id(p) not in matrices]
        self.both = (
            torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=decay, fused=True),
            torch.optim.Muon(inner, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        )

    def zero_grad(self) -> None:
        for each in self.both:
            each.zero_grad()

    def step(self, rate: float) -> None:
        for each in self.both:
            each.param_groups[0]["lr"] = rate
            each.step()


def outline_loss(
    voice: Voice, codes: Tensor, wanted: Tensor, begins: Tensor
) -> tuple[Tensor, Tensor]:
    off = (voice.outline(codes) - logarithm(wanted[..., 1:])).abs()
    near = mean(off, weights(codes, begins, STEPS))
    return near, near.detach() * 0


def whole_loss(
    voice: Voice, codes: Tensor, wanted: Tensor, begins: Tensor
) -> tuple[Tensor, Tensor]:
    """How far shares are apart in logarithms and in themselves."""
    got, wanted = voice.gains(codes), between(wanted)
    weight = weights(codes, begins, HOPS)
    near = mean((logarithm(got) - logarithm(wanted)).abs(), weight)
    return near, mean((got - wanted).abs(), weight)


def train(voice: Voice, pieces: Pieces, clock: Clock, args: argparse.Namespace) -> None:
    used = [p for n, p in voice.named_parameters() if ".dec." not in n]
    optimizers = Optimizers(voice, used, decay=0.0)
    loss, batch = (outline_loss, 32) if args.step == "outline" else (whole_loss, 6)
    held = pieces.held_out()
    while clock.passed < 1:
        codes, wanted, begins = pieces.batch(batch, args.frames)
        near, off = loss(voice, codes, wanted / voice.scale[:, None], begins)
        optimizers.zero_grad()
        (near + 2 * off).backward()
        voice.fixed.still()
        nn.utils.clip_grad_norm_(used, 1.0)
        optimizers.step(rate(clock.passed, clock.step, args.rate))
        voice.fixed.restore()
        clock.tick(near=float(near.detach()), off=float(off.detach()))
        if clock.step % 200 == 0:
            print(validate(voice, loss, held), flush=True)


@torch.no_grad()
def validate(voice: Voice, loss: Loss, held: list[Batch]) -> str:
    found = [
        loss(voice, codes, wanted / voice.scale[:, None], begins) for codes, wanted, begins in held
    ]
    near, off = (float(torch.stack(each).mean()) for each in zip(*found, strict=True))
    return f"held out: near {near:.4f} off {off:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("outline", "unfold", "whole"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--frames", type=int, default=28)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    random.seed(time.time_ns())
    conv.CausalConvTranspose1d.forward = _transposed_forward  # type: ignore[assignment, method-assign]
    voice, path = Voice(), args.work / "codec.pt"
    pieces = Pieces(args.work / "sound")
    voice.scale.copy_(pieces.loudest())
    if path.exists():
        voice.load_state_dict(torch.load(path)["voice"])
    if args.step == "unfold":
        voice.unfold()
        voice.fixed.restore()
    clock = Clock(path, args.minutes * 60, voice=voice)
    train(voice, pieces, clock, args)
    clock.save()


if __name__ == "__main__":
    main()
