"""The engine: accepts requests from any thread or event loop and hands out their streams."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.catalog import Catalog, ModelInfo
from engine.config import EngineConfig, ModelFiles, ModelSpec
from engine.errors import EngineUnavailable, InvalidRequest
from engine.gguf.spec import read_model_spec
from engine.request import Sampling, SpeechRequest
from engine.running import Books
from engine.scheduler import Scheduler
from engine.stream import Stream
from engine.tts.intake import Envelope, Intake
from engine.tts.load import load_intake, load_runner, resolve_device, resolve_dtype
from engine.tts.runner import Runner
from engine.tts.slot import Entry
from engine.utterance import Utterance
from engine.worker import Call, Cancel, Stop, Submit, Wake, Worker

T = TypeVar("T")

_WARM_UP_TEXT = "One, two, three."
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Health:
    """`alive`: should not be restarted. `ready`: warm and accepting; `reason` says why not."""

    alive: bool
    ready: bool
    reason: str


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the start; `finished` counts ended jobs by reason. `memory_bytes` is what
    weights, caches and codec state take."""

    slots: int
    active: int
    queued: int
    frames_total: int
    frames_per_second: float
    finished: dict[str, int]
    memory_bytes: int


class Engine:
    """Speech from text, many at once. Get one from `load`; close it when done.

    `submit` and `speak` never block and may be called from any thread.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        intakes: Sequence[Intake],
        catalog: Catalog,
        config: EngineConfig,
    ) -> None:
        self.config = config
        self.models = catalog.models
        device = resolve_device(config)
        self.device = str(device)
        self.dtype = str(resolve_dtype(config, device)).removeprefix("torch.")
        self._catalog = catalog
        self._intakes = {intake.spec.name: intake for intake in intakes}
        self._runners = runners
        capacity = config.slots * len(runners) + config.max_queue
        rate = min(intake.spec.codec.frame_rate for intake in intakes)
        most = config.max_queue_s * rate or None
        self._scheduler: Scheduler[Entry] = Scheduler(capacity, max_frames=most)
        self._worker = Worker(runners, self._scheduler)
        self._numbers = itertools.count(1)
        self._accepting = True
        self._utterances: weakref.WeakSet[Utterance] = weakref.WeakSet()
        self._warm = False
        self._worker.start()

    def model(self, name: str | None) -> ModelInfo:
        """A loaded model by name (any case), None for the default; raises `ModelNotFound`."""
        return self._catalog.info(name)

    def submit(
        self,
        request: SpeechRequest,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> Stream:
        """Queue one utterance and return its stream.

        Args:
            id: the caller's name for it, which begins the stream's id; drawn when None.
            tenant, priority: for the queue's order; higher priority first.
            timeout_s: the stream fails with `DeadlineExceeded` after so many seconds.

        Raises:
            InvalidRequest: naming the field; also `UnknownVoice`, `UnsupportedMode`.
            ModelNotFound: no such model is loaded.
            Overloaded: the queue is full.
            EngineUnavailable: draining, closed or the device is lost.
        """
        envelope = self._envelope(id, tenant, priority, timeout_s)
        return self._submit(self._intake(request), request, envelope)

    def speak(
        self,
        request: SpeechRequest,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        streaming: bool = True,
        redraw: bool = False,
    ) -> Utterance:
        """Like `submit` for a text of any length: what does not fit one slot is split at
        sentences into jobs that follow each other, each with a seed derived from the request's.

        Args:
            streaming: somebody listens while it is made; False flushes in larger pieces.
            redraw: keep the sound until a part is complete, and draw one that ran away (`loop`,
                or `length` at the automatic ceiling) once more with another seed.
        """
        envelope = self._envelope(id, tenant, priority, timeout_s)
        envelope = replace(envelope, streaming=streaming)
        intake = self._intake(request)
        parts = intake.parts(request)
        numbers = itertools.count(1)

        def later(part: SpeechRequest) -> Stream:
            name = f"{envelope.id}.{next(numbers)}"
            return self._submit(intake, part, replace(envelope, id=name, continuation=True))

        first = self._submit(intake, parts[0].request, envelope)
        samples = intake.spec.codec.samples_per_frame
        utterance = Utterance(parts, first, later, frame_samples=samples, hold=redraw)
        self._utterances.add(utterance)
        return utterance

    def warm_up(self) -> None:
        """Speak a short text with every model through the ordinary path; then be ready."""
        for model in self.models:
            designed = model.task == "voice_design"
            request = SpeechRequest(
                _WARM_UP_TEXT,
                model=model.name,
                instructions="A calm voice." if designed else None,
                sampling=Sampling(seed=0, max_new_tokens=sum(self.config.ramp)),
            )
            for _ in self.submit(request):
                pass
        self._warm = True

    async def health(self) -> Health:
        """Whether the engine should live and whether it can take work."""
        if not self._worker.alive:
            return Health(False, False, self._worker.fault or "closed")
        if not self._accepting:
            return Health(True, False, "draining")
        return Health(True, self._warm, "ok" if self._warm else "warming up")

    async def stats(self) -> EngineStats:
        """Counts for metrics; cheap."""
        return EngineStats(
            slots=sum(runner.capacity for runner in self._runners),
            active=self._worker.active,
            queued=self._scheduler.queued,
            frames_total=sum(runner.frames_total for runner in self._runners),
            frames_per_second=self._scheduler.frames_per_second,
            finished=dict(self._worker.finished),
            memory_bytes=sum(runner.nbytes for runner in self._runners),
        )

    def books(self) -> list[Books]:
        """What every runner holds, read on the worker between two frames; blocks."""
        return self.call(lambda: [runner.books() for runner in self._runners])

    @property
    def in_flight(self) -> int:
        """Requests accepted and not ended."""
        return self._scheduler.in_flight

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the worker thread between two frames and return its result; blocks."""
        future: Future[Any] = Future()
        if not self._worker.alive:
            raise EngineUnavailable(self._worker.fault or "the engine is closed")
        self._worker.post(Call(function, future))
        result: T = future.result()
        return result

    async def drain(self, timeout_s: float) -> None:
        """Refuse new work and wait for what runs, at most `timeout_s` seconds."""
        self._accepting = False
        end = time.monotonic() + timeout_s
        # The books change on another thread; a poll is simpler than a bridge and rare enough.
        while self._speaking and self._worker.alive and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    @property
    def _speaking(self) -> bool:
        # A long text whose next part was not asked for yet holds no permit.
        return bool(self._scheduler.in_flight) or any(u.continues for u in list(self._utterances))

    async def aclose(self) -> None:
        """Like `close`, without blocking the loop."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End what still runs with `EngineUnavailable` and stop the worker; idempotent."""
        self._accepting = False
        self._worker.post(Stop())
        self._worker.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _intake(self, request: SpeechRequest) -> Intake:
        return self._intakes[self._catalog.spec(request.model).name]

    def _envelope(
        self, name: str | None, tenant: str, priority: int, timeout_s: float | None
    ) -> Envelope:
        if timeout_s is not None and timeout_s <= 0:
            raise InvalidRequest(f"`timeout_s` must be above 0, got {timeout_s:g}", "timeout_s")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # The counter keeps job ids apart when callers repeat theirs.
        label = f"{name or uuid.uuid4().hex}#{next(self._numbers)}"
        return Envelope(label, tenant, priority, deadline)

    def _submit(self, intake: Intake, request: SpeechRequest, envelope: Envelope) -> Stream:
        if not self._worker.alive:
            raise EngineUnavailable(self._worker.fault or "the engine is closed")
        if not self._accepting and not envelope.continuation:
            raise EngineUnavailable("the engine is shutting down")
        entry = intake.entry(
            request,
            envelope,
            on_cancel=lambda: self._worker.post(Cancel(envelope.id)),
            on_drained=lambda: self._worker.post(Wake()),
        )
        self._scheduler.reserve(entry.job)
        self._worker.post(Submit(entry))
        return entry.stream


def load(
    files: ModelFiles | Sequence[ModelFiles] | None = None, config: EngineConfig | None = None
) -> Engine:
    """Load one or several models and start the worker; blocks until the weights are read.

    Args:
        files: the models, the first of which is the default; None is the bundled voice.
        config: settings; None takes the defaults.

    Raises:
        ModelFileError: a file cannot be used.
        InvalidRequest: the device is not there, or the settings contradict each other.
    """
    config = config or EngineConfig()
    specs = [_spec(each) for each in _listed(files)]
    catalog = Catalog(specs, strict_instructions=config.strict_instructions)
    intakes = [load_intake(spec, catalog, config) for spec in specs]
    runners = [load_runner(spec, config) for spec in specs]
    return Engine(runners, intakes, catalog, config)


def _listed(files: ModelFiles | Sequence[ModelFiles] | None) -> Sequence[ModelFiles]:
    if files is None:
        from engine.assets import bundled_voice  # noqa: PLC0415  (builds on first use)

        return [bundled_voice()]
    return [files] if isinstance(files, ModelFiles) else files


def _spec(files: ModelFiles) -> ModelSpec:
    spec = read_model_spec(files.talker, files.codec)
    if files.name is None:
        return spec
    return replace(spec, talker=replace(spec.talker, name=files.name))


__all__ = ["Engine", "EngineStats", "Health", "load"]
