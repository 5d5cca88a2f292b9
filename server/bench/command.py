"""`framecast bench`: how fast the engine or a server speaks, beside the C++ peer or alone."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import resource
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine
from server.bench.clones import clone_round
from server.bench.listening import Ears, EngineEars, ServerEars
from server.bench.load import by_the_clock, open_loop, run_round, summary
from server.bench.plot import curves, draw
from server.bench.report import rounded, table
from server.bench.rival import Rival, rival
from server.settings import Settings

TEXT = "The quick brown fox jumps over the lazy dog near the river."
_MOST_REQUESTS = 100_000
_BY_LISTENER = ("concurrency", "rtf_per_stream")
# What a running server cannot be asked for.
_OWN_ENGINE = ("random", "peer", "clone", "plot")


def bench(settings: Settings, arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code.

    Raises:
        InvalidRequest: a value that cannot be, or no peer or server where one was asked for.
        EngineError: what a request was told that failed.
    """
    wanted = _concurrencies(arguments.concurrency)
    _rates(arguments)
    _check(arguments)
    with contextlib.ExitStack() as stack:
        if arguments.url is not None:
            report = _served(ServerEars(arguments.url, arguments.api_key), arguments, wanted)
        else:
            report = _loaded(settings, arguments, wanted, stack)
    print(json.dumps(report) if arguments.json else table(report))
    return 0


def _concurrencies(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise engine.InvalidRequest(
            f"`--concurrency` must be numbers from 1, like 1,8; got {text!r}", "concurrency"
        )
    return counts


def _rates(arguments: argparse.Namespace) -> list[float]:
    if arguments.rates is None:
        return []
    try:
        rates = [float(part) for part in arguments.rates.split(",")]
    except ValueError:
        rates = [0.0]
    if not all(0 < rate < float("inf") for rate in rates):
        raise engine.InvalidRequest(
            f"`--rates` must be requests per second above 0, like 0.5,1,2; got {arguments.rates!r}",
            "rates",
        )
    if max(rates) * arguments.seconds > _MOST_REQUESTS:
        raise engine.InvalidRequest(
            f"`--rates` and `--seconds` must come to at most {_MOST_REQUESTS} requests, got "
            f"{max(rates):g} a second for {arguments.seconds:g} s",
            "rates",
        )
    return rates


def _check(arguments: argparse.Namespace) -> None:
    for name in ("frames", "rounds"):
        if getattr(arguments, name) < 1:
            raise engine.InvalidRequest(f"`--{name}` must be at least 1", name)
    if arguments.listeners < 0:
        raise engine.InvalidRequest("`--listeners` must be at least 0", "listeners")
    for name in ("every", "seconds"):
        if not 0 < getattr(arguments, name) < float("inf"):
            raise engine.InvalidRequest(f"`--{name}` must be above 0", name)
    for name, owner in (("ref_text", "clone"), ("api_key", "url")):
        if getattr(arguments, name) is not None and getattr(arguments, owner) is None:
            flag = name.replace("_", "-")
            raise engine.InvalidRequest(f"`--{flag}` needs the `--{owner}` it belongs to", name)
    if arguments.url is not None:
        for name in _OWN_ENGINE:
            if getattr(arguments, name) is not None:
                raise engine.InvalidRequest(
                    f"`--{name}` measures an engine of its own, not a server: leave out `--url`",
                    name,
                )


def _served(
    ears: ServerEars, arguments: argparse.Namespace, wanted: Sequence[int]
) -> dict[str, Any]:
    run_round(ears, TEXT, 1, min(8, arguments.frames))
    runs = [_compare(ears, None, count, arguments) for count in wanted]
    report = {"url": arguments.url, **_facts(arguments), "runs": runs}
    return rounded(report | _clock(ears, arguments) | _open(ears, arguments))  # type: ignore[no-any-return]


def _loaded(
    settings: Settings,
    arguments: argparse.Namespace,
    wanted: Sequence[int],
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    files, slots = _files(settings, arguments, stack), max(*wanted, arguments.listeners)
    # Guards would end what random weights say.
    config = replace(settings.engine_config(), slots=slots, loop_window=0, silence_s=0)
    speech = stack.enter_context(engine.load(files, config))
    other = None
    if arguments.peer is not None:
        most, frames = max(wanted), arguments.frames
        other = stack.enter_context(rival(arguments.peer, files, TEXT, most=most, frames=frames))
    ears = EngineEars(speech)
    run_round(ears, TEXT, slots, min(8, arguments.frames))
    runs = [_compare(ears, other, count, arguments) for count in wanted]
    more = _clock(ears, arguments) | _open(ears, arguments)
    more |= _clone(speech, arguments) | _plot(ears, slots, arguments)
    report = {
        "machine": platform.processor() or platform.machine(),
        "cores": engine.usable_cores(),
        "talker": files.talker.name,
        **_facts(arguments),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "runs": runs,
    }
    return rounded(report | more)  # type: ignore[no-any-return]


def _files(
    settings: Settings, arguments: argparse.Namespace, stack: contextlib.ExitStack
) -> engine.ModelFiles:
    if arguments.random is None:
        return settings.model_files() or engine.bundled_voice()
    folder = arguments.folder
    if folder is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="framecast-bench-")))
    return engine.random_files(folder, arguments.random, arguments.quant)


def _facts(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "frames": arguments.frames,
        "rounds": arguments.rounds,
        "rtf_is": "seconds of sound per second, higher is better",
    }


def _compare(
    ears: Ears, other: Rival | None, count: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Rounds of both by turns, so that both see the same machine."""
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(run_round(ears, TEXT, count, arguments.frames))
        if other is not None:
            theirs.append(other.round(count))
    run = summary(ours, count)
    if theirs:
        rtf = statistics.median(each["frames"] * 0.08 / each["seconds"] for each in theirs)
        first = [value for each in theirs for value in each["first_audio_s"]]
        run["peer_rtf_aggregate"] = rtf
        run["peer_first_audio_s"] = statistics.median(first)
        run["ratio_to_peer"] = statistics.median(each.rtf for each in ours) / rtf
    return run


def _clock(ears: Ears, arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.listeners:
        return {}
    count, every, seconds = arguments.listeners, arguments.every, arguments.seconds
    made = by_the_clock(ears, TEXT, count, every, seconds)
    told = {"listeners": count, "every_s": every, "seconds": seconds,
            "requests": len(made.first_audio_s)}  # fmt: skip
    return {"by_the_clock": told | summary([made], count)}


def _open(ears: Ears, arguments: argparse.Namespace) -> dict[str, Any]:
    told, seconds, frames = [], arguments.seconds, arguments.frames
    for rate in _rates(arguments):
        made = open_loop(ears, TEXT, rate, seconds, frames)
        asked = len(made.first_audio_s) + made.refused
        facts = {"rate": rate, "seconds": seconds, "requests": asked, "refused": made.refused,
                 "offered": asked * frames * 0.08 / seconds}  # fmt: skip
        heard = summary([made], 1)
        told.append(facts | {key: heard[key] for key in heard if key not in _BY_LISTENER})
    return {"open_loop": told} if told else {}


def _clone(speech: engine.Engine, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.clone is None:
        return {}
    frames, rounds = min(8, arguments.frames), max(3, arguments.rounds)
    said = arguments.ref_text or None
    told = clone_round(speech, TEXT, arguments.clone, said, frames=frames, rounds=rounds)
    return {"clone": told}


def _plot(ears: Ears, slots: int, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.plot is None:
        return {}
    measured = curves(ears, TEXT, slots, arguments.frames)
    draw(measured, arguments.plot)
    return {"curves": {curve.name: [list(point) for point in curve.points] for curve in measured}}


__all__ = ["bench"]
