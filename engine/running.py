"""What the worker asks of a runner, whatever the model turns into whatever.

The worker and the scheduler know jobs, streams and this protocol; speech synthesis is one runner
(`engine/tts/runner.py`), recognition can be another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from engine.errors import EngineError
from engine.incoming import OpenInput
from engine.pieces import Steps
from engine.request import Job
from engine.stream import Stream


class Waiting(Protocol):
    """An accepted job, its stream and its open input: all the queue needs to know of an entry."""

    @property
    def job(self) -> Job: ...

    @property
    def stream(self) -> Stream: ...

    @property
    def input(self) -> OpenInput | None:
        """What has come of an input that was open at first; None when all came at once."""


E = TypeVar("E", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Books:
    """What a runner holds. Idle means all slots free and nothing written anywhere."""

    slots: int
    free: int
    kv_rows: int
    codec_frames: int

    @property
    def balanced(self) -> bool:
        return self.free == self.slots and self.kv_rows == 0 and self.codec_frames == 0


@dataclass(frozen=True, slots=True, eq=False)
class Retired(Generic[E]):
    """An entry whose slot was freed, and how it ended: a finish reason or an error's name."""

    entry: E
    outcome: str
    frames: int


class Runner(Protocol[E]):
    """One loaded model on the worker thread; every method runs there, between frames."""

    frames_total: int

    @property
    def name(self) -> str:
        """The model's name, as in `Job.model`."""

    @property
    def capacity(self) -> int:
        """Slots there are."""

    @property
    def free(self) -> int:
        """Slots nobody occupies."""

    @property
    def busy(self) -> bool:
        """A step would change something."""

    @property
    def nbytes(self) -> int:
        """Bytes of weights, caches and state."""

    def stalls(self, now: float) -> bool:
        """Longer work now would leave a listener without sound; a little later may not."""

    def ready(self, entry: E) -> E | None:
        """The entry as it may be admitted; None when `prepare` has something to do for it."""

    def prepare(self, entry: E) -> Steps[E]:
        """Make what an entry needs before it may be admitted, in pieces; raises what is wrong."""

    def admit(self, entry: E, now: float) -> None:
        """Take a free slot, at no cost to running streams; what goes wrong is the entry's own
        failure and is not raised."""

    def sweep(self, now: float) -> None:
        """Free the slots whose listener has gone or does not read, or whose time is over."""

    def step(self, now: float) -> None:
        """Do a part of what new slots need, then make one frame for every slot that advances;
        raises only what is nobody's own."""

    def cancel(self, job_id: str) -> None:
        """Free the slot of a job at once, if it has one."""

    def fail_all(self, error: EngineError) -> None:
        """End every running request with `error`: all streams first, then free the slots, which
        may raise when the device is gone."""

    def take_retired(self) -> list[Retired[E]]:
        """The entries whose slots were freed since the last call."""

    def books(self) -> Books:
        """What is held right now; changes nothing."""


__all__ = ["Books", "Retired", "Runner", "Waiting"]
