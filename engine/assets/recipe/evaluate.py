"""Step 7, evaluate: does it say the words? Writes `results.json`.

Speaks every held-out sentence through the engine with the file's default sampling, by every
speaker and with several seeds, and lets Whisper tiny.en write down what it hears; the teacher's
own rendering of the same sentences stands beside it. Then lines of 1 to 30 words for length.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from teacher import SPEAKERS, Teacher, spoken

import engine
from tests.assets.recogniser import Recogniser, word_errors, words

HERE = Path(__file__).parent
RATE = 24000
SLOTS = 8


def say(voice: engine.Engine, text: str, speaker: str, seed: int) -> tuple[np.ndarray, Any]:
    sampling = engine.Sampling(seed=seed)
    request = engine.SpeechRequest(text, voice=speaker, language="english", sampling=sampling)
    items = list(voice.submit(request))
    sound = [item.pcm for item in items if isinstance(item, engine.Audio)]
    return np.concatenate(sound or [np.zeros(0, np.float32)]), items[-1]


def sound_facts(wave: np.ndarray) -> dict[str, float]:
    """Level in dBFS, peak, and the silence (below -45 dBFS in 10 ms) at both ends in seconds."""
    blocks = wave[: len(wave) // 240 * 240].reshape(-1, 240)
    loud = np.flatnonzero(np.sqrt((blocks**2).mean(1)) > 10 ** (-45 / 20))
    level = 10 * np.log10(float((wave**2).mean()) + 1e-12)
    start, end = (int(loud[0]), len(blocks) - 1 - int(loud[-1])) if len(loud) else (0, 0)
    peak = float(np.abs(wave).max())
    return {"dbfs": level, "peak": peak, "silence_before": start / 100, "silence_after": end / 100}


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}


def speech(
    voice: engine.Engine, work: Path, sentences: list[str], seeds: int, threads: int
) -> list[dict[str, Any]]:
    """One row per sentence, seed and speaker, and one per sentence for the teacher."""
    listener, teacher, rows = Recogniser(threads), Teacher(work, sound=True), []
    asked = [
        (index, speaker, seed)
        for index in range(len(sentences))
        for seed in range(seeds)
        for speaker in SPEAKERS
    ]

    def spoken_by(ask: tuple[int, str, int]) -> tuple[np.ndarray, Any]:
        index, speaker, seed = ask
        return say(voice, sentences[index], speaker, 1000 * seed + index)

    seconds = []
    for index, text in enumerate(sentences):
        _, wave = spoken(teacher, text, "robin", np.random.default_rng(index))
        seconds.append(len(wave) / RATE)
        row: dict[str, Any] = {"text": text, "speaker": "teacher", "seconds": seconds[-1]}
        heard = listener.hear(wave)
        rows.append(row | {"heard": heard, "errors": word_errors(text, heard)})
    with ThreadPoolExecutor(SLOTS) as pool:
        for ask, (wave, end) in zip(asked, pool.map(spoken_by, asked), strict=True):
            index, speaker, seed = ask
            text, heard = sentences[index], listener.hear(wave)
            row = {"text": text, "speaker": speaker, "seed": seed, "reason": str(end.reason)}
            row |= {"seconds": len(wave) / RATE, "teacher_seconds": seconds[index]}
            row |= {"heard": heard, "errors": word_errors(text, heard)} | sound_facts(wave)
            rows.append(rounded(row))
    return rows


def speed(voice: engine.Engine, sentences: list[str]) -> dict[str, float]:
    """One stream alone: seconds of sound per second, and the time to the first sound."""
    made, spent, first = 0.0, 0.0, []
    for index, text in enumerate(sentences[:12]):
        began = time.perf_counter()
        wave, end = say(voice, text, "robin", index)
        if index >= 2:  # the first ones warm up
            spent += time.perf_counter() - began
            made += len(wave) / RATE
            first.append(end.stats.first_audio_s)
    return {"times_real_time": round(made / spent, 2), "first_audio_s": round(sorted(first)[5], 3)}


def lengths(voice: engine.Engine, work: Path, count: int) -> list[dict[str, Any]]:
    """Lines of 1 to 30 words cut from the held-out sentences: how long, and why they ended."""
    teacher, rng, rows = Teacher(work, sound=False), random.Random(3), []
    texts, wanted = [], []
    pool = [w for s in json.loads((work / "text.json").read_text())["held_out"] for w in s.split()]
    for index in range(count):
        size = 1 + index % 30
        at = rng.randrange(len(pool) - size)
        text = " ".join(pool[at : at + size]).rstrip(",;:.") + "."
        text = text[0].upper() + text[1:]
        texts.append(text)
        wanted.append(sum(len(line.steps) for line, _, _ in teacher.sentences(text)) * 0.0267)

    def spoken_one(index: int) -> tuple[np.ndarray, Any]:
        return say(voice, texts[index], list(SPEAKERS)[index % 3], index)

    with ThreadPoolExecutor(SLOTS) as pool:
        for index, (wave, end) in enumerate(pool.map(spoken_one, range(count))):
            row = {"text": texts[index], "seconds": len(wave) / RATE}
            row |= {"teacher_seconds": wanted[index], "reason": str(end.reason)}
            rows.append(rounded(row))
    return rows


def summary(rows: list[dict[str, Any]], long_rows: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for speaker in ("teacher", *SPEAKERS):
        mine = [r for r in rows if r["speaker"] == speaker]
        total = sum(len(words(r["text"])) for r in mine)
        out[f"wer_{speaker}"] = round(sum(r["errors"] for r in mine) / max(total, 1), 4)
    ours = [r for r in rows if r["speaker"] != "teacher"]
    out["wer"] = round(sum(r["errors"] for r in ours) / sum(len(words(r["text"])) for r in ours), 4)
    out["utterances"] = len(ours)
    for fact in ("dbfs", "peak", "silence_before", "silence_after"):
        values = [r[fact] for r in ours]
        out[fact] = [round(float(np.quantile(values, q)), 2) for q in (0, 0.05, 0.5, 0.95, 1)]
    ratios = [r["seconds"] / max(r["teacher_seconds"], 0.1) for r in [*ours, *long_rows]]
    out["length_ratio"] = [round(float(np.quantile(ratios, q)), 2) for q in (0, 0.01, 0.5, 0.99, 1)]
    out["outside_half_to_twice"] = sum(not 0.5 <= r <= 2 for r in ratios)
    out["not_stopped"] = sum(r["reason"] != "stop" for r in [*ours, *long_rows])
    out["lines"] = len(long_rows)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--files", type=Path, help="folder of the GGUF files (work/gguf)")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = args.files or args.work / "gguf"
    files = engine.ModelFiles(folder / "talker.gguf", folder / "codec.gguf")
    sentences = (HERE / "held_out.txt").read_text().splitlines()
    trained = json.loads((args.work / "text.json").read_text())
    known = {" ".join(words(t)) for part in ("sentences", "derived") for t in trained[part]}
    sentences = [s for s in sentences if " ".join(words(s)) not in known]
    torch.set_num_threads(args.threads)
    config = engine.EngineConfig(device="cpu", dtype="f32", slots=SLOTS, max_queue=2 * SLOTS)
    with engine.load(files, config) as voice:
        rows = speech(voice, args.work, sentences[: args.sentences], args.seeds, args.threads)
        long_rows = lengths(voice, args.work, args.lines)
    with engine.load(files, replace(config, slots=1, kernels="plain")) as voice:
        fast = speed(voice, sentences)
    content = {"summary": summary(rows, long_rows) | fast, "speech": rows, "lengths": long_rows}
    (args.out or args.work / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content["summary"], indent=1))


if __name__ == "__main__":
    main()
