"""What speech costs against its length, the slots in use and the queue: figures and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine import InvalidRequest
from server.bench.listening import Ears
from server.bench.load import run_round

_LENGTHS = (1, 2, 4, 8)  # times `frames`
_QUEUES = (1, 2, 3, 4)  # times the slots


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) of one axis against one cost, and how it should look."""

    name: str
    x: str
    y: str
    points: tuple[tuple[float, float], ...]
    shape: str


def curves(ears: Ears, text: str, slots: int, frames: int) -> list[Curve]:
    """Measure all three.

    Args:
        slots: how many the engine has.
        frames: of the shortest replies, and of those for the other two curves.
    """

    def cost(listeners: int, length: int) -> tuple[float, float]:
        made = run_round(ears, text, listeners, length)
        return made.audio_s, made.seconds

    lengths = tuple(cost(1, frames * times) for times in _LENGTHS)
    widths = sorted({1, *(slots // part for part in (4, 2, 1) if slots >= part)})
    by_slots = tuple((float(count), cost(count, frames)[1]) for count in widths)
    queues = tuple(
        (float(slots * (times - 1)), seconds / audio)
        for times in _QUEUES
        for audio, seconds in [cost(slots * times, frames)]
    )
    return [
        Curve("length", "seconds of sound, one listener", "seconds", lengths, "linear"),
        Curve("slots", "listeners at once", "seconds for the same sound each", by_slots, "flat"),
        Curve("queue", "requests that wait", "seconds per second of sound", queues, "flat"),
    ]


def draw(measured: list[Curve], path: Path) -> None:
    """Write the picture (PNG).

    Raises:
        InvalidRequest: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise InvalidRequest(
            "`--plot` needs matplotlib: `pip install matplotlib`", "plot"
        ) from None
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(measured)), measured, strict=True):
        axes.plot(*zip(*curve.points, strict=True), marker="o")
        axes.set(title=f"{curve.name} ({curve.shape})", xlabel=curve.x, ylabel=curve.y)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


__all__ = ["Curve", "curves", "draw"]
