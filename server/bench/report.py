"""What the bench prints: numbers rounded, and a table for people."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

from server.bench.listening import STAGES

_KEPT = 6  # significant digits are enough
_CLONE = (
    "a clone of {clip_s:.3g} s: encoded in {extract_s:.3g} s, first audio {first_s:.3g} s at first "
    "and {again_s:.3g} s then, {ratio:.3g} times the default voice's {preset_s:.3g} s"
)
_CLOCK = (
    "{listeners} listeners, one text every {every_s:g} s each, {seconds:g} s: {requests} replies, "
    "first audio {first_audio_s:.3g} s (p95 {first_audio_p95_s:.3g}), {underruns} with an underrun,"
    " the longest {longest_underrun_s:.3g} s"
)
_OPEN = (
    "{rate:g} requests a second for {seconds:g} s, {offered:.3g} s of sound a second: {requests} "
    "requests, {refused} refused, rtf {rtf_aggregate:.3g}, first audio {first_audio_s:.3g} s (p95 "
    "{first_audio_p95_s:.3g}), {underruns} with an underrun, the longest {longest_underrun_s:.3g} s"
)


def rounded(value: Any) -> Any:
    """The same with every float at six significant digits; NaN, of nothing, is None."""
    if isinstance(value, float):
        return None if isnan(value) else float(f"{value:.{_KEPT}g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def table(report: dict[str, Any]) -> str:
    """The report for people; rtf is sound per time, so more is better."""
    peers = any("ratio_to_peer" in run for run in report["runs"])
    head = ["listeners", "rtf (higher is better)", "per stream", "first audio s", "underrun s"]
    staged = all(run["stage_ms"] for run in report["runs"])
    head += [f"{name} ms/frame" for name in STAGES] if staged else []
    head += ["peer rtf", "ratio"] if peers else []
    lines = [head]
    for run in report["runs"]:
        values = [run["rtf_aggregate"], run["rtf_per_stream"], run["first_audio_s"]]
        values += [run["longest_underrun_s"], *run["stage_ms"].values()]
        values += [run["peer_rtf_aggregate"], run["ratio_to_peer"]] if peers else []
        lines.append([str(run["concurrency"]), *(f"{value:.3g}" for value in values)])
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rows = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    if "clone" in report:
        rows.append(_CLONE.format(**report["clone"]))
    if "by_the_clock" in report:
        rows.append(_CLOCK.format(**report["by_the_clock"]))
    for each in report.get("open_loop", ()):
        known = {key: nan if value is None else value for key, value in each.items()}
        rows.append(_OPEN.format(**known))
    if "url" in report:
        rows.append(f"the server at {report['url']}")
    else:
        memory = report["peak_memory_bytes"] / 1e9
        rows.append(f"{report['talker']}, {report['cores']} cores, peak memory {memory:.2f} GB")
    return "\n".join(rows)


__all__ = ["rounded", "table"]
