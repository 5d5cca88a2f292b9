"""Voices made of clips outside any request: how many may wait, and what is still being made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from engine.errors import Overloaded
from engine.pending import Pending
from engine.pieces import Steps
from engine.voice import Clip, Voice
from engine.worker import Call, Work, Worker

T = TypeVar("T")

_CLIP_S = 5.0  # about what a clip takes on a slow machine


class Hears(Protocol):
    """A model's side of it, on the worker thread."""

    def hear(self, clip: Clip, tail_s: float | None) -> Steps[tuple[Any, Any]]:
        """The vector of a clip, and its codes with a silence unless `tail_s` is None."""
        ...

    def forget(self, voice: Voice) -> int:
        """Drop all that was made of a voice or of its clip; returns the bytes freed."""
        ...


class Extraction:
    """Posts the work and keeps count of it. May be used from any thread.

    Args:
        most_waiting: clips that may wait to become voices at the same time.
    """

    def __init__(self, worker: Worker, most_waiting: int) -> None:
        self._worker = worker
        self._permits = threading.BoundedSemaphore(most_waiting)
        self._under_way: set[Future[Any]] = set()

    @property
    def busy(self) -> bool:
        """A voice is being made."""
        return bool(self._under_way)

    def extract(
        self,
        model: str,
        hears: Hears,
        clip: Clip,
        *,
        transcript: str | None,
        tail_s: float,
        warnings: tuple[str, ...],
    ) -> Pending[Voice]:
        """A voice of a clip that the model can hear; raises `Overloaded` when too many wait."""
        if not self._permits.acquire(blocking=False):
            message = "too many clips wait to become voices; try again in a few seconds"
            raise Overloaded(message, _CLIP_S, self._worker.chores)

        def make() -> Steps[Voice]:
            vector, codes = yield from hears.hear(clip, None if transcript is None else tail_s)
            return Voice(
                vector,
                codes,
                transcript,
                tail_silence_s=0.0 if transcript is None else tail_s,
                model=model,
                clip=clip.digest,
                warnings=warnings,
            )

        return self._post(make(), lambda _: self._permits.release())

    def purge(self, voice: Voice, models: Sequence[Hears]) -> Pending[int]:
        """Drop all that is kept of a voice: the bytes freed."""

        def forget() -> int:
            return sum(model.forget(voice) for model in models)

        def once_more() -> Steps[int]:
            yield from ()
            return forget()

        future: Future[int] = Future()
        self._worker.post(Call(forget, future))
        # What is being made of it now is kept when it is done; after that comes this.
        self._post(once_more())
        return Pending(future)

    def _post(
        self, steps: Steps[T], then: Callable[[Future[T]], None] = lambda _: None
    ) -> Pending[T]:
        future: Future[T] = Future()
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        future.add_done_callback(then)
        self._worker.post(Work(steps, future))
        return Pending(future)


__all__ = ["Extraction"]
