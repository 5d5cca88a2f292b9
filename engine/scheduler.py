"""Who may wait and who is next. Jobs and counts only; no tensors, no torch.

Permits are taken before queueing, on any thread, so that a full server answers at once. The queue
itself belongs to the worker thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

# While the permits are taken, tenants with less than an equal share still get in, so that a flood
# costs its own tenant only; there are never more than so many times the permits.
_CROWDED = 2


@dataclass(slots=True)
class _Held:
    """What accepted jobs hold together: permits, and frames they may need at most."""

    jobs: int = 0
    frames: int = 0

    def add(self, job: Job, times: int = 1) -> None:
        self.jobs += times
        self.frames += times * job.cost_frames


class Scheduler(Generic[E]):
    """Permits, queue and the books of both.

    Args:
        capacity: jobs accepted at the same time, running ones included; up to twice as many of
            tenants that hold less than an equal share.
        max_frames: frames the accepted jobs may be expected to need together, with the same
            exception; the first job is always let in, None is no limit.
        policy: picks the next job.
    """

    def __init__(
        self, capacity: int, policy: Policy = fair, *, max_frames: float | None = None
    ) -> None:
        self._capacity = capacity
        self._max_frames = max_frames
        self._policy = policy
        self._lock = threading.Lock()
        self._accepted: dict[str, Job] = {}
        self._held = _Held()
        self._tenants: dict[str, _Held] = {}
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
                depth, wait = self._held.jobs, self._wait()
                raise Overloaded(
                    f"{depth} requests are waiting or running, no more are accepted; "
                    f"try again in {max(1, round(wait))} s",
                    wait,
                    depth,
                )
            self._accepted[job.id] = job
            self._held.add(job)
            self._tenants.setdefault(job.tenant, _Held()).add(job)

    def release(self, job: Job, frames: int | None = None) -> None:
        """Give the permit back; `frames` is what a completed job really took."""
        with self._lock:
            accepted = self._accepted.pop(job.id, None)
            if accepted is None:
                return
            self._forget(accepted)
            if accepted.cost_frames and frames:
                self._share += 0.1 * (min(1.0, frames / accepted.cost_frames) - self._share)

    def note_rate(self, frames: int, seconds: float) -> None:
        """Record how fast frames of all slots together are made."""
        if frames and seconds > 0:
            rate = frames / seconds
            self._rate = rate if self._rate == 0 else self._rate + 0.05 * (rate - self._rate)

    @property
    def in_flight(self) -> int:
        """Permits taken: jobs waiting or running."""
        with self._lock:
            return self._held.jobs

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

    def waits(self, model: str) -> bool:
        """An entry of a model waits for nothing but a slot."""
        return any(_admissible(entry, model) for entry in self._queue)

    def take(self, model: str) -> E | None:
        """Remove and return the next entry of a model, None when none waits for a slot."""
        places = [i for i, entry in enumerate(self._queue) if _admissible(entry, model)]
        if not places:
            return None
        place = places[self._policy([self._queue[i].job for i in places], self._served)]
        entry = self._queue.pop(place)
        self._served[entry.job.tenant] += entry.job.cost_frames
        if not self._queue:
            self._served.clear()  # nobody to be fair to: old debts are forgotten
        return entry

    def sweep(self, now: float) -> list[E]:
        """Remove and return the entries whose stream has ended, whose deadline has passed, or
        whose input was waited for too long."""
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

    def _forget(self, job: Job) -> None:
        own = self._tenants[job.tenant]
        for held in (self._held, own):
            held.add(job, -1)
        if not own.jobs:
            del self._tenants[job.tenant]

    def _full(self, job: Job) -> bool:
        if self._fits(job, self._held, 1):
            return False
        own = self._tenants.get(job.tenant, _Held())
        share = 1 / len({job.tenant, *self._tenants})
        return not (self._fits(job, own, share) and self._fits(job, self._held, _CROWDED))

    def _fits(self, job: Job, held: _Held, share: float) -> bool:
        if held.jobs >= share * self._capacity:
            return False
        if self._max_frames is None or not held.jobs:
            return True
        return (held.frames + job.cost_frames) * self._share <= share * self._max_frames

    def _wait(self) -> float:
        return self._held.frames * self._share / self._rate if self._rate else 1.0


def _admissible(entry: Waiting, model: str) -> bool:
    return entry.job.model == model and (entry.input is None or entry.input.enough)


def _gone(entry: Waiting, now: float) -> bool:
    deadline = entry.job.deadline
    late = deadline is not None and now > deadline
    return entry.stream.ended or late or lacks_input(entry, now)


def lacks_input(entry: Waiting, now: float) -> bool:
    """Whether a queued entry has waited too long for what it needs to begin."""
    source = entry.input
    return source is not None and not source.enough and source.waited_out(now)


__all__ = ["Policy", "Scheduler", "fair", "lacks_input"]
