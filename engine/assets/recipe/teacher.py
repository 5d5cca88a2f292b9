"""Step 2, teacher: codes and sound of every line. `prosody` first, then `sound`.

The teacher (hibari-tts) times its phonemes in steps of 25 ms. Stretched to 26.7 ms a step becomes a
third of a codec frame, so that a frame is exactly three phonemes and a piece of pitch contour, and
codes can be read off the teacher's own timing instead of being learned from sound:

    code 0, 1, 2   the phoneme (vowels with their stress) in each third of the frame
    code 3         the pitch: whole periods in the frame and a slope; 0 where nothing is voiced
    code 4         the speaker and one of `NOISES` kinds of hiss, drawn at random

Sound and pitch lag the phonemes by `LOOKAHEAD` steps, so that the causal decoder knows what comes
next. As each frame holds whole periods, all begin in the same phase: the voice's pulses follow from
code 3 alone (see `vocoder.py`), and what is left to learn is how loud each band is, which the
teacher tells as well.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hibari
import numpy as np
import onnx
import torch
from hibari import Hibari

CODES = 704
STEP = 640  # samples
HOP = STEP // 2  # of the teacher's spectra, 300 before stretching
PER_FRAME = 3
FRAME = STEP * PER_FRAME
LOOKAHEAD = 4
LEAD = 1  # steps kept of the silence before a sentence
PAUSE = 7  # steps between two sentences
PERIODS = (5, 25)  # of the voice in a frame: 62 to 312 Hz
SLOPES = 1
PITCHES = (PERIODS[1] - PERIODS[0] + 1) * (2 * SLOPES + 1)
NOISES = 32
VOWELS = "AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻᵊ"
GAP = 14  # the label between two words
FFT = 1200
BANDS = 64
HISS = 0.0243  # deviation of the teacher's synthesis of unit noise, over the root of two
# pitch factor, formant factor, gain
SPEAKERS = {"robin": (1.0, 1.0, 1.35), "heron": (0.58, 0.86, 1.15), "wren": (1.25, 1.1, 1.5)}


@dataclass
class Line:
    """One utterance: its steps and, per step, two values of the pitch in Hz (0: unvoiced)."""

    text: str
    steps: np.ndarray  # uint8[n]
    pitch: np.ndarray  # float16[2n]
    spoken: float  # seconds the teacher itself would take


class Teacher:
    """The teacher's network with its inner durations and energies made visible."""

    def __init__(self, work: Path, *, sound: bool) -> None:
        self.tts = Hibari(model=str(_graph(work, sound)))
        symbols = list(self.tts.vocab)
        stressed = [v + mark for mark in "ˈˌ" for v in VOWELS]
        self.labels = {label: i for i, label in enumerate(["#", *symbols, *stressed])}

    def sentences(self, text: str) -> Iterator[tuple[Line, tuple[int, int], list[np.ndarray]]]:
        """Per sentence its line, the steps kept of the whole, and the spectra if asked for."""
        for phonemes in self.tts.phonemize(text):
            feed = {"ids": np.array([self.tts.ids(phonemes)]), "speed": np.ones(1, np.float32)}
            steps, *rest = self.tts.sess.run(None, feed)
            energy, pitch, *spectra = (o[0] for o in rest)
            known = [c for c in phonemes if c in self.tts.vocab]
            whole = self._steps(known, steps.astype(int))
            start = max(0, int(steps[0]) - LEAD)
            loud = np.flatnonzero(energy.reshape(-1, 2).max(1) > 0)
            end = min(len(whole), (int(loud[-1]) if len(loud) else start) + 3)
            kept = np.where(pitch > 40, pitch, 0)[2 * start : 2 * end].astype(np.float16)
            seconds = len(whole) * 0.025
            yield Line(text, whole[start:end], kept, seconds), (start, end), spectra

    def _steps(self, symbols: list[str], counts: np.ndarray) -> np.ndarray:
        """A label per step; a stress mark lends its time to the vowel behind it."""
        out, mark, waiting = [], "", 0
        for symbol, count in zip(["#", *symbols, "#"], counts, strict=True):
            if symbol in "ˈˌ":
                mark, waiting = symbol, waiting + count
                continue
            label = symbol + mark if symbol in VOWELS and symbol + mark in self.labels else symbol
            out += [self.labels[label]] * (count + waiting)
            mark, waiting = "", 0
        return np.array(out, np.uint8)


def _graph(work: Path, sound: bool) -> Path:
    path = work / ("teacher_sound.onnx" if sound else "teacher_prosody.onnx")
    if not path.exists():
        source = Path(hibari.__file__).parent / "assets" / "hibari.onnx"
        model = onnx.load(str(source))
        inner = ["/Clip_output_0", "/Mul_62_output_0"]  # durations and energies
        for name in inner:
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
        visible = work / "teacher_all.onnx"
        onnx.save(model, str(visible))
        spectra = ["lh", "theta", "ln", "lr", "phi"] if sound else []
        outputs = [*inner, "f0", *spectra]
        onnx.utils.extract_model(
            str(visible), str(path), ["ids", "speed"], outputs, check_model=False
        )
    return path


def joined(parts: list[Line]) -> Line:
    """Sentences of one utterance with a pause between them."""
    steps: list[np.ndarray] = []
    pitch: list[np.ndarray] = []
    for part in parts:
        if steps:
            steps.append(np.zeros(PAUSE, np.uint8))
            pitch.append(np.zeros(2 * PAUSE, np.float16))
        steps.append(part.steps)
        pitch.append(part.pitch)
    text = parts[0].text if len({p.text for p in parts}) == 1 else " ".join(p.text for p in parts)
    return Line(text, np.concatenate(steps), np.concatenate(pitch), sum(p.spoken for p in parts))


def framed(line: Line) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T, 3] and pitch [T, 6], which lags, in whole frames filled up with silence."""
    frames = -(-(len(line.steps) + LOOKAHEAD) // PER_FRAME)
    steps = np.zeros(frames * PER_FRAME, np.uint8)
    steps[: len(line.steps)] = line.steps
    pitch = np.zeros(2 * len(steps), np.float32)
    pitch[2 * LOOKAHEAD :][: len(line.pitch)] = line.pitch
    return steps.reshape(-1, PER_FRAME), pitch.reshape(frames, -1)


def pitch_codes(pitch: np.ndarray, factor: float) -> np.ndarray:
    """The pitch of each frame [T, 6] in Hz as a whole number of periods and a slope."""
    voiced = pitch > 0
    place = np.arange(pitch.shape[1])
    distance = np.abs(place[:, None] - place) + 100 * ~voiced[:, None, :]
    filled = np.take_along_axis(pitch, distance.argmin(-1), 1) * factor * FRAME / 24000
    periods = np.clip(np.round(filled.mean(1)), *PERIODS)
    ends = filled[:, -2:].mean(1) - filled[:, :2].mean(1)
    slope = np.clip(np.round(0.75 * ends), -SLOPES, SLOPES)
    code = 1 + (periods - PERIODS[0]) * (2 * SLOPES + 1) + slope + SLOPES
    return np.where(voiced.any(1), code, 0).astype(np.int64)


def phases(code: np.ndarray) -> np.ndarray:
    """Periods passed since the frame began, at each sample [T, FRAME]."""
    periods, slope = np.divmod(np.maximum(code - 1, 0), 2 * SLOPES + 1)
    periods, slope = periods + PERIODS[0], slope - SLOPES
    u = np.arange(1, FRAME + 1) / FRAME
    passed: np.ndarray = periods[:, None] * u + slope[:, None] * (u * u - u)
    return passed


def codes(line: Line, speaker: int, rng: np.random.Generator) -> np.ndarray:
    """int16[T, 5]."""
    steps, pitch = framed(line)
    factor = list(SPEAKERS.values())[speaker][0]
    noise = rng.integers(0, NOISES, len(steps))
    columns = [pitch_codes(pitch, factor), NOISES * speaker + noise]
    return np.concatenate([steps, np.stack(columns, 1)], 1).astype(np.int16)


# Sound


def render(
    spectra: list[np.ndarray], source: np.ndarray, speaker: str, rng: np.random.Generator
) -> np.ndarray:
    """The teacher's synthesis of one sentence at our hop, for one of our speakers."""
    _, formants, gain = SPEAKERS[speaker]
    magnitude, theta, noise, free, phi = spectra
    magnitude, noise, free = (_warp(x, formants) for x in (magnitude, noise, free))
    window = torch.hann_window(FFT)
    harmonic = torch.stft(torch.from_numpy(source), FFT, HOP, window=window, return_complex=True)
    harmonic = harmonic[:, : magnitude.shape[1]].numpy() / (FFT / 4)
    # The hop grew from 300: every bin turns further between frames.
    bins, frames = np.arange(len(phi))[:, None], np.arange(phi.shape[1])[None]
    phi = phi + 2 * np.pi * ((bins * frames * (HOP - 300)) % FFT) / FFT
    out = harmonic * np.exp(np.minimum(magnitude, 7) + 1j * np.pi * np.tanh(theta))
    hiss = rng.standard_normal((2, *noise.shape), np.float32)
    out += (hiss[0] + 1j * hiss[1]) * np.exp(np.minimum(noise, 7))
    out += np.exp(np.minimum(free, 7) + 1j * phi)
    spectrum = torch.from_numpy(out.astype(np.complex64))
    spectrum = torch.cat([spectrum, spectrum[:, -1:] * 0], 1)
    wave = torch.istft(spectrum, FFT, HOP, window=window, length=phi.shape[1] * HOP)
    return (wave.numpy() * gain).astype(np.float32)


def _warp(spectrum: np.ndarray, factor: float) -> np.ndarray:
    if factor == 1:
        return spectrum
    place = np.minimum(np.arange(len(spectrum)) / factor, len(spectrum) - 1)
    low = np.minimum(place.astype(int), len(spectrum) - 2)
    part = (place - low)[:, None].astype(np.float32)
    return spectrum[low] * (1 - part) + spectrum[low + 1] * part


def pulses(line: Line, factor: float) -> np.ndarray:
    """The pulse train of a whole line, as its codes tell it: [T * FRAME]."""
    _, pitch = framed(line)
    passed = phases(pitch_codes(pitch, factor))
    hertz = np.maximum(np.diff(passed, axis=1, prepend=0) * 24000, 40).ravel()
    phase = (2 * np.pi * np.modf(passed)[0]).astype(np.float32).ravel()
    order = np.floor(11000 / hertz).astype(np.float32) + 0.5
    low = 2 * np.sin(phase / 2)
    near = np.abs(low) <= 2e-3
    wave = np.where(near, order, np.sin(order * phase) / np.where(near, 1, low)) - 0.5
    flags = (pitch > 0).astype(np.float32).ravel()
    place = (np.arange(len(wave)) + 0.5) / HOP - 0.5
    voiced = np.interp(place, np.arange(len(flags)), flags) > 0.5
    return np.where(voiced, wave, 0).astype(np.float32)


def spoken(
    teacher: Teacher, text: str, speaker: str, rng: np.random.Generator
) -> tuple[Line, np.ndarray]:
    """An utterance and its sound, which lags by `LOOKAHEAD` steps: [T * FRAME]."""
    done = list(teacher.sentences(text))
    line = joined([part for part, _, _ in done])
    train = pulses(line, SPEAKERS[speaker][0])
    waves, used = [np.zeros(LOOKAHEAD * STEP, np.float32)], 0
    for _, (start, end), spectra in done:
        if used:
            waves.append(np.zeros(PAUSE * STEP, np.float32))
            used += PAUSE
        source = np.zeros(spectra[0].shape[1] * HOP, np.float32)
        at = (LOOKAHEAD + used) * STEP
        source[start * STEP : end * STEP] = train[at : at + (end - start) * STEP]
        wave = render(spectra, source, speaker, rng)[start * STEP : end * STEP]
        wave[:STEP] *= np.linspace(0, 1, STEP)
        wave[-STEP:] *= np.linspace(1, 0, STEP)
        waves.append(wave)
        used += end - start
    frames = len(framed(line)[0])
    sound = np.concatenate(waves)
    return line, np.pad(sound, (0, max(0, frames * FRAME - len(sound))))[: frames * FRAME]


# Steps of the recipe


def prosody(work: Path, part: int, parts: int) -> None:
    """Lines of text to `prosody/N.pkl`, 500 each; shards that exist are kept."""
    text = json.loads((work / "text.json").read_text("utf-8"))
    lines = (
        text["held_out"]
        + [
            line
            for pair in zip(text["derived"], text["sentences"] * 2, strict=False)
            for line in pair
        ][: 2 * len(text["sentences"])]
    )
    lines += text["derived"][len(text["sentences"]) :]
    held = set(text["held_out"])
    (work / "prosody").mkdir(exist_ok=True)
    teacher, began = Teacher(work, sound=False), time.time()
    for shard in range(part, -(-len(lines) // 500), parts):
        path = work / "prosody" / f"{shard:04d}.pkl"
        if path.exists():
            continue
        out: list[dict[str, Any]] = []
        for text_line in lines[500 * shard : 500 * (shard + 1)]:
            done = [line for line, _, _ in teacher.sentences(text_line)]
            if done:
                out.append({"held": text_line in held, **vars(joined(done))})
        path.with_suffix(".tmp").write_bytes(pickle.dumps(out))
        path.with_suffix(".tmp").rename(path)
        print(shard, f"{time.time() - began:.0f} s", flush=True)


def lines_of(work: Path, *, held: bool) -> list[Line]:
    shards = sorted((work / "prosody").glob("*.pkl"))
    found = [x for shard in shards for x in pickle.loads(shard.read_bytes())]
    return [Line(**x) for x in found if x.pop("held") == held]


def bands(spectrum: np.ndarray, factor: float) -> np.ndarray:
    """Log-magnitudes [FFT / 2 + 1, F] to the mean power of `BANDS` triangles [F, BANDS]."""
    power = np.exp(2 * np.minimum(_warp(spectrum, factor), 7))
    place = np.arange(len(power)) / FFT * 2 * BANDS
    weights = np.maximum(0, 1 - np.abs(place - np.arange(BANDS)[:, None] - 0.5))
    weights[0, : np.searchsorted(place, 0.5)] = 1
    found: np.ndarray = (weights / weights.sum(1, keepdims=True) @ power).T
    return found


def gains(done: list[tuple[Line, tuple[int, int], list[np.ndarray]]], speaker: str) -> np.ndarray:
    """How loud pulses and hiss are: F32[6T, 2 * BANDS], row i at sample i * HOP; sound lags."""
    _, formants, loud = SPEAKERS[speaker]
    line = joined([part for part, _, _ in done])
    out = np.zeros((2 * framed(line)[0].size, 2 * BANDS), np.float32)
    at = 2 * LOOKAHEAD
    for part, (start, end), (magnitude, _, noise, free, _) in done:
        rows = slice(2 * start, 2 * end)
        voiced = np.zeros(2 * (end - start) + 1)
        voiced[1 : 1 + len(part.pitch)] = part.pitch > 0
        voiced = (voiced[1:] + voiced[:-1]) / 2
        pulses = np.sqrt(bands(magnitude[:, rows], formants)) * voiced[:, None] / (FFT / 4)
        hiss = np.sqrt(2 * bands(noise[:, rows], formants) + bands(free[:, rows], formants))
        both = np.concatenate([pulses, HISS * hiss], 1) * loud
        out[at : at + len(both)] = both[: len(out) - at]
        at += 2 * (end - start + PAUSE)
    return out


def sound(work: Path, part: int, parts: int, count: int) -> None:
    """The decoder's training sound, `sound/N.npz`: 20 lines each, by every speaker."""
    text = json.loads((work / "text.json").read_text("utf-8"))
    lines = [x for p in zip(text["sentences"], text["derived"], strict=False) for x in p]
    (work / "sound").mkdir(exist_ok=True)
    teacher, began = Teacher(work, sound=True), time.time()
    for shard in range(part, count // 20, parts):
        path = work / "sound" / f"{shard:04d}.npz"
        if path.exists():
            continue
        rng, found = np.random.default_rng(shard), dict[str, np.ndarray]()
        for i, text_line in enumerate(lines[20 * shard : 20 * (shard + 1)]):
            done = list(teacher.sentences(text_line))
            line = joined([p for p, _, _ in done])
            for number, speaker in enumerate(SPEAKERS):
                found[f"codes{i}.{number}"] = codes(line, number, rng)
                found[f"gains{i}.{number}"] = gains(done, speaker).astype(np.float16)
        np.savez(work / "sound" / f".{shard}.npz", **found)  # type: ignore[arg-type]
        (work / "sound" / f".{shard}.npz").rename(path)
        if shard % 10 == part % 10:
            print(shard, f"{time.time() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("prosody", "sound"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--part", type=int, default=0, help="which share of the shards")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--count", type=int, default=8000, help="utterances of sound")
    args = parser.parse_args()
    if args.step == "prosody":
        prosody(args.work, args.part, args.parts)
    else:
        sound(args.work, args.part, args.parts, args.count)


if __name__ == "__main__":
    main()
