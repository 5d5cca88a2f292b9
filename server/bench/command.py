"""`framecast bench`: how fast the engine speaks, beside the C++ peer if asked for."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine
from server.bench import peer
from server.bench.clones import clone_round
from server.bench.load import STAGES, run_round, summary
from server.settings import Settings

TEXT = "The quick brown fox jumps over the lazy dog near the river."
_CLONE = (
    "a clone of {clip_s:.3g} s: encoded in {extract_s:.3g} s, first audio {first_s:.3g} s at first "
    "and {again_s:.3g} s then, {ratio:.3g} times the default voice's {preset_s:.3g} s"
)
_KEPT = 6  # significant digits are enough


def bench(settings: Settings, arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code.

    Raises:
        InvalidRequest: a value that cannot be, or no peer where one was asked for.
    """
    wanted = _concurrencies(arguments.concurrency)
    for name in ("frames", "rounds"):
        if getattr(arguments, name) < 1:
            raise engine.InvalidRequest(f"`--{name}` must be at least 1", name)
    if arguments.ref_text is not None and arguments.clone is None:
        raise engine.InvalidRequest("`--ref-text` needs the `--clone` it belongs to", "ref_text")
    with contextlib.ExitStack() as stack:
        files = _files(settings, arguments, stack)
        report = _measure(files, settings, arguments, wanted, stack)
    print(json.dumps(report) if arguments.json else _table(report))
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


def _files(
    settings: Settings, arguments: argparse.Namespace, stack: contextlib.ExitStack
) -> engine.ModelFiles:
    if arguments.random is None:
        return settings.model_files() or engine.bundled_voice()
    folder = arguments.folder
    if folder is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="framecast-bench-")))
    return engine.random_files(folder, arguments.random, arguments.quant)


def _measure(
    files: engine.ModelFiles,
    settings: Settings,
    arguments: argparse.Namespace,
    wanted: Sequence[int],
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    # Guards would end what random weights say.
    config = replace(settings.engine_config(), slots=max(wanted), loop_window=0, silence_s=0)
    speech = stack.enter_context(engine.load(files, config))
    rival = None
    if arguments.peer is not None:
        rival = stack.enter_context(_peer(files, arguments, max(wanted)))
    run_round(speech, TEXT, max(wanted), min(8, arguments.frames))
    runs = [_compare(speech, rival, count, arguments) for count in wanted]
    clone = {} if arguments.clone is None else {"clone": _rounded(_cloned(speech, arguments))}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "machine": platform.processor() or platform.machine(),
        "cores": engine.usable_cores(),
        "talker": files.talker.name,
        "frames": arguments.frames,
        "rounds": arguments.rounds,
        "rtf_is": "seconds of sound per second, higher is better",
        "peak_memory_bytes": peak,
        "runs": _rounded(runs),
    } | clone


def _cloned(speech: engine.Engine, arguments: argparse.Namespace) -> dict[str, float]:
    frames, rounds = min(8, arguments.frames), max(3, arguments.rounds)
    said = arguments.ref_text or None
    return clone_round(speech, TEXT, arguments.clone, said, frames=frames, rounds=rounds)


def _compare(
    speech: engine.Engine, rival: _Peer | None, count: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Rounds of both by turns, so that both see the same machine."""
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(run_round(speech, TEXT, count, arguments.frames))
        if rival is not None:
            theirs.append(rival.round(count))
    run = summary(ours, count)
    if theirs:
        rtf = statistics.median(each["frames"] * 0.08 / each["seconds"] for each in theirs)
        first = [value for each in theirs for value in each["first_audio_s"]]
        run["peer_rtf_aggregate"] = rtf
        run["peer_first_audio_s"] = statistics.median(first)
        run["ratio_to_peer"] = statistics.median(each.rtf for each in ours) / rtf
    return run


class _Peer:
    """The peer's process, which has loaded the same files."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def round(self, count: int) -> dict[str, Any]:
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        with contextlib.suppress(BrokenPipeError):
            print(count, file=given, flush=True)
        line = taken.readline()
        if not line:
            raise engine.InvalidRequest(
                "the peer ended; `--peer` takes a Python that has `realtimetts-qwen-native-cpu`",
                "peer",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def _peer(files: engine.ModelFiles, arguments: argparse.Namespace, most: int) -> Iterator[_Peer]:
    threads = engine.usable_cores()
    given = (files.talker, files.codec, threads, most, arguments.frames, TEXT)
    command = [arguments.peer, peer.__file__, *map(str, given)]
    try:
        process = subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise engine.InvalidRequest(f"`--peer` {arguments.peer!r}: {error}", "peer") from None
    try:
        yield _Peer(process)
    finally:
        process.kill()
        process.communicate()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_KEPT}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def _table(report: dict[str, Any]) -> str:
    """The report for people; rtf is sound per time, so more is better."""
    peers = any("ratio_to_peer" in run for run in report["runs"])
    head = ["listeners", "rtf (higher is better)", "per stream", "first audio s", "underrun s"]
    head += [f"{name} ms/frame" for name in STAGES]
    head += ["peer rtf", "ratio"] if peers else []
    lines = [head]
    for run in report["runs"]:
        values = [run["rtf_aggregate"], run["rtf_per_stream"], run["first_audio_s"]]
        values += [run["longest_underrun_s"], *(run["stage_ms"][name] for name in STAGES)]
        values += [run["peer_rtf_aggregate"], run["ratio_to_peer"]] if peers else []
        lines.append([str(run["concurrency"]), *(f"{value:.3g}" for value in values)])
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rows = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    if "clone" in report:
        rows.append(_CLONE.format(**report["clone"]))
    memory = report["peak_memory_bytes"] / 1e9
    rows.append(f"{report['talker']}, {report['cores']} cores, peak memory {memory:.2f} GB")
    return "\n".join(rows)


__all__ = ["bench"]
