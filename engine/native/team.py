"""The worker's helpers: threads that do their part of a job, and sleep when there is none.

They never hold Python's lock while they work, and end with the team.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.native import jobs
from engine.native.memory import MEETINGS

Words = npt.NDArray[np.int64]


class Team:
    """`size` threads, the caller of `run` among them. One job at a time, from one thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._control = np.zeros(MEETINGS + 8 * size, np.int64)
        self._job = np.zeros(jobs.JOB_WORDS, np.int64)
        self._addresses = self._control.ctypes.data, self._job.ctypes.data
        self._process = os.getpid()
        helpers: list[threading.Thread] = []
        self._finalizer = weakref.finalize(self, _end, self._control, self._job, helpers)
        # Nobody waits for sleepers when the process ends, where a job may still be running.
        self._finalizer.atexit = False
        try:
            for own in range(1, size):
                # One by one: those that run must be known if the next one fails.
                helpers.append(self._helper(own))  # noqa: PERF401
        except BaseException:
            self.close()
            raise

    def run(self, kind: int, words: dict[jobs.Job, int]) -> None:
        """Do a job; see `engine.native.jobs`."""
        if not self._finalizer.alive or self._process != os.getpid():
            raise RuntimeError("the team has ended, or belongs to another process")
        self._job[jobs.Job.KIND] = kind
        for place, word in words.items():
            self._job[place] = word
        jobs.run(*self._addresses, self.size, 0)

    def _helper(self, own: int) -> threading.Thread:
        # It holds what it reads, so that neither goes before it.
        given = self._control, self._job, self.size, own
        name = f"framecast-helper-{own}"
        thread = threading.Thread(target=_help, args=given, name=name, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """End the helpers; the team is of no use then."""
        self._finalizer()


def _help(control: Words, job: Words, size: int, own: int) -> None:
    jobs.run(control.ctypes.data, job.ctypes.data, size, own)


def _end(control: Words, job: Words, helpers: Sequence[threading.Thread]) -> None:
    job[jobs.Job.KIND] = jobs.END
    jobs.run(control.ctypes.data, job.ctypes.data, 1 + len(helpers), 0)
    for helper in helpers:
        helper.join()


__all__ = ["Team"]
