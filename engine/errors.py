"""Every exception the engine raises to a caller.

EngineError
├── InvalidRequest            the caller's fault; names the field
│   ├── UnsupportedMode       the loaded model cannot do this
│   └── UnknownVoice          lists what exists
├── ModelNotFound             a model name nobody serves
├── PayloadTooLarge
├── Overloaded                no permit; says when to come back
├── DeadlineExceeded          in the queue or running past the request's limit
├── InputTimeout              the input was open and nothing more came
├── EngineUnavailable         starting, draining, device lost
├── GenerationFailed          the model produced nothing usable
├── Cancelled                 the listener left
├── SlowReader                nobody read for too long
└── ModelFileError            at load: the file is not what it should be
"""

from __future__ import annotations

from collections.abc import Iterable


class EngineError(Exception):
    """Base of all engine errors; `str()` is a sentence fit for the caller."""


class InvalidRequest(EngineError):
    """A request the caller must change; `field` names what to change."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnsupportedMode(InvalidRequest):
    """The loaded model cannot do what the field asks for."""


class UnknownVoice(InvalidRequest):
    """No voice of that name; the message and `known` list those there are."""

    def __init__(self, voice: str, known: Iterable[str], field: str = "voice") -> None:
        self.voice = voice
        self.known = sorted(known)
        there_are = ", ".join(self.known) if self.known else "none: this model has no named voices"
        super().__init__(f"unknown voice {voice!r}; available voices: {there_are}", field)


class ModelNotFound(EngineError):
    """No loaded model answers to that name."""


class PayloadTooLarge(EngineError):
    """The request is larger than the server accepts; `field` names what is, if it is one field."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Overloaded(EngineError):
    """The queue is full; `retry_after_s` estimates when a place will be free.

    `queue_depth` counts the jobs waiting or running, `position` is the place in the line the
    request would have had.
    """

    def __init__(
        self, message: str, retry_after_s: float, queue_depth: int, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.queue_depth = queue_depth
        self.position = queue_depth + 1 if position is None else position


class DeadlineExceeded(EngineError):
    """The request's own time limit passed before it was done."""


class InputTimeout(EngineError):
    """The request's input was left open and nothing more of it came."""


class EngineUnavailable(EngineError):
    """The engine is starting, draining or has lost its device."""


class GenerationFailed(EngineError):
    """The model produced nothing usable for this request."""


class Cancelled(EngineError):
    """The listener left before the end."""


class SlowReader(EngineError):
    """Nobody read the stream for too long."""


class ModelFileError(EngineError):
    """A model file that cannot be used; the message says which and why."""


__all__ = [
    "Cancelled",
    "DeadlineExceeded",
    "EngineError",
    "EngineUnavailable",
    "GenerationFailed",
    "InputTimeout",
    "InvalidRequest",
    "ModelFileError",
    "ModelNotFound",
    "Overloaded",
    "PayloadTooLarge",
    "SlowReader",
    "UnknownVoice",
    "UnsupportedMode",
]
