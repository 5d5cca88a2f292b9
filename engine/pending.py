"""Something the worker still has to make, for callers with an event loop or without."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Await it on any event loop, or block a thread in `result`.

    Cancelling the task that awaits it gives the work up, as `cancel` does.
    """

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()

    def result(self, timeout: float | None = None) -> T:
        """What it came to, after at most `timeout` seconds, or its error.

        Raises:
            TimeoutError: it takes longer; it goes on.
            concurrent.futures.CancelledError: it was given up.
        """
        return self._future.result(timeout)

    def cancel(self) -> bool:
        """Give it up; False when it is there already."""
        return self._future.cancel()

    @property
    def done(self) -> bool:
        """It is there, has failed or was given up."""
        return self._future.done()


__all__ = ["Pending"]
