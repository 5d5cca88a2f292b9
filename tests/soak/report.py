"""What one part of the soak found, and the table of all."""

from __future__ import annotations

import datetime
import itertools
import math
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row: what was done, for how long, what came out and whether that is right."""

    part: str
    seconds: float
    found: str
    right: bool


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown."""
    day = datetime.datetime.now(tz=datetime.UTC).date()
    lines = [
        f"Soak of {day}, Python {platform.python_version()}, {platform.machine()}.",
        "",
        "| Part | Took | Found | |",
        "|---|---|---|---|",
    ]
    for each in outcomes:
        verdict = "passed" if each.right else "**failed**"
        lines.append(f"| {each.part} | {each.seconds:.0f} s | {each.found} | {verdict} |")
    return "\n".join(lines)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def slope(values: Sequence[float]) -> float:
    """Rise per step of equally spaced values: the median over all pairs (Theil and Sen), which a
    single step or a few odd values hardly move."""
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((right - left) / (j - i) for (i, left), (j, right) in pairs)
