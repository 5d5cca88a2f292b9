"""One tenant floods the queue; another, who asks for one thing at a time, hardly notices.

Waiting is counted in frames stepped and jobs admitted by a worker that the test moves round by
round, so the numbers are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.errors import Overloaded
from engine.stream import Stream
from tests.test_worker import House, houses

__all__ = ["houses"]  # a fixture

Houses = Callable[..., House]


@dataclass(frozen=True, slots=True)
class Wait:
    """What happened between a job's arrival and its turn."""

    frames: int
    jobs: int


class Turned:
    """A house whose worker makes a round only when it is told to."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._numbers = iter(range(10**6))

    def round(self) -> None:
        worker = self.house.worker
        worker._receive()
        worker._sweep(self.house.now)
        worker._admit(self.house.now)
        worker._step(self.house.now)
        worker._retire()

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def flood(self, tenant: str, jobs: int, frames: int, **fields: int) -> list[Stream]:
        names = [f"{tenant}-{next(self._numbers)}" for _ in range(jobs)]
        return [self._submit(name, tenant, frames, **fields) for name in names]

    def ask(self, tenant: str, frames: int, **fields: int) -> Wait:
        """Submit one job and go on until it is over; how long it had waited for its turn."""
        name = f"{tenant}-{next(self._numbers)}"
        before = len(self.house.log)
        stream = self._submit(name, tenant, frames, **fields)
        while not stream.ended:
            self.round()
        since = self.house.log[before:]
        waited = since[: since.index(f"admit {name}")]
        frames = waited.count("step tiny")
        return Wait(frames, len(waited) - frames)

    def finish(self) -> None:
        while self.house.scheduler.in_flight:
            self.round()

    def _submit(self, name: str, tenant: str, frames: int, **fields: int) -> Stream:
        arrival = float(next(self._numbers))
        return self.house.submit(name, frames=frames, tenant=tenant, arrival=arrival, **fields)


def turned(houses: Houses, width: int) -> Turned:
    return Turned(houses(width=width, capacity=1000))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(("own", "other"), [(5, 5), (2, 12), (12, 2)], ids=lambda n: f"{n}")
def test_who_asks_one_thing_at_a_time_waits_for_one_job_of_a_flood_at_most(
    houses: Houses, width: int, own: int, other: int
) -> None:
    server = turned(houses, width)
    idle = [server.ask("modest", own) for _ in range(3)]
    assert idle == [Wait(0, 0)] * 3
    flood = server.flood("greedy", 200, other)
    server.rounds(width + 1)  # every slot is taken
    waits = [server.ask("modest", own) for _ in range(4)]
    assert not flood[-1].ended  # it was a flood until the end
    # Twice nothing, and one job: the longer of the two, as they share the frames.
    assert max(wait.frames for wait in waits) <= max(own, other)
    assert max(wait.jobs for wait in waits) * other <= max(own, other)
    server.finish()


@pytest.mark.parametrize("width", [1, 4])
def test_a_flood_that_is_refused_leaves_others_room_and_their_short_wait(
    houses: Houses, width: int
) -> None:
    server = Turned(houses(width=width, capacity=width + 6))
    for _ in range(12):
        with pytest.raises(Overloaded):
            while True:  # as many as it gets, and again before every request of the other
                server.flood("greedy", 1, 5)
        server.rounds(width + 1)
        wait = server.ask("modest", 5)  # raises when refused
        assert wait.frames <= 5
        assert wait.jobs <= 1
    server.finish()


@pytest.mark.parametrize("pause", [1, 7])
def test_time_to_think_between_two_requests_costs_nothing(houses: Houses, pause: int) -> None:
    server = turned(houses, 2)
    server.flood("greedy", 40, 4)
    server.rounds(3)
    for _ in range(5):
        assert server.ask("modest", 4).frames <= 4
        server.rounds(pause)
    server.finish()


def test_a_flood_of_a_newcomer_does_not_make_others_pay_for_their_past(houses: Houses) -> None:
    server = turned(houses, 1)
    server.flood("old", 60, 4)
    for _ in range(20):  # all the while somebody waits
        assert server.ask("modest", 4).frames <= 2 * 4
    server.flood("new", 40, 4)
    waits = [server.ask("modest", 4) for _ in range(5)]
    # One job of each of the two others; a newcomer may begin with two.
    assert waits[0].jobs <= 3
    assert max(wait.jobs for wait in waits[1:]) <= 2
    assert max(wait.frames for wait in waits) <= 4 * 4
    server.finish()


def test_who_comes_back_after_a_while_has_saved_up_no_turns(houses: Houses) -> None:
    server = turned(houses, 1)
    server.flood("steady", 60, 4)
    server.rounds(30 * 4)
    server.flood("back", 40, 4)
    assert server.ask("modest", 4).jobs <= 2
    before = len(server.house.log)
    server.rounds(10 * 4)
    turns = [line for line in server.house.log[before:] if line.startswith("admit")]
    assert sum("steady" in turn for turn in turns) >= 4
    server.finish()


def test_a_flood_of_many_tenants_is_one_job_of_each(houses: Houses) -> None:
    server = turned(houses, 1)
    for number in range(4):
        server.flood(f"greedy{number}", 20, 3)
    server.rounds(5)
    waits = [server.ask("modest", 3) for _ in range(4)]
    assert max(wait.jobs for wait in waits) <= 4
    server.finish()


def test_a_flood_of_a_higher_priority_goes_first_as_asked(houses: Houses) -> None:
    server = turned(houses, 1)
    server.flood("urgent", 5, 2, priority=1)
    server.round()
    assert server.ask("modest", 2).jobs == 4
    server.finish()
