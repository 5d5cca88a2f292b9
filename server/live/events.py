"""What contexts tell a socket, whatever dialect it speaks: typed events, in order."""

from __future__ import annotations

from dataclasses import dataclass

from engine import Finished


@dataclass(frozen=True, slots=True)
class Started:
    """The first sound of a segment comes next; `text` is what is known of it by then, `format` and
    `sample_rate` are those of its container."""

    context: str
    utterance: int
    segment: int
    text: str
    format: str
    sample_rate: int


@dataclass(frozen=True, slots=True)
class Sound:
    """A slice of a segment's container."""

    context: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a segment, after its last sound: how the model finished it, or what failed;
    `warnings` are what the engine had to say of it."""

    context: str
    utterance: int
    segment: int
    size: int
    finished: Finished | None = None
    error: Exception | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flushed:
    """The one end of a flush, after the last sound of all its segments."""

    context: str
    utterance: int
    segments: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a context was saying is over; nothing of it follows."""

    context: str
    utterance: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A dialect's own answer to a message, as it is sent."""

    text: str


Event = Started | Sound | Ended | Flushed | Cancelled | Reply

__all__ = ["Cancelled", "Ended", "Event", "Flushed", "Reply", "Sound", "Started"]
