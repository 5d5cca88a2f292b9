"""Waiting that ends: what hangs fails its test instead of stopping the run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0


def promptly(function: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Call `function` on another thread and return its result or raise its exception.

    Raises:
        TimeoutError: it did not return.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(patience_s)


def run(coroutine: Coroutine[Any, Any, T], patience_s: float = PATIENCE_S) -> T:
    """Run a coroutine on a fresh event loop; raises `TimeoutError` when it does not end."""
    return asyncio.run(asyncio.wait_for(coroutine, patience_s))


def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Wait until `condition()` holds; returns whether it did."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
