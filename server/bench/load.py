"""A closed loop over an engine: so many listeners, each asking again as soon as it is served."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import engine

# When each chunk came and how long it sounds, in seconds.
_Arrivals = list[tuple[float, float]]
_Stats = engine.Stats

STAGES = ("talker", "predictor", "codec")


@dataclass(slots=True)
class Round:
    """What one round of requests took. `gaps` are the waits between a listener's chunks."""

    seconds: float = 0.0
    audio_s: float = 0.0
    first_audio_s: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    underruns: list[float] = field(default_factory=list)
    stage_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STAGES})

    @property
    def rtf(self) -> float:
        """Seconds of sound per second, all listeners together: higher is better."""
        return self.audio_s / self.seconds


def run_round(
    speech: engine.Engine,
    text: str,
    listeners: int,
    frames: int,
    voice: engine.Voice | None = None,
) -> Round:
    """Let `listeners` hear `frames` frames each, all at once. No draw ends one early.

    Args:
        voice: whose; None for the model's default.
    """
    result, lock = Round(), threading.Lock()
    failed: list[BaseException] = []

    def hear(seed: int) -> None:
        try:
            sampling = engine.Sampling(seed=seed, min_new_tokens=frames, max_new_tokens=frames)
            request = engine.SpeechRequest(text, voice, sampling=sampling)
            arrivals, stats = _listen(speech, request)
            with lock:
                _add(result, arrivals, stats)
        except engine.EngineError as error:
            failed.append(error)

    threads = [threading.Thread(target=hear, args=(seed,)) for seed in range(listeners)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - start
    if failed:
        raise failed[0]
    return result


def _listen(speech: engine.Engine, request: engine.SpeechRequest) -> tuple[_Arrivals, _Stats]:
    start = time.perf_counter()
    stream = speech.submit(request)
    arrivals: _Arrivals = []
    for item in stream:
        if isinstance(item, engine.Finished):
            return arrivals, item.stats
        seconds = len(item.pcm) / stream.sample_rate
        arrivals.append((time.perf_counter() - start, seconds))
    raise AssertionError("a stream ends with `Finished` or raises")


def _add(result: Round, arrivals: _Arrivals, stats: _Stats) -> None:
    times = [at for at, _ in arrivals]
    result.first_audio_s.append(times[0])
    result.gaps += [later - earlier for earlier, later in pairwise(times)]
    result.underruns.append(underrun(arrivals))
    result.audio_s += sum(seconds for _, seconds in arrivals)
    for name in STAGES:
        result.stage_s[name].append(getattr(stats, f"{name}_s") / stats.frames)


def underrun(arrivals: Sequence[tuple[float, float]]) -> float:
    """Seconds of silence a listener hears who plays from the first chunk on.

    Args:
        arrivals: when each chunk came and how long it sounds, in seconds.
    """
    silent, dry = 0.0, arrivals[0][0]
    for at, seconds in arrivals:
        silent += max(0.0, at - dry)
        dry = max(at, dry) + seconds
    return silent


def summary(rounds: Sequence[Round], listeners: int) -> dict[str, object]:
    """Medians over rounds; `rtf_*` is seconds of sound per second, higher is better."""
    rtf = statistics.median(each.rtf for each in rounds)
    first = sorted(value for each in rounds for value in each.first_audio_s)
    gaps = [value for each in rounds for value in each.gaps]
    underruns = [value for each in rounds for value in each.underruns]
    stages = {
        name: 1e3 * statistics.median(v for each in rounds for v in each.stage_s[name])
        for name in STAGES
    }
    return {
        "concurrency": listeners,
        "rtf_aggregate": rtf,
        "rtf_per_stream": rtf / listeners,
        "first_audio_s": statistics.median(first),
        "first_audio_p95_s": first[math.ceil(0.95 * len(first)) - 1],
        "longest_gap_s": max(gaps, default=0.0),
        "longest_underrun_s": max(underruns),
        "stage_ms": stages,
    }


__all__ = ["STAGES", "Round", "run_round", "summary", "underrun"]
