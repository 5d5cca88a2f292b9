"""Who may wait and who is next. Jobs and counts only; no tensors, no torch.

Permits are taken before queueing, on any thread, so that a full server answers at once. The queue
itself belongs to the worker thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from engine.errors import Overloaded
from engine.request import Job
from engine.running import Waiting

# Index of the job to run next, given the waiting ones and the frames each tenant was given.
Policy = Callable[[Sequence[Job], Mapping[str, int]], int]


def fair(jobs: Sequence[Job], served: Mapping[str, int]) -> int:
    """Continuations of what is already speaking, then priority, then the tenant served least,
    then arrival."""

    def key(index: int) -> tuple[bool, int, int, float]:
        job = jobs[index]
        return (not job.continuation, -job.priority, served.get(job.tenant, 0), job.arrival)

    return min(range(len(jobs)), key=key)


E = TypeVar("E", bound=Waiting)


class Scheduler(Generic[E]):
    """Permits, queue and the books of both.

    Args:
        capacity: jobs accepted at the same time, running ones included.
        max_frames: frames the accepted jobs may be expected to need together; the first job is
            always let in, None is no limit.
        policy: picks the next job.
    """

    def __init__(
        self, capacity: int, policy: Policy = fair, *, max_frames: float | None = None
    ) -> None:
        self._capacity = capacity
        self._max_frames = max_frames
        self._policy = policy
        self._lock = threading.Lock()
        self._accepted: dict[str, int] = {}  # job id -> cost in frames
        self._queue: list[E] = []
        self._served: Counter[str] = Counter()
        self._rate = 0.0  # frames per second, smoothed; 0 until measured
        self._share = 0.5  # of its frame ceiling a job really uses, smoothed

    # Any thread.

    def reserve(self, job: Job) -> None:
        """Take the job's permit. A continuation always gets one: its request was accepted.

        Raises:
            Overloaded: all permits are taken, or too much sound is waiting to be made.
        """
        with self._lock:
            if not job.continuation and self._full(job):
                depth, wait = len(self._accepted), self._wait()
                raise Overloaded(
                    f"{depth} requests are waiting or running, no more are accepted; "
                    f"try again in {max(1, round(wait))} s",
                    wait,
                    depth,
                )
            self._accepted[job.id] = job.cost_frames

    def release(self, job: Job, frames: int | None = None) -> None:
        """Give the permit back; `frames` is what a completed job really took."""
        with self._lock:
            cost = self._accepted.pop(job.id, None)
            if cost and frames:
                self._share += 0.1 * (min(1.0, frames / cost) - self._share)

    def note_rate(self, frames: int, seconds: float) -> None:
        """Record how fast frames of all slots together are made."""
        if frames and seconds > 0:
            rate = frames / seconds
            self._rate = rate if self._rate == 0 else self._rate + 0.05 * (rate - self._rate)

    @property
    def in_flight(self) -> int:
        """Permits taken: jobs waiting or running."""
        with self._lock:
            return len(self._accepted)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def frames_per_second(self) -> float:
        return self._rate

    # The worker thread.

    def push(self, entry: E) -> None:
        """Let an entry wait its turn."""
        self._level(entry.job)
        self._queue.append(entry)

    def waited(self, model: str, now: float) -> float | None:
        """Seconds the longest waiting entry of a model has waited, None when none waits."""
        arrivals = [entry.job.arrival for entry in self._queue if entry.job.model == model]
        return now - min(arrivals) if arrivals else None

    def take(self, model: str) -> E | None:
        """Remove and return the next entry of a model, None when none waits."""
        places = [i for i, entry in enumerate(self._queue) if entry.job.model == model]
        if not places:
            return None
        place = places[self._policy([self._queue[i].job for i in places], self._served)]
        entry = self._queue.pop(place)
        self._served[entry.job.tenant] += entry.job.cost_frames
        if not self._queue:
            self._served.clear()  # nobody to be fair to: old debts are forgotten
        return entry

    def sweep(self, now: float) -> list[E]:
        """Remove and return the entries whose stream has ended or whose deadline has passed."""
        gone = [entry for entry in self._queue if _gone(entry, now)]
        if gone:
            self._queue = [entry for entry in self._queue if entry not in gone]
        return gone

    def drain(self) -> list[E]:
        """Remove and return everything that waits."""
        waiting, self._queue = self._queue, []
        return waiting

    def _level(self, job: Job) -> None:
        # Who comes back after a while starts level with those who wait: time spent away is not
        # saved up, or a flood of long-owed jobs would go before a modest tenant's next one.
        waiting = {entry.job.tenant for entry in self._queue}
        if waiting and job.tenant not in waiting:
            least = min(self._served[tenant] for tenant in waiting)
            self._served[job.tenant] = max(self._served[job.tenant], least - job.cost_frames)

    def _full(self, job: Job) -> bool:
        if len(self._accepted) >= self._capacity:
            return True
        if self._max_frames is None or not self._accepted:
            return False
        return self._backlog() + job.cost_frames * self._share > self._max_frames

    def _backlog(self) -> float:
        return sum(self._accepted.values()) * self._share

    def _wait(self) -> float:
        return self._backlog() / self._rate if self._rate else 1.0


def _gone(entry: Waiting, now: float) -> bool:
    deadline = entry.job.deadline
    return entry.stream.ended or (deadline is not None and now > deadline)


__all__ = ["Policy", "Scheduler", "fair"]
