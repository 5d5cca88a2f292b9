"""What of this machine the process may use."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_GROUP = Path("/sys/fs/cgroup")


def usable_cores(group: Path = _GROUP) -> int:
    """Cores the process may run on: its affinity, and what its control group grants; at least 1.

    Args:
        group: where the control group's files lie.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _granted(group))))


def aside(make: Callable[[], T]) -> T:
    """What `make` gives, made on a thread that then ends; raises what it raises.

    A thread that has multiplied in parallel keeps its helpers as long as it lives (OpenMP), and
    once there are more helpers than cores all of them wait asleep, which makes every product of a
    frame about twice as slow. So only the worker may live on after it has multiplied.
    """
    made: Future[T] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except BaseException as error:
            made.set_exception(error)

    # A daemon, so that an interrupted caller need not wait for it.
    thread = threading.Thread(target=run, name="framecast-aside", daemon=True)
    thread.start()
    thread.join()
    return made.result()


def give_back() -> None:
    """Hand memory that has been freed back to the system, where the C library keeps it (glibc):
    after a model has been loaded that is a gigabyte."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, TypeError, AttributeError):  # another system's library
        return


def _granted(group: Path) -> float:
    """Cores' worth of time: version 2 of control groups in one file, version 1 in two."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf


__all__ = ["aside", "give_back", "usable_cores"]
