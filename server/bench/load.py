"""Loads: listeners all at once, listeners by the clock, and requests that come by chance."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import engine
from server.bench.listening import STAGES, Ears, Heard, underrun

_Ask = Callable[[], Heard]
# A silence shorter than this is the clock's, not the listener's.
_AUDIBLE_S = 0.005


@dataclass(slots=True)
class Round:
    """What one round of requests took. `gaps` are the waits between a listener's chunks; `refused`
    counts requests there was no place for, where that is counted."""

    seconds: float = 0.0
    audio_s: float = 0.0
    refused: int = 0
    first_audio_s: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    underruns: list[float] = field(default_factory=list)
    stage_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STAGES})

    @property
    def rtf(self) -> float:
        """Seconds of sound per second, all listeners together: higher is better."""
        return self.audio_s / self.seconds

    def add(self, heard: Heard) -> None:
        """Count one reply in."""
        times = [at for at, _ in heard.arrivals]
        self.first_audio_s.append(times[0])
        self.gaps += [later - earlier for earlier, later in pairwise(times)]
        self.underruns.append(underrun(heard.arrivals))
        self.audio_s += sum(seconds for _, seconds in heard.arrivals)
        for name, seconds in heard.stage_s.items():
            self.stage_s[name].append(seconds)


def run_round(ears: Ears, text: str, listeners: int, frames: int) -> Round:
    """Let `listeners` hear `frames` frames each, all at once. No draw ends one early.

    Raises:
        EngineError: what the first that failed was told.
    """
    return _together([partial(ears.hear, text, seed, frames) for seed in range(listeners)])


def by_the_clock(ears: Ears, text: str, listeners: int, every_s: float, seconds: float) -> Round:
    """Let each of `listeners` ask for a text every `every_s` seconds, evenly apart from the
    others, for `seconds`, whether or not the one before has ended. Errors as of `run_round`."""
    count = max(1, math.floor(seconds / every_s))
    times = [every_s * (turn + number / listeners) for turn in range(count)
             for number in range(listeners)]  # fmt: skip
    asking = [partial(ears.hear, text, seed, None) for seed in range(len(times))]
    return _together(_timed(times, asking))


def open_loop(ears: Ears, text: str, rate: float, seconds: float, frames: int) -> Round:
    """Let `rate` requests per second of `frames` frames each come by chance for `seconds`, whether
    or not those before have ended. Who is refused for want of a place is counted; the time is that
    to the end of the last reply, `seconds` at least; errors as of `run_round`."""
    times = arrivals(rate, seconds)
    asking = [partial(ears.hear, text, seed, frames) for seed in range(len(times))]
    made = _together(_timed(times, asking), refusals=True)
    made.seconds = max(made.seconds, seconds)
    return made


def arrivals(rate: float, seconds: float) -> list[float]:
    """When requests come: a Poisson process, the same every time, that begins with one at 0."""
    chance, times, at = random.Random(0), [0.0], 0.0
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    return times


def _timed(times: Sequence[float], asking: Sequence[_Ask]) -> Iterator[_Ask]:
    start = time.perf_counter()
    for at, ask in zip(times, asking, strict=True):
        time.sleep(max(0.0, start + at - time.perf_counter()))
        yield ask


def _together(asking: Iterable[_Ask], *, refusals: bool = False) -> Round:
    result, lock = Round(), threading.Lock()
    failed: list[BaseException] = []

    def listen(ask: _Ask) -> None:
        try:
            heard = ask()
            with lock:
                result.add(heard)
        except Exception as error:  # to be raised where the round was asked for
            with lock:
                if refusals and isinstance(error, engine.Overloaded):
                    result.refused += 1
                else:
                    failed.append(error)

    threads = []
    start = time.perf_counter()
    for ask in asking:
        threads.append(threading.Thread(target=listen, args=(ask,)))
        threads[-1].start()
        if failed:
            break
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - start
    if failed:
        raise failed[0]
    return result


def summary(rounds: Sequence[Round], listeners: int) -> dict[str, object]:
    """Medians over rounds; `rtf_*` is seconds of sound per second, higher is better.

    `stage_ms` is empty where the stages are not known.
    """
    rtf = statistics.median(each.rtf for each in rounds)
    first = sorted(value for each in rounds for value in each.first_audio_s) or [math.nan]
    gaps = [value for each in rounds for value in each.gaps]
    underruns = [value for each in rounds for value in each.underruns]
    stages = {name: [v for each in rounds for v in each.stage_s[name]] for name in STAGES}
    return {
        "concurrency": listeners,
        "rtf_aggregate": rtf,
        "rtf_per_stream": rtf / listeners,
        "first_audio_s": statistics.median(first),
        "first_audio_p95_s": first[math.ceil(0.95 * len(first)) - 1],
        "longest_gap_s": max(gaps, default=0.0),
        "longest_underrun_s": max(underruns, default=0.0),
        "underruns": sum(value > _AUDIBLE_S for value in underruns),
        "stage_ms": {name: 1e3 * statistics.median(v) for name, v in stages.items() if v},
    }


__all__ = ["Round", "arrivals", "by_the_clock", "open_loop", "run_round", "summary"]
