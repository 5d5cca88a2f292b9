"""The worker's helpers: threads that do their part of a job, and sleep when there is none.

They never hold Python's lock while they work, and end with the team.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.native import jobs
from engine.native.memory import MEETINGS, STOPPED

Words = npt.NDArray[np.int64]


class Team:
    """`size` threads, the caller of `run` among them. One job at a time, from one thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._control = np.zeros(MEETINGS + 8 * size, np.int64)
        self._job = np.zeros(jobs.JOB_WORDS, np.int64)
        self._addresses = self._control.ctypes.data, self._job.ctypes.data
        # A helper holds what it reads, so that neither goes before it.
        held = self._control, self._job
        helpers = [
            threading.Thread(
                target=_help, args=(size, own, *held), name=f"framecast-helper-{own}", daemon=True
            )
            for own in range(1, size)
        ]
        for helper in helpers:
            helper.start()
        self._finalizer = weakref.finalize(self, _stop, self._control, helpers)

    def run(self, kind: int, words: dict[jobs.Job, int]) -> None:
        """Do a job; see `engine.native.jobs`."""
        self._job[jobs.Job.KIND] = kind
        for place, word in words.items():
            self._job[place] = word
        jobs.run(*self._addresses, self.size, 0)

    def close(self) -> None:
        """End the helpers; the team is of no use then."""
        self._finalizer()


def _help(size: int, own: int, control: Words, job: Words) -> None:
    jobs.run(control.ctypes.data, job.ctypes.data, size, own)


def _stop(control: Words, helpers: Sequence[threading.Thread]) -> None:
    control[STOPPED] = 1
    # The thread 0 of a job that is none: it wakes the others, who see that they are stopped.
    jobs.run(control.ctypes.data, 0, 1 + len(helpers), 0)
    for helper in helpers:
        helper.join()


__all__ = ["Team"]
