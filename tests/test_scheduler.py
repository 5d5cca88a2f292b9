"""Permits, the order of the queue, and what leaves it without having run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from engine.errors import Overloaded
from engine.incoming import OpenInput
from engine.request import FinishReason, Job
from engine.scheduler import Scheduler, fair
from engine.stream import Finished, Stats, Stream


@dataclass(frozen=True, eq=False)
class Entry:
    job: Job
    stream: Stream
    input: OpenInput | None = None


def job(name: str, **fields: object) -> Job:
    defaults = {"model": "tiny", "cost_frames": 100, "arrival": 0.0}
    return Job(id=name, **{**defaults, **fields})  # type: ignore[arg-type]


def entry(name: str, **fields: object) -> Entry:
    return Entry(job(name, **fields), Stream(name, seed=0, sample_rate=24_000, max_bytes=100))


def queue_of(*entries: Entry) -> Scheduler[Entry]:
    scheduler: Scheduler[Entry] = Scheduler(100)
    for each in entries:
        scheduler.push(each)
    return scheduler


def order(scheduler: Scheduler[Entry], model: str = "tiny") -> list[str]:
    names = []
    while taken := scheduler.take(model):
        names.append(taken.job.id)
    return names


# Permits


def test_a_request_past_the_capacity_is_refused_with_the_depth() -> None:
    scheduler: Scheduler[Entry] = Scheduler(2)
    scheduler.reserve(job("a"))
    scheduler.reserve(job("b"))
    with pytest.raises(Overloaded, match="2 requests are waiting or running") as caught:
        scheduler.reserve(job("c"))
    assert caught.value.queue_depth == 2
    assert caught.value.retry_after_s > 0
    assert scheduler.in_flight == 2


def test_more_sound_than_the_limit_is_refused_but_one_job_is_always_let_in() -> None:
    scheduler: Scheduler[Entry] = Scheduler(100, max_frames=80)
    scheduler.reserve(job("a", cost_frames=1000))
    with pytest.raises(Overloaded) as caught:
        scheduler.reserve(job("b", cost_frames=10))
    assert (caught.value.queue_depth, caught.value.position) == (1, 2)
    scheduler.reserve(job("part", cost_frames=10, continuation=True))
    scheduler.release(job("a"))
    # Half of the ceiling is expected to be used: 5 + 50 of 80, then 5 + 50 + 50.
    scheduler.reserve(job("c", cost_frames=100))
    with pytest.raises(Overloaded):
        scheduler.reserve(job("d", cost_frames=100))


def filled(capacity: int, *tenants: str, **settings: float) -> Scheduler[Entry]:
    """Each tenant in turn takes all it is let have."""
    scheduler: Scheduler[Entry] = Scheduler(capacity, **settings)
    for tenant in tenants:
        while lets_in(scheduler, tenant):
            pass
    return scheduler


numbers = itertools.count()


def lets_in(scheduler: Scheduler[Entry], tenant: str, **fields: object) -> bool:
    try:
        scheduler.reserve(job(f"{tenant}-{next(numbers)}", tenant=tenant, **fields))
    except Overloaded:
        return False
    return True


def test_one_tenant_alone_gets_all_permits_and_no_more() -> None:
    assert filled(6, "greedy").in_flight == 6


def test_a_flood_leaves_room_for_an_equal_share_of_every_other_tenant() -> None:
    assert filled(6, "greedy", "modest").in_flight == 6 + 3
    assert filled(6, "greedy", "modest", "third").in_flight == 6 + 3 + 2
    assert not lets_in(filled(6, "greedy", "modest"), "greedy")


def test_a_flood_of_sound_leaves_room_for_others_too() -> None:
    # Half of a ceiling of 100 frames is expected to be used: six of them are let in.
    scheduler = filled(100, "greedy", max_frames=300)
    assert scheduler.in_flight == 6
    assert [lets_in(scheduler, "modest") for _ in range(4)] == [True, True, True, False]


def test_all_tenants_together_never_get_more_than_twice_the_permits() -> None:
    assert filled(4, *"abcdefgh").in_flight == 2 * 4
    assert filled(100, *"abcdefgh", max_frames=300).in_flight == 2 * 6


def test_more_tenants_than_permits_still_get_one_each_up_to_twice_as_many() -> None:
    scheduler: Scheduler[Entry] = Scheduler(3)
    assert [lets_in(scheduler, tenant) for tenant in "abcdefg"] == [True] * 6 + [False]


def test_who_held_too_much_is_let_in_again_below_the_limit() -> None:
    scheduler: Scheduler[Entry] = Scheduler(2)
    jobs = [job(name, tenant="greedy") for name in "ab"]
    for each in jobs:
        scheduler.reserve(each)
    modest = job("m", tenant="modest")
    scheduler.reserve(modest)
    scheduler.release(jobs[0])
    assert not lets_in(scheduler, "greedy")  # two are left, and one of them is its own
    scheduler.release(modest)
    assert lets_in(scheduler, "greedy")


def test_a_tenant_that_has_left_no_longer_counts() -> None:
    scheduler = filled(4, "greedy")
    guest = job("guest", tenant="guest")
    scheduler.reserve(guest)
    scheduler.release(guest)
    assert [lets_in(scheduler, "modest") for _ in range(3)] == [True, True, False]


def test_a_released_permit_can_be_taken_again() -> None:
    scheduler: Scheduler[Entry] = Scheduler(1)
    first = job("a")
    scheduler.reserve(first)
    scheduler.release(first)
    scheduler.reserve(job("b"))
    assert scheduler.in_flight == 1


def test_releasing_twice_gives_back_one_permit() -> None:
    scheduler: Scheduler[Entry] = Scheduler(2)
    first = job("a")
    scheduler.reserve(first)
    scheduler.reserve(job("b"))
    scheduler.release(first)
    scheduler.release(first)
    assert scheduler.in_flight == 1


def test_a_continuation_is_accepted_when_full() -> None:
    scheduler: Scheduler[Entry] = Scheduler(1)
    scheduler.reserve(job("a"))
    scheduler.reserve(job("a.1", continuation=True))
    assert scheduler.in_flight == 2
    with pytest.raises(Overloaded):
        scheduler.reserve(job("b"))


def test_the_wait_is_the_frames_ahead_over_the_measured_rate() -> None:
    scheduler: Scheduler[Entry] = Scheduler(2)
    scheduler.note_rate(50, 1.0)
    scheduler.reserve(job("a", cost_frames=100))
    scheduler.reserve(job("b", cost_frames=300))
    with pytest.raises(Overloaded) as caught:
        scheduler.reserve(job("c"))
    # Until measured, half of a frame ceiling is taken to be used.
    assert caught.value.retry_after_s == pytest.approx(400 * 0.5 / 50)
    assert "try again in 4 s" in str(caught.value)


def test_the_wait_learns_what_share_of_their_ceiling_jobs_use() -> None:
    scheduler: Scheduler[Entry] = Scheduler(1)
    scheduler.note_rate(10, 1.0)
    for index in range(200):
        each = job(str(index), cost_frames=100)
        scheduler.reserve(each)
        scheduler.release(each, 20)
    scheduler.reserve(job("last", cost_frames=100))
    with pytest.raises(Overloaded) as caught:
        scheduler.reserve(job("c"))
    assert caught.value.retry_after_s == pytest.approx(2.0, rel=1e-3)


def test_a_refusal_never_says_to_come_back_at_once() -> None:
    scheduler: Scheduler[Entry] = Scheduler(0)
    scheduler.note_rate(1000, 1.0)
    with pytest.raises(Overloaded, match="try again in 1 s"):
        scheduler.reserve(job("a"))


# Rate


def test_the_rate_starts_at_the_first_measurement_and_is_smoothed_after() -> None:
    scheduler: Scheduler[Entry] = Scheduler(1)
    assert scheduler.frames_per_second == 0
    scheduler.note_rate(20, 2.0)
    assert scheduler.frames_per_second == 10
    scheduler.note_rate(30, 1.0)
    assert scheduler.frames_per_second == pytest.approx(11)
    for _ in range(300):
        scheduler.note_rate(30, 1.0)
    assert scheduler.frames_per_second == pytest.approx(30, rel=1e-3)


@pytest.mark.parametrize(("frames", "seconds"), [(0, 1.0), (5, 0.0), (0, 0.0)])
def test_a_step_without_frames_or_time_says_nothing_about_the_rate(
    frames: int, seconds: float
) -> None:
    scheduler: Scheduler[Entry] = Scheduler(1)
    scheduler.note_rate(20, 2.0)
    scheduler.note_rate(frames, seconds)
    assert scheduler.frames_per_second == 10


# Order


def test_equal_jobs_run_in_the_order_they_arrived() -> None:
    scheduler = queue_of(entry("b", arrival=2.0), entry("a", arrival=1.0), entry("c", arrival=3.0))
    assert order(scheduler) == ["a", "b", "c"]


def test_a_higher_priority_runs_before_an_earlier_arrival() -> None:
    scheduler = queue_of(entry("early", arrival=1.0), entry("urgent", arrival=2.0, priority=1))
    assert order(scheduler) == ["urgent", "early"]


def test_a_continuation_runs_before_any_priority() -> None:
    scheduler = queue_of(
        entry("urgent", arrival=1.0, priority=9),
        entry("speaking", arrival=2.0, continuation=True),
    )
    assert order(scheduler) == ["speaking", "urgent"]


def test_a_tenant_with_many_jobs_does_not_shut_out_another() -> None:
    scheduler = queue_of(
        *(entry(f"big{i}", tenant="big", arrival=float(i)) for i in range(4)),
        *(entry(f"small{i}", tenant="small", arrival=10.0 + i) for i in range(2)),
    )
    assert order(scheduler) == ["big0", "small0", "big1", "small1", "big2", "big3"]


def test_fairness_counts_frames_and_not_jobs() -> None:
    scheduler = queue_of(
        entry("long", tenant="a", arrival=0.0, cost_frames=300),
        entry("next", tenant="a", arrival=1.0),
        *(entry(f"short{i}", tenant="b", arrival=2.0 + i, cost_frames=100) for i in range(3)),
    )
    assert order(scheduler) == ["long", "short0", "short1", "short2", "next"]


def test_priority_stands_above_fairness() -> None:
    jobs = [job("greedy", tenant="a", priority=1, arrival=5.0), job("modest", tenant="b")]
    assert fair(jobs, {"a": 10_000}) == 0


def test_debts_are_forgotten_when_nobody_waits() -> None:
    scheduler = queue_of(entry("first", tenant="a", cost_frames=10_000))
    assert order(scheduler) == ["first"]
    scheduler.push(entry("again", tenant="a", arrival=1.0))
    scheduler.push(entry("other", tenant="b", arrival=2.0))
    assert order(scheduler) == ["again", "other"]


def test_another_policy_can_be_given() -> None:
    scheduler: Scheduler[Entry] = Scheduler(10, policy=lambda jobs, served: len(jobs) - 1)
    for name in "abc":
        scheduler.push(entry(name))
    assert order(scheduler) == ["c", "b", "a"]


def test_a_runner_takes_only_the_jobs_of_its_model() -> None:
    scheduler = queue_of(
        entry("a", model="one"), entry("b", model="two"), entry("c", model="one", arrival=1.0)
    )
    assert scheduler.take("three") is None
    assert order(scheduler, "two") == ["b"]
    assert order(scheduler, "one") == ["a", "c"]
    assert scheduler.queued == 0


# Leaving without having run


def test_a_sweep_takes_out_ended_and_expired_entries_only() -> None:
    cancelled, finished = entry("cancelled"), entry("finished")
    late, patient, endless = entry("late", deadline=5.0), entry("p", deadline=5.1), entry("e")
    cancelled.stream.cancel()
    finished.stream.finish(Finished(FinishReason.STOP, Stats(frames=0, seed=0)))
    scheduler = queue_of(cancelled, patient, late, finished, endless)
    assert scheduler.sweep(now=5.05) == [cancelled, late, finished]
    assert scheduler.queued == 2
    assert scheduler.sweep(now=5.05) == []


def test_a_deadline_is_not_over_at_its_own_moment() -> None:
    scheduler = queue_of(entry("a", deadline=5.0))
    assert scheduler.sweep(now=5.0) == []
    assert len(scheduler.sweep(now=5.001)) == 1


def test_draining_hands_out_everything_that_waits() -> None:
    first, second = entry("a"), entry("b", model="other")
    scheduler = queue_of(first, second)
    assert scheduler.drain() == [first, second]
    assert scheduler.drain() == []
    assert scheduler.queued == 0


def test_it_tells_whether_a_model_has_somebody_waiting() -> None:
    scheduler = queue_of(entry("a", model="one"))
    assert scheduler.waits("one")
    assert not scheduler.waits("two")
    scheduler.take("one")
    assert not scheduler.waits("one")
