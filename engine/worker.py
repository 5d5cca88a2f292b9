"""The thread that owns the accelerator: receive, admit, step, publish, retire.

Others talk to it by posting commands; nothing else crosses. It steps every runner through the
same few methods and knows neither text nor sound.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from engine.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    GenerationFailed,
)
from engine.pieces import Chores, Promised, Steps
from engine.running import Runner, Waiting
from engine.scheduler import Scheduler, lacks_input

log = logging.getLogger("framecast.engine")

# A paused or queued request is looked at this often: slow readers and deadlines need no more.
_TICK_S = 0.25
# Longer work gives way to running listeners for so long, and no longer.
_MOST_PATIENCE_S = 0.5
# As many failed steps in a row, with nothing made between them, mean that the device is gone.
_STRIKES = 3
# Between two frames so much longer work is done: half a frame.
_PIECES_S = 0.04


@dataclass(frozen=True, slots=True, eq=False)
class Submit:
    entry: Waiting


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """More of an open input."""

    entry: Waiting
    items: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class EndInput:
    """The last of an open input, and the frame ceiling that follows from the whole."""

    entry: Waiting
    items: Sequence[int]
    ceiling: int


@dataclass(frozen=True, slots=True)
class Cancel:
    job_id: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Run something between two frames; its result or exception goes to `future`."""

    function: Callable[[], Any]
    future: Future[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Something longer, done in pieces between frames, in order of arrival; cancel its future to
    give it up."""

    steps: Steps[Any]
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class Wake:
    """A paused stream has room again."""


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Submit | Append | EndInput | Cancel | Call | Work | Wake | Stop


class Worker:
    """Runs the loop on its own thread until stopped or until the device is lost."""

    def __init__(
        self,
        runners: Sequence[Runner[Any]],
        scheduler: Scheduler[Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.finished: Counter[str] = Counter()
        self.fault: str | None = None
        self._runners = runners
        self._scheduler = scheduler
        self._clock = clock
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._posting = threading.Lock()
        self._closed: EngineError | None = None
        self._stopping = False
        self._strikes = 0
        self._by_name = {runner.name: runner for runner in runners}
        self._chores = Chores()
        self._chore_at = 0.0
        self._thread = threading.Thread(target=self._run, name="framecast-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, command: Command) -> None:
        """Hand a command to the thread; after its end what needs an answer gets an error."""
        with self._posting:
            if self._closed is None:
                self._inbox.put(command)
                return
        self._refuse(command, self._closed)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.fault is None

    @property
    def active(self) -> int:
        return sum(runner.capacity - runner.free for runner in self._runners)

    @property
    def chores(self) -> int:
        """What waits to be made: voices of requests, and of clips by themselves."""
        return len(self._chores)

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._receive()
                now = self._clock()
                self._sweep(now)
                self._admit(now)
                self._step(now)
                self._work(now)
                self._retire()
        except BaseException as error:
            log.exception("the worker stopped")
            self.fault = f"the worker stopped: {error}"
        finally:
            self._close()

    def _receive(self) -> None:
        idle = not any(runner.busy or self._admits(runner) for runner in self._runners)
        wait = idle and not self._chores
        try:
            # With nothing to run the thread sleeps here, forever or until the next look.
            held = self.active or self._scheduler.queued
            command = self._inbox.get(wait, _TICK_S if held else None)
            while True:
                self._handle(command)
                command = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _handle(self, command: Command) -> None:
        match command:
            case Submit(entry):
                self._accept(entry)
            case Append(entry, items) if entry.input is not None:
                entry.input.append(items)
            case EndInput(entry, items, ceiling) if entry.input is not None:
                entry.input.end(items, ceiling)
            case Cancel(job_id):
                for runner in self._runners:
                    runner.cancel(job_id)
            case Call(function, future):
                _call(function, future)
            case Work(steps, future):
                self._chores.add(Promised(steps, future))
            case Stop():
                self._stopping = True
            case Wake():
                pass

    def _accept(self, entry: Waiting) -> None:
        runner = self._by_name[entry.job.model]
        if (ready := runner.ready(entry)) is not None:
            self._scheduler.push(ready)
        else:
            self._chores.add(_Preparation(self, entry, runner.prepare(entry)))

    def _sweep(self, now: float) -> None:
        self._chores.sweep(now)
        for entry in self._scheduler.sweep(now):
            self._expire(entry, now)
        for runner in self._runners:
            runner.sweep(now)

    def _admit(self, now: float) -> None:
        # A slot costs nothing; what has to be processed in it the runner does between frames.
        for runner in self._runners:
            while self._admits(runner) and (entry := self._scheduler.take(runner.name)):
                runner.admit(entry, now)

    def _admits(self, runner: Runner[Any]) -> bool:
        return runner.free > 0 and self._scheduler.waits(runner.name)

    def _step(self, now: float) -> None:
        for runner in self._runners:
            if not runner.busy:
                continue
            before, start = runner.frames_total, time.perf_counter()
            try:
                runner.step(now)
            except Exception as error:
                self._failed(runner, error)
                continue
            self._strikes = 0
            made = runner.frames_total - before
            self._scheduler.note_rate(made, time.perf_counter() - start)

    def _work(self, now: float) -> None:
        if not self._chores or self._stopping:
            return
        busy = any(runner.busy for runner in self._runners)
        # Like a prompt, it gives way to a listener who would be cut off.
        patient = now - self._chore_at <= _MOST_PATIENCE_S
        if busy and patient and any(runner.stalls(now) for runner in self._runners):
            return
        if busy:
            self._chores.run(_PIECES_S, lambda: False)
        else:
            self._chores.run(
                _TICK_S, lambda: not self._inbox.empty() or bool(self._scheduler.queued)
            )
        self._chore_at = self._clock()

    def _failed(self, runner: Runner[Any], error: Exception) -> None:
        # A batched step cannot say whose fault it was; what it touched cannot be trusted.
        log.exception("a frame failed; the requests in it are ended")
        runner.fail_all(GenerationFailed(f"a frame could not be generated: {error}"))
        self._strikes += 1
        if self._strikes >= _STRIKES or _device_lost(error):
            self.fault = f"the device is lost: {error}"
            self._stopping = True

    def _retire(self) -> None:
        for runner in self._runners:
            for retired in runner.take_retired():
                self.finished[retired.outcome] += 1
                self._scheduler.release(retired.entry.job, retired.frames)

    def _expire(self, entry: Waiting, now: float) -> None:
        late: EngineError = DeadlineExceeded("the request's time limit passed in the queue")
        if entry.input is not None and lacks_input(entry, now):
            late = entry.input.timeout()
        self._count(entry, late if entry.stream.fail(late) else Cancelled())

    def _refuse_entry(self, entry: Waiting, error: EngineError) -> None:
        entry.stream.fail(error)
        self._count(entry, error)

    def _count(self, entry: Waiting, error: EngineError) -> None:
        self.finished[type(error).__name__] += 1
        self._scheduler.release(entry.job)

    def _close(self) -> None:
        error = EngineUnavailable(self.fault or "the engine was stopped")
        with self._posting:
            self._closed = error
        for runner in self._runners:
            self._abandon(runner, error)
        self._retire()
        self._chores.fail_all(error)
        while not self._inbox.empty():
            self._refuse(self._inbox.get(), error)
        for entry in self._scheduler.drain():
            self._refuse(Submit(entry), error)

    def _abandon(self, runner: Runner[Any], error: EngineError) -> None:
        try:
            runner.fail_all(error)
        except Exception:  # the streams have ended; freeing touches a device that may be gone
            log.exception("slots could not be freed")

    def _refuse(self, command: Command, error: EngineError) -> None:
        if isinstance(command, Submit):
            self._refuse_entry(command.entry, error)
        elif isinstance(command, Call | Work) and command.future.set_running_or_notify_cancel():
            command.future.set_exception(error)


@dataclass(frozen=True, slots=True, eq=False)
class _Preparation:
    """The chore of an entry that is not ready for a slot."""

    worker: Worker
    entry: Waiting
    steps: Steps[Any]

    def unwanted(self, now: float) -> bool:
        deadline = self.entry.job.deadline
        return self.entry.stream.ended or (deadline is not None and now > deadline)

    def done(self, result: Waiting) -> None:
        self.worker._scheduler.push(result)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, EngineError):
            log.error("request %s failed before its prompt", self.entry.job.id, exc_info=error)
            error = GenerationFailed(f"the voice could not be made: {error}")
        self.worker._refuse_entry(self.entry, error)

    def given_up(self, now: float) -> None:
        self.worker._expire(self.entry, now)


def _call(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _device_lost(error: Exception) -> bool:
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


__all__ = [
    "Append",
    "Call",
    "Cancel",
    "Command",
    "EndInput",
    "Stop",
    "Submit",
    "Wake",
    "Work",
    "Worker",
]
