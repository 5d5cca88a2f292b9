"""Long work in pieces, done between two frames.

Whoever has long work writes it as a generator that yields where it may be put aside (`Steps`); the
worker runs a piece when a frame is done. Pieces take a few hundredths of a second at most.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def run_through(steps: Steps[T]) -> T:
    """Do all pieces at once; returns what the work came to."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


class Chore(Protocol):
    """Work somebody waits for. One of `done`, `failed` and `given_up` is called, once."""

    @property
    def steps(self) -> Steps[Any]: ...

    def unwanted(self, now: float) -> bool:
        """Nobody waits for it any more; called until it is true or the work is over."""

    def done(self, result: Any) -> None: ...

    def failed(self, error: BaseException) -> None: ...

    def given_up(self, now: float) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Promised(Generic[T]):
    """A chore whose outcome goes to a future; cancelling the future gives it up."""

    steps: Steps[T]
    future: Future[T]

    def unwanted(self, now: float) -> bool:
        return self.future.cancelled()

    def done(self, result: T) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(result)

    def failed(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def given_up(self, now: float) -> None:
        self.future.set_running_or_notify_cancel()


class Chores:
    """Chores in order of arrival, one at a time: a later one finds what an earlier one has made."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[Chore] = deque()
        self._clock = clock

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, chore: Chore) -> None:
        self._waiting.append(chore)

    def sweep(self, now: float) -> None:
        """Drop what nobody waits for."""
        for chore in [chore for chore in self._waiting if chore.unwanted(now)]:
            self._waiting.remove(chore)
            chore.steps.close()
            chore.given_up(now)

    def run(self, seconds: float, interrupted: Callable[[], bool]) -> None:
        """Do pieces for about so long, one at least, or until `interrupted` says so."""
        end = self._clock() + seconds
        while self._waiting:
            self._piece(self._waiting[0])
            if self._clock() >= end or interrupted():
                return

    def fail_all(self, error: BaseException) -> None:
        """End everything with `error`."""
        while self._waiting:
            chore = self._waiting.popleft()
            chore.steps.close()
            chore.failed(error)

    def _piece(self, chore: Chore) -> None:
        try:
            next(chore.steps)
        except StopIteration as end:
            self._waiting.popleft()
            chore.done(end.value)
        except Exception as error:
            self._waiting.popleft()
            chore.failed(error)


__all__ = ["Chore", "Chores", "Promised", "Steps", "run_through"]
