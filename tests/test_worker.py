"""The worker's loop over scripted runners: order, privacy of failures, and an end for everyone."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from engine.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    GenerationFailed,
)
from engine.incoming import OpenInput
from engine.pieces import Chores, Steps
from engine.request import FinishReason, Job
from engine.running import Books, Retired
from engine.scheduler import Scheduler
from engine.stream import Audio, Finished, Stats, Stream
from engine.worker import Call, Cancel, Stop, Submit, Wake, Work, Worker
from tests.waiting import PATIENCE_S, eventually, promptly


@dataclass(eq=False)
class Entry:
    """`pieces` are the names of what has to be made before it may be admitted."""

    job: Job
    stream: Stream
    pieces: tuple[str, ...] = ()
    input: OpenInput | None = None


@dataclass(eq=False)
class Running:
    entry: Entry
    frames: int = 0
    over: bool = False


def nothing() -> None:
    pass


@dataclass(eq=False)
class ScriptedRunner:
    """The worker's side of a runner, over no tensors: one frame per step, `cost_frames` in all.

    `on_step` runs inside each step; `paused` makes it wait as for slow readers.
    """

    log: list[str]
    name: str = "tiny"
    width: int = 4
    on_step: Callable[[], None] = nothing
    on_clear: Callable[[], None] = nothing
    paused: bool = False
    frames_total: int = 0
    retired: list[Retired] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots: list[Running | None] = [None] * self.width

    @property
    def capacity(self) -> int:
        return self.width

    @property
    def free(self) -> int:
        return self.slots.count(None)

    @property
    def busy(self) -> bool:
        return not self.paused and self.free < self.width

    def ready(self, entry: Entry) -> Entry | None:
        return None if entry.pieces else entry

    def prepare(self, entry: Entry) -> Steps[Entry]:
        for piece in entry.pieces:
            self.log.append(f"piece {piece} of {entry.job.id}")
            if piece == "broken":
                raise RuntimeError("out of order")
            yield
        return replace(entry, pieces=())

    def admit(self, entry: Entry, now: float) -> None:
        self.log.append(f"admit {entry.job.id}")
        self.slots[self.slots.index(None)] = Running(entry)

    def step(self, now: float) -> None:
        self.log.append(f"step {self.name}")
        self.on_step()
        for index, running in enumerate(self.slots):
            if running is None:
                continue
            running.entry.stream.publish(Audio(running.frames, np.zeros(4, np.float32)))
            running.frames += 1
            self.frames_total += 1
            if running.frames == running.entry.job.cost_frames:
                stats = Stats(frames=running.frames, seed=0)
                running.entry.stream.finish(Finished(FinishReason.LENGTH, stats))
                self.slots[index] = None
                self.retired.append(Retired(running.entry, "length", running.frames))

    def sweep(self, now: float) -> None:
        for running in [r for r in self.slots if r is not None]:
            if running.entry.stream.ended:
                self.release(running, Cancelled("cancelled"))

    def cancel(self, job_id: str) -> None:
        self.log.append(f"cancel {job_id}")
        for running in [r for r in self.slots if r and r.entry.job.id == job_id]:
            self.release(running, Cancelled("cancelled"))

    def fail_all(self, error: EngineError) -> None:
        running = [r for r in self.slots if r is not None]
        for each in running:
            self.end(each, error)
        for each in running:
            self.clear(each)

    def take_retired(self) -> list[Retired]:
        retired, self.retired = self.retired, []
        return retired

    def release(self, running: Running, error: EngineError) -> None:
        self.end(running, error)
        self.clear(running)

    def end(self, running: Running, error: EngineError) -> None:
        running.entry.stream.fail(error)
        self.retired.append(Retired(running.entry, type(error).__name__, running.frames))

    def clear(self, running: Running) -> None:
        self.on_clear()
        self.slots[self.slots.index(running)] = None

    nbytes = 0
    stalled = False

    def stalls(self, now: float) -> bool:
        return self.stalled and self.free < self.width

    def books(self) -> Books:
        return Books(self.width, self.free, 0, 0)


class House:
    """A worker over scripted runners, with a clock that the test turns."""

    def __init__(self, *names: str, width: int = 4, capacity: int = 100) -> None:
        self.log: list[str] = []
        self.now = 100.0
        self.runners = [ScriptedRunner(self.log, name, width) for name in names or ("tiny",)]
        self.scheduler: Scheduler[Any] = Scheduler(capacity)
        runners: Any = self.runners
        self.worker = Worker(runners, self.scheduler, clock=lambda: self.now)

    @property
    def runner(self) -> ScriptedRunner:
        return self.runners[0]

    def submit(
        self, name: str, frames: int = 2, pieces: tuple[str, ...] = (), **fields: Any
    ) -> Stream:
        job = Job(name, **{"model": "tiny", "cost_frames": frames, "arrival": 0.0, **fields})
        stream = Stream(name, seed=0, sample_rate=24_000, max_bytes=10**9)
        self.scheduler.reserve(job)
        self.worker.post(Submit(Entry(job, stream, pieces)))  # type: ignore[arg-type]
        return stream

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.worker.post(Call(function, future))
        return future

    def between_frames(self) -> None:
        """Return once the worker has handled everything that was posted before."""
        for _ in range(2):
            self.call(nothing).result(PATIENCE_S)


def outcome(stream: Stream) -> str:
    """How a stream ends: the finish reason or the error's name."""
    try:
        *_, end = promptly(lambda: list(stream))
    except EngineError as error:
        return type(error).__name__
    assert isinstance(end, Finished)
    return end.reason.value


@pytest.fixture
def houses() -> Iterator[Callable[..., House]]:
    made: list[House] = []

    def build(*names: str, **settings: Any) -> House:
        made.append(House(*names, **settings))
        return made[-1]

    yield build
    for house in made:
        if house.worker._thread.ident is None:
            house.worker.start()
        house.worker.post(Stop())
        house.worker.join(PATIENCE_S)
        assert not house.worker.alive
        assert house.scheduler.in_flight == 0


Houses = Callable[..., House]


def raises(error: Exception) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


# The order of things


def one_piece_at_a_time(house: House) -> House:
    """Its clock for longer work runs so fast that no second piece is begun."""
    ticks = itertools.count()
    house.worker._chores = Chores(clock=lambda: float(next(ticks)))
    return house


def test_all_that_fit_are_admitted_before_the_next_frame(houses: Houses) -> None:
    house = houses(width=2)
    streams = [house.submit(name, frames=2) for name in "abc"]
    house.worker.start()
    assert [outcome(stream) for stream in streams] == ["length"] * 3
    assert house.log[:5] == ["admit a", "admit b", "step tiny", "step tiny", "admit c"]


def test_every_runner_admits_and_steps_in_the_same_round(houses: Houses) -> None:
    house = houses("one", "two")
    house.submit("a", model="one")
    house.submit("b", model="two")
    last = house.submit("c", model="two")
    house.worker.start()
    assert outcome(last) == "length"
    assert house.log[:5] == ["admit a", "admit b", "admit c", "step one", "step two"]


def test_a_request_waits_for_a_free_slot(houses: Houses) -> None:
    house = houses(width=1)
    first, second = house.submit("a", frames=3), house.submit("b", frames=1)
    house.worker.start()
    assert [outcome(first), outcome(second)] == ["length", "length"]
    assert house.log == ["admit a", *["step tiny"] * 3, "admit b", "step tiny"]


def test_the_queue_moves_on_without_waiting_for_a_command(
    houses: Houses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that sleeps while a slot is free and somebody waits would sleep for an hour here.
    monkeypatch.setattr("engine.worker._TICK_S", 3600.0)
    house = houses(width=1)
    streams = [house.submit(name, frames=1) for name in "abc"]
    house.worker.start()
    assert [outcome(stream) for stream in streams] == ["length"] * 3


def test_a_queue_for_a_full_runner_does_not_keep_the_thread_spinning(houses: Houses) -> None:
    house = houses("one", "two", width=1)
    house.submit("a", model="one", frames=1)
    house.worker.start()
    house.between_frames()
    house.runners[0].paused = True
    held = house.submit("b", model="one", frames=1)
    house.between_frames()
    waiting = house.submit("c", model="one", frames=1)
    house.between_frames()
    assert house.scheduler.queued == 1
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1

    sweep = house.runners[1].sweep
    house.runners[1].sweep = lambda now: (count(), sweep(now))[1]  # type: ignore[method-assign]
    threading.Event().wait(0.05)
    assert looks <= 2
    house.runners[0].paused = False
    house.worker.post(Wake())
    assert [outcome(held), outcome(waiting)] == ["length", "length"]


def test_commands_are_handled_between_frames_and_on_the_worker_thread(houses: Houses) -> None:
    house, inside = houses(), threading.Event()
    entered, leave = threading.Event(), threading.Event()

    def step() -> None:
        inside.set()
        entered.set()
        assert leave.wait(PATIENCE_S)
        inside.clear()

    house.runner.on_step = step
    stream = house.submit("a", frames=3)
    house.worker.start()
    assert entered.wait(PATIENCE_S)
    seen = house.call(lambda: (inside.is_set(), threading.current_thread().name))
    assert not seen.done()
    leave.set()
    assert seen.result(PATIENCE_S) == (False, "framecast-worker")
    assert outcome(stream) == "length"


def test_a_posted_wake_resumes_a_paused_runner(houses: Houses) -> None:
    house = houses()
    house.runner.paused = True
    stream = house.submit("a", frames=1)
    house.worker.start()
    house.between_frames()
    assert house.log == ["admit a"]
    house.runner.paused = False
    house.worker.post(Wake())
    assert outcome(stream) == "length"


# Calls


def test_a_call_returns_its_result_or_its_exception(houses: Houses) -> None:
    house = houses()
    house.worker.start()
    assert house.call(lambda: 42).result(PATIENCE_S) == 42
    with pytest.raises(KeyError):
        house.call(lambda: {}["missing"]).result(PATIENCE_S)
    with pytest.raises(SystemExit):
        house.call(raises(SystemExit(3))).result(PATIENCE_S)  # type: ignore[arg-type]
    assert house.worker.alive


def test_a_call_given_up_before_its_turn_is_not_run(houses: Houses) -> None:
    house, ran = houses(), []
    future = house.call(lambda: ran.append(1))
    assert future.cancel()
    house.worker.start()
    house.between_frames()
    assert ran == []
    assert house.worker.alive


# Counting


def test_ends_are_counted_by_reason_and_permits_come_back(houses: Houses) -> None:
    house = houses(width=1)
    done, gone = house.submit("a", frames=1), house.submit("b", frames=1)
    gone.cancel()
    late = house.submit("c", frames=1, deadline=house.now - 1)
    house.worker.start()
    assert outcome(done) == "length"
    assert outcome(late) == "DeadlineExceeded"
    assert eventually(lambda: house.scheduler.in_flight == 0)
    assert house.worker.finished == {"length": 1, "Cancelled": 1, "DeadlineExceeded": 1}


def test_the_rate_of_frames_is_measured(houses: Houses) -> None:
    house = houses()
    stream = house.submit("a", frames=3)
    house.worker.start()
    assert outcome(stream) == "length"
    assert house.scheduler.frames_per_second > 0


# Deadlines and cancels


def test_a_deadline_that_passes_in_the_queue_ends_the_request(houses: Houses) -> None:
    house = houses(width=1)
    house.runner.paused = True
    house.submit("holds the slot")
    house.worker.start()
    house.between_frames()
    stream = house.submit("late", deadline=house.now + 5)
    house.between_frames()
    assert not stream.ended
    house.now += 6
    house.worker.post(Wake())
    with pytest.raises(DeadlineExceeded, match="in the queue"):
        promptly(lambda: list(stream))
    assert eventually(lambda: house.scheduler.in_flight == 1)


def test_a_request_cancelled_in_the_queue_never_runs(houses: Houses) -> None:
    house = houses(width=1)
    house.runner.paused = True
    house.submit("a")
    house.worker.start()
    house.between_frames()
    stream = house.submit("b")
    stream.cancel()
    house.worker.post(Cancel("b"))
    assert eventually(lambda: house.scheduler.in_flight == 1)
    assert "admit b" not in house.log


def test_a_cancel_frees_the_slot_of_that_request_only(houses: Houses) -> None:
    house = houses()
    house.runner.paused = True
    keep, leave = house.submit("keep", frames=1), house.submit("leave", frames=1)
    house.worker.start()
    house.between_frames()
    house.between_frames()
    assert house.worker.active == 2
    leave.cancel()
    house.worker.post(Cancel("leave"))
    house.between_frames()
    assert house.worker.active == 1
    house.runner.paused = False
    house.worker.post(Wake())
    assert outcome(keep) == "length"


def test_a_cancel_of_an_unknown_request_is_harmless(houses: Houses) -> None:
    house = houses()
    house.worker.start()
    house.worker.post(Cancel("nobody"))
    assert outcome(house.submit("a")) == "length"


# Failures


def test_a_failed_step_ends_only_the_requests_of_its_runner(houses: Houses) -> None:
    house = houses("one", "two")
    house.runners[0].on_step = raises(ValueError("bad frame"))
    failed = [house.submit(name, model="one", frames=2) for name in "ab"]
    fine = house.submit("c", model="two", frames=3)
    house.worker.start()
    with pytest.raises(GenerationFailed, match="bad frame"):
        promptly(lambda: list(failed[0]))
    assert outcome(fine) == "length"
    house.runners[0].on_step = nothing
    assert house.worker.alive


def test_the_worker_goes_on_after_a_failed_step(houses: Houses) -> None:
    house = houses()
    house.runner.on_step = raises(ValueError("bad frame"))
    house.worker.start()
    assert outcome(house.submit("a")) == "GenerationFailed"
    house.runner.on_step = nothing
    assert outcome(house.submit("b")) == "length"
    assert house.worker.fault is None


def test_three_failed_steps_in_a_row_are_a_lost_device(houses: Houses) -> None:
    house = houses()
    house.runner.on_step = raises(ValueError("bad frame"))
    house.worker.start()
    assert outcome(house.submit("a")) == "GenerationFailed"
    assert outcome(house.submit("b")) == "GenerationFailed"
    assert house.worker.alive
    assert outcome(house.submit("c")) == "GenerationFailed"
    house.worker.join(PATIENCE_S)
    assert not house.worker.alive
    assert house.worker.fault == "the device is lost: bad frame"


def test_a_frame_that_succeeds_between_failures_forgives_them(houses: Houses) -> None:
    house = houses()
    house.worker.start()
    for _ in range(3):
        for name, expected in (("a", "GenerationFailed"), ("b", "GenerationFailed")):
            house.runner.on_step = raises(ValueError("bad frame"))
            assert outcome(house.submit(name)) == expected
            house.between_frames()
        house.runner.on_step = nothing
        assert outcome(house.submit("c")) == "length"
        house.between_frames()
    assert house.worker.alive


class AcceleratorError(RuntimeError):
    """Named like the one torch raises."""


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA error: an illegal memory access"), AcceleratorError("device assert")],
    ids=["message", "class"],
)
def test_a_device_error_ends_everything_at_once(houses: Houses, error: Exception) -> None:
    house = houses("tiny", "other", width=1)
    house.runner.on_step = raises(error)
    streams = [house.submit("a", frames=9), house.submit("queued")]
    streams.append(house.submit("elsewhere", model="other", frames=10**9))
    house.worker.start()
    house.worker.join(PATIENCE_S)
    assert not house.worker.alive
    assert [outcome(stream) for stream in streams] == [
        "GenerationFailed",
        "EngineUnavailable",
        "EngineUnavailable",
    ]
    assert house.scheduler.in_flight == 0


def test_every_stream_ends_even_when_freeing_a_slot_fails(
    houses: Houses, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    house = houses("tiny", "other", width=2)
    lost = raises(RuntimeError("CUDA error: device lost"))
    house.runner.on_clear = lost
    streams = [house.submit(name, frames=10**9) for name in "abc"]
    streams.append(house.submit("elsewhere", model="other", frames=10**9))
    future: list[Future[Any]] = []

    def step() -> None:
        if house.runner.free == 0:
            future.append(house.call(nothing))
            lost()

    house.runner.on_step = step
    house.worker.start()
    house.worker.join(PATIENCE_S)
    assert not house.worker.alive
    assert all(stream.ended for stream in streams)
    assert isinstance(future[0].exception(PATIENCE_S), EngineUnavailable)


# Longer work


def test_what_a_request_needs_first_is_made_in_pieces_between_frames(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    speaking = house.submit("speaking", frames=5)
    prepared = house.submit("late", frames=1, pieces=("one", "two"))
    house.worker.start()
    assert [outcome(speaking), outcome(prepared)] == ["length"] * 2
    assert house.log == [
        "admit speaking",
        "step tiny",
        "piece one of late",
        "step tiny",
        "piece two of late",
        "step tiny",
        "admit late",
        *["step tiny"] * 2,
    ]


def test_longer_work_is_done_one_after_the_other(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    streams = [house.submit(name, frames=1, pieces=("one", "two")) for name in "ab"]
    house.worker.start()
    assert [outcome(stream) for stream in streams] == ["length"] * 2
    pieces = [line.removeprefix("piece ") for line in house.log if line.startswith("piece")]
    assert pieces == ["one of a", "two of a", "one of b", "two of b"]


def test_a_request_that_needs_nothing_overtakes_one_that_does(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    house.submit("slow", frames=1, pieces=("one", "two", "three"))
    quick = house.submit("quick", frames=1)
    house.worker.start()
    assert outcome(quick) == "length"
    assert eventually(lambda: "admit slow" in house.log)
    assert house.log.index("admit quick") < house.log.index("piece two of slow")


def test_longer_work_gives_way_to_a_listener_in_need_but_not_for_long(houses: Houses) -> None:
    house = houses()
    speaking = house.submit("speaking", frames=10**9)
    house.worker.start()
    house.between_frames()
    house.worker._chore_at = house.now
    house.runner.stalled = True
    house.submit("late", frames=1, pieces=("one",), arrival=house.now)
    house.between_frames()
    assert "piece one of late" not in house.log
    house.now += 0.6
    assert eventually(lambda: "admit late" in house.log)
    speaking.cancel()


def test_longer_work_nobody_waits_for_is_given_up_at_once(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    left = house.submit("left", pieces=tuple("abc"))
    late = house.submit("late", pieces=("one",), deadline=99.0)
    future: Future[Any] = Future()
    house.worker.post(Work(iter_pieces(house, "abc"), future))
    left.cancel()
    future.cancel()
    house.worker.start()
    assert outcome(late) == "DeadlineExceeded"
    assert eventually(lambda: house.worker.chores == 0)
    house.between_frames()
    assert [line for line in house.log if line.startswith("piece")] == []
    assert house.worker.finished == {"Cancelled": 1, "DeadlineExceeded": 1}


def test_work_that_fails_fails_alone(houses: Houses, caplog: pytest.LogCaptureFixture) -> None:
    house = houses()
    broken = house.submit("broken", pieces=("broken",))
    fine = house.submit("fine", frames=1, pieces=("one",))
    house.worker.start()
    assert outcome(broken) == "GenerationFailed"
    assert outcome(fine) == "length"
    assert "out of order" in caplog.text


def test_work_without_a_request_answers_its_future(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    future: Future[Any] = Future()
    house.worker.post(Work(iter_pieces(house, "ab"), future))
    house.worker.start()
    assert future.result(PATIENCE_S) == "made of ab"
    assert house.log == ["piece a", "piece b"]


def test_work_left_when_the_worker_stops_is_refused(houses: Houses) -> None:
    house = one_piece_at_a_time(houses())
    asked = [house.submit(name, pieces=tuple("abc")) for name in "ab"]
    futures: list[Future[Any]] = [Future(), Future()]
    house.worker.post(Work(iter_pieces(house, "ab"), futures[0]))
    house.worker.post(Stop())
    house.worker.start()
    house.worker.join(PATIENCE_S)
    house.worker.post(Work(iter_pieces(house, "ab"), futures[1]))
    assert [outcome(stream) for stream in asked] == ["EngineUnavailable"] * 2
    for future in futures:
        assert isinstance(future.exception(PATIENCE_S), EngineUnavailable)


def iter_pieces(house: House, names: str) -> Steps[str]:
    for name in names:
        house.log.append(f"piece {name}")
        yield
    return f"made of {names}"


# The end


def test_stopping_ends_running_and_queued_requests_and_pending_calls(houses: Houses) -> None:
    house = houses(width=1)
    entered, leave = threading.Event(), threading.Event()

    def step() -> None:
        entered.set()
        assert leave.wait(PATIENCE_S)

    house.runner.on_step = step
    streams = [house.submit("runs", frames=10**9), house.submit("waits")]
    house.worker.start()
    assert entered.wait(PATIENCE_S)
    house.worker.post(Stop())
    streams.append(house.submit("behind the stop"))
    called = house.call(lambda: "still answered")
    leave.set()
    house.worker.join(PATIENCE_S)
    for stream in streams:
        with pytest.raises(EngineUnavailable, match="stopped"):
            promptly(lambda s=stream: list(s))
    assert called.result(PATIENCE_S) == "still answered"  # received with the stop
    assert house.scheduler.in_flight == 0
    assert house.worker.finished == {"EngineUnavailable": 3}


def test_what_is_posted_after_the_end_gets_an_error(houses: Houses) -> None:
    house = houses()
    house.worker.start()
    house.worker.post(Stop())
    house.worker.join(PATIENCE_S)
    assert outcome(house.submit("late")) == "EngineUnavailable"
    with pytest.raises(EngineUnavailable, match="stopped"):
        house.call(nothing).result(PATIENCE_S)
    house.worker.post(Wake())
    house.worker.post(Cancel("late"))
    assert house.scheduler.in_flight == 0


def test_posting_while_the_worker_stops_leaves_nothing_hanging(houses: Houses) -> None:
    house = houses()
    house.worker.start()
    streams: list[Stream] = []
    futures: list[Future[Any]] = []

    def post(poster: int) -> None:
        for index in range(200):
            streams.append(house.submit(f"{poster}-{index}", frames=1))
            futures.append(house.call(nothing))

    house.scheduler._capacity = 10**6
    threads = [threading.Thread(target=post, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    house.worker.post(Stop())
    for thread in threads:
        thread.join(PATIENCE_S)
    house.worker.join(PATIENCE_S)
    assert all(stream.ended for stream in streams)
    assert all(future.done() for future in futures)
    assert len(streams) == len(futures) == 800


def test_a_call_given_up_while_the_worker_stops_keeps_nobody_waiting(houses: Houses) -> None:
    house = houses(width=1)
    entered, leave = threading.Event(), threading.Event()

    def step() -> None:
        entered.set()
        assert leave.wait(PATIENCE_S)
        raise RuntimeError("CUDA error: device lost")

    house.runner.on_step = step
    house.submit("a")
    house.worker.start()
    assert entered.wait(PATIENCE_S)
    given_up, waiting = house.call(nothing), house.call(nothing)
    queued = house.submit("b")
    assert given_up.cancel()
    leave.set()
    assert isinstance(waiting.exception(PATIENCE_S), EngineUnavailable)
    assert outcome(queued) == "EngineUnavailable"


def test_a_bug_in_the_loop_is_a_fault_and_not_a_hang(houses: Houses) -> None:
    house = houses(width=1)
    house.runner.paused = True
    running = house.submit("a")
    house.worker.start()
    house.between_frames()
    queued = house.submit("b")
    house.runner.sweep = lambda now: raises(RuntimeError("a bug"))()  # type: ignore[method-assign]
    house.worker.post(Wake())
    house.worker.join(PATIENCE_S)
    assert not house.worker.alive
    assert house.worker.fault == "the worker stopped: a bug"
    assert outcome(running) == outcome(queued) == "EngineUnavailable"
