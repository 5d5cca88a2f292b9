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
from engine.extraction import Extraction
from engine.gguf.spec import read_model_spec
from engine.live import LiveStream
from engine.machine import aside, give_back
from engine.pending import Pending
from engine.request import Sampling, SpeechRequest
from engine.running import Books
from engine.scheduler import Scheduler
from engine.stream import Stream
from engine.text.language import detect
from engine.tts.intake import Envelope, Intake
from engine.tts.load import load_intake, load_runner, resolve_device, resolve_dtype
from engine.tts.runner import Runner
from engine.tts.slot import Entry
from engine.tts.sources import check_voice
from engine.utterance import Utterance
from engine.voice import TAIL_S, Clip, Voice, tail_samples
from engine.worker import Append, Call, Cancel, EndInput, Stop, Submit, Wake, Worker

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
    weights, caches, codec state and kept voices take.

    `queued` counts requests that wait for a slot, `preparing` those whose voice is still being
    made and clips that become voices. `voice_encodes` counts runs of an encoder,
    `voice_cache_hits` what was found made: encodings, primed lanes and prompt prefixes.
    """

    slots: int
    active: int
    queued: int
    frames_total: int
    frames_per_second: float
    finished: dict[str, int]
    memory_bytes: int
    preparing: int = 0
    voice_encodes: int = 0
    voice_cache_hits: int = 0
    voice_cache_bytes: int = 0


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
        self._by_name = {runner.name: runner for runner in runners}
        self._memory_bytes = sum(runner.nbytes for runner in runners)  # grows by voices only
        capacity = config.slots * len(runners) + config.max_queue
        rate = min(intake.spec.codec.frame_rate for intake in intakes)
        most = config.max_queue_s * rate or None
        self._scheduler: Scheduler[Entry] = Scheduler(capacity, max_frames=most)
        self._worker = Worker(runners, self._scheduler)
        self._extraction = Extraction(self._worker, config.max_queue + config.slots)
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

    def open(
        self,
        request: SpeechRequest,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        input_timeout_s: float | None = None,
    ) -> LiveStream:
        """Like `submit` for a text that is still being written: the request's is its beginning,
        and may be empty.

        It takes a slot once its first word is certain. An in-context clone needs as much text
        before, token for frame, as its reference is longer than what it says.

        The text is taken as it is when `normalize` is None or False. With steps, or True, the
        front end reads it sentence by sentence, so that the first sound needs the first sentence,
        and adds a missing final mark; pauses asked for inside the text are not made.

        Args:
            id, tenant, priority: as for `submit`.
            timeout_s: the stream fails after so many seconds, those included in which it waited
                for text.
            input_timeout_s: the stream fails with `InputTimeout` when it needs text and none
                comes for so long; None takes the engine's setting.

        Raises:
            InvalidRequest, ModelNotFound, Overloaded, EngineUnavailable: as for `submit`.
        """
        if input_timeout_s is not None and input_timeout_s <= 0:
            raise InvalidRequest(
                f"`input_timeout_s` must be above 0, got {input_timeout_s:g}", "input_timeout_s"
            )
        envelope = self._envelope(id, tenant, priority, timeout_s)
        intake = self._intake(request)
        self._check_alive()
        patience_s = input_timeout_s or self.config.input_timeout_s
        entry, feed = intake.open(request, envelope, *self._callbacks(envelope), patience_s)
        post = self._worker.post
        live = LiveStream(
            entry.stream,
            feed,
            append=lambda ids: post(Append(entry, ids)),
            end=lambda ids, tokens: post(
                EndInput(entry, ids, intake.ceiling(request, entry, tokens))
            ),
        )
        beginning = feed.push(request.text)
        self._post(entry)
        if beginning:
            post(Append(entry, beginning))
        return live

    def check(self, request: SpeechRequest) -> None:
        """Refuse what `open` would refuse of a request, whatever text it gets; nothing is queued.

        Raises:
            InvalidRequest, ModelNotFound: as for `submit`.
        """
        self._intake(request).open(request, Envelope("check"), lambda: None, lambda: None, 1.0)

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
        """Like `submit` for a text of any kind and length: the front end prepares it, and what
        does not fit one slot is split at sentences into jobs that follow each other, each with a
        seed derived from the request's.

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

    def extract_voice(
        self,
        clip: Clip,
        *,
        transcript: str | None = None,
        model: str | None = None,
        ref_tail_silence: float = TAIL_S,
    ) -> Pending[Voice]:
        """Make a voice of a clip, on the worker between frames; returns at once.

        Args:
            transcript: what the clip says, for in-context clones; None is for its vector alone.
            model: whose encoders hear it, None for the default model.
            ref_tail_silence: seconds of silence after the clip in its codes, 0 to 2.

        Raises:
            UnsupportedMode: the model cannot take voices from clips.
            InvalidRequest: the transcript cannot be what the clip says; a value out of range.
            ModelNotFound, EngineUnavailable: as for `submit`.
            Overloaded: too many clips wait.
        """
        self._check_alive()
        name = self._catalog.spec(model).name
        tail_samples(ref_tail_silence)
        warnings = self._intakes[name].reference(clip, transcript, ref_tail_silence)
        return self._extraction.extract(
            name,
            self._by_name[name].cloning,
            clip,
            transcript=transcript,
            tail_s=ref_tail_silence,
            warnings=warnings,
        )

    def check_voice(self, voice: Voice, model: str | None = None) -> None:
        """Refuse a voice that a model (None: the default) cannot speak in.

        Raises:
            UnsupportedMode: it is no Base model, or one of another width.
            InvalidRequest: the codes are not of its codec.
            ModelNotFound: no such model is loaded.
        """
        check_voice(voice, self._catalog.spec(model))

    def purge_voice(self, voice: Voice) -> Pending[int]:
        """Drop all that is kept of a voice and of the clip it was made of: the bytes freed."""
        self._check_alive()
        return self._extraction.purge(voice, [runner.cloning for runner in self._runners])

    def warm_up(self) -> None:
        """Speak a short text with every model through the ordinary path; then be ready."""
        detect(_WARM_UP_TEXT)  # reads its model, which takes most of a second
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
        cloning = [runner.cloning for runner in self._runners]
        return EngineStats(
            slots=sum(runner.capacity for runner in self._runners),
            active=self._worker.active,
            queued=self._scheduler.queued,
            frames_total=sum(runner.frames_total for runner in self._runners),
            frames_per_second=self._scheduler.frames_per_second,
            finished=dict(self._worker.finished),
            memory_bytes=self._memory_bytes + sum(each.nbytes for each in cloning),
            preparing=self._worker.chores,
            voice_encodes=sum(each.encoder.runs for each in cloning),
            voice_cache_hits=sum(each.keeper.hits for each in cloning),
            voice_cache_bytes=sum(each.keeper.nbytes for each in cloning),
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
        continues = any(utterance.continues for utterance in list(self._utterances))
        return bool(self._scheduler.in_flight) or continues or self._extraction.busy

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

    def _check_alive(self, continuation: bool = False) -> None:
        if not self._worker.alive:
            raise EngineUnavailable(self._worker.fault or "the engine is closed")
        if not self._accepting and not continuation:
            raise EngineUnavailable("the engine is shutting down")

    def _submit(self, intake: Intake, request: SpeechRequest, envelope: Envelope) -> Stream:
        self._check_alive(envelope.continuation)
        entry = intake.entry(request, envelope, *self._callbacks(envelope))
        self._post(entry)
        return entry.stream

    def _callbacks(self, envelope: Envelope) -> tuple[Callable[[], None], Callable[[], None]]:
        post = self._worker.post
        return lambda: post(Cancel(envelope.id)), lambda: post(Wake())

    def _post(self, entry: Entry) -> None:
        self._scheduler.reserve(entry.job)
        self._worker.post(Submit(entry))


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
    runners = aside(lambda: [load_runner(spec, config) for spec in specs])
    give_back()
    return Engine(runners, intakes, catalog, config)


def _listed(files: ModelFiles | Sequence[ModelFiles] | None) -> Sequence[ModelFiles]:
    if files is None:
        from engine.assets import bundled_voice  # noqa: PLC0415

        return [bundled_voice()]
    return [files] if isinstance(files, ModelFiles) else files


def _spec(files: ModelFiles) -> ModelSpec:
    spec = read_model_spec(files.talker, files.codec)
    if files.name is None:
        return spec
    return replace(spec, talker=replace(spec.talker, name=files.name))


__all__ = ["Engine", "EngineStats", "Health", "load"]
