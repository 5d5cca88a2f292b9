"""The batch runner of one model: static slots, one frame per step for all of them.

A step is prompts -> talker decode -> codebook 0 -> code predictor -> stage -> codec flush ->
retire. Prompts go through the talker in pieces, slot after slot, as many as half a frame has time
for; the last position of a prompt goes with its slot's first frame.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from engine.config import EngineConfig, ModelSpec
from engine.errors import Cancelled, DeadlineExceeded, EngineError, GenerationFailed, SlowReader
from engine.pieces import Steps, run_through
from engine.request import FinishReason
from engine.running import Books, Retired
from engine.stream import Audio, Finished
from engine.tts.cloning import Cloning
from engine.tts.filling import Filling
from engine.tts.guards import LoopGuard, SilenceGuard
from engine.tts.rows import TalkerRows
from engine.tts.slot import Clock, Entry, Slot
from engine.tts.vocoder import Vocoder

log = logging.getLogger("framecast.engine")

# A listener who would run dry within so many steps gets what there is, whatever the ramp says.
_URGENT_STEPS = 1.5
# While all wait for the device to be done with prompts, it is asked so often.
_DEVICE_S = 0.0005


class Runner:
    """Steps the slots of one model. All methods run on the worker thread."""

    def __init__(
        self,
        spec: ModelSpec,
        generator: TalkerRows,
        vocoder: Vocoder,
        config: EngineConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.slots: list[Slot | None] = [None] * config.slots
        self.frames_total = 0
        self.cloning = Cloning(spec, generator, vocoder, config)
        self._generator = generator
        self._vocoder = vocoder
        self._config = config
        self._clock = clock
        self._step_s = 0.0  # what the last frame took, its sound included
        self._filling = Filling(generator, self.cloning, self._clock, self._fail_slot)
        self._retired: list[Retired[Entry]] = []

    @property
    def name(self) -> str:
        """The model's name."""
        return self.spec.name

    @property
    def capacity(self) -> int:
        """Slots there are."""
        return len(self.slots)

    @property
    def free(self) -> int:
        """Slots nobody occupies."""
        return self.slots.count(None)

    @property
    def busy(self) -> bool:
        """A step would change something."""
        return any(
            s.filling or not s.landed() or s.advances or s.ending or s.entry.stream.ended
            for s in self._occupied()
        )

    def stalls(self, now: float) -> bool:
        """A piece of a prompt now would leave a listener without sound, and waiting may not."""
        return self._filling.stalls(now, self._dry_ats())

    def ready(self, entry: Entry) -> Entry | None:
        """The entry as it may take a slot, if nothing has to be made for it first."""
        if not entry.plan.cloned:
            return entry
        return run_through(self.prepare(entry)) if self.cloning.knows(entry.plan) else None

    def prepare(self, entry: Entry) -> Steps[Entry]:
        """Make of a cloned voice what the request needs of it; raises what is wrong with it."""
        head = yield from self.cloning.steps(entry.plan)
        return replace(entry, plan=head.plan, head=head)

    @torch.inference_mode()
    def admit(self, entry: Entry, now: float) -> None:
        """Take a free slot; its prompt is processed by the steps that follow. A failure is the
        entry's own."""
        index = self.slots.index(None)
        try:
            slot = self._open(index, entry, now)
        except Exception as error:
            self._fail_prompt(index, entry, error)
            return
        self.slots[index] = slot
        self._filling.add(slot)

    @torch.inference_mode()
    def step(self, now: float) -> None:
        """Make one frame for every slot that advances."""
        self._filling.run(self._dry_ats(), behind=self._behind)
        start = self._clock()
        active = [slot for slot in self._occupied() if slot.advances]
        if not active and not all(slot.landed() for slot in self._occupied()):
            time.sleep(_DEVICE_S)
        self._make(active)
        self.sweep(self._clock())  # what ended meanwhile must not be heard
        self._flush()
        self._retire()
        if active:
            self._step_s = self._clock() - start

    def sweep(self, now: float) -> None:
        """Free the slots whose listener has gone or does not read, whose text does not come, or
        whose time is over."""
        for slot in self._occupied():
            stream, deadline = slot.entry.stream, slot.entry.job.deadline
            if stream.ended:
                self._release(slot, Cancelled("the request was cancelled"))
            elif deadline is not None and now > deadline:
                self._release(slot, DeadlineExceeded("the request's time limit passed"))
            elif stream.full and stream.unread_for(now) > self._config.read_timeout_s:
                waited = f"{self._config.read_timeout_s:g} s"
                self._release(slot, SlowReader(f"nobody read the stream for {waited}"))
            elif (source := slot.entry.input) and slot.starved and source.waited_out(now):
                self._release(slot, source.timeout())

    def cancel(self, job_id: str) -> None:
        """Free the slot of a job at once, if it has one."""
        for slot in self._occupied():
            if slot.entry.job.id == job_id:
                self._release(slot, Cancelled("the request was cancelled"))

    def fail_all(self, error: EngineError) -> None:
        """End every running request with `error`, all streams before the first slot is freed."""
        slots = self._occupied()
        for slot in slots:
            self._end(slot.entry, error, slot.decoded)
        for slot in slots:
            self._clear(slot.index)

    def take_retired(self) -> list[Retired[Entry]]:
        """The entries whose slots were freed since the last call."""
        retired, self._retired = self._retired, []
        return retired

    @property
    def nbytes(self) -> int:
        """Bytes of weights, caches and codec state, and of what is kept of cloned voices."""
        return self._generator.nbytes + self._vocoder.nbytes + self.cloning.nbytes

    def books(self) -> Books:
        """What is held right now."""
        rows = sum(self._generator.cache.length)
        return Books(len(self.slots), self.free, rows, self._vocoder.frames_held)

    def _open(self, index: int, entry: Entry, now: float) -> Slot:
        config, rate = self._config, self.spec.codec.sample_rate
        if entry.plan.cloned and entry.head is None:
            entry = run_through(self.prepare(entry))
        if entry.input is not None:
            entry = replace(entry, plan=entry.plan.fed(entry.input))
        if entry.head and entry.head.lane:
            self._vocoder.resume(index, entry.head.lane)
        slot = Slot(
            index=index,
            entry=entry,
            clock=Clock(admitted=now),
            loop=LoopGuard(config.loop_window, config.loop_max_period, config.loop_repeats),
            silence=SilenceGuard(rate, config.silence_s, config.silence_dbfs),
        )
        slot.filling = self._filling.steps(slot)
        return slot

    def _fail_slot(self, slot: Slot, error: Exception) -> None:
        self._fail_prompt(slot.index, slot.entry, error)

    def _fail_prompt(self, index: int, entry: Entry, error: Exception) -> None:
        log.error("request %s failed in prefill", entry.job.id, exc_info=error)
        # The stream first: clearing touches a device that may be gone.
        self._end(entry, GenerationFailed(f"the prompt could not be processed: {error}"), 0)
        self._clear(index)

    def _make(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        broken, stopped = self._generator.frame(slots)
        for slot in broken:
            self._release(slot, GenerationFailed("the model's scores were not numbers"))
        for slot in stopped:
            slot.ending = FinishReason.STOP
        self.frames_total += len(slots) - len(broken) - len(stopped)

    @property
    def _behind(self) -> bool:
        return self._step_s > 1 / self.spec.codec.frame_rate

    def _flush(self) -> None:
        now = self._clock()
        # Small flushes cost more per frame: with them a machine that needs a frame's time for a
        # frame falls behind, and then nobody is saved.
        soon = now if self._behind else now + _URGENT_STEPS * self._step_s
        for slot, pcm in self._vocoder.flush(self._occupied(), now, soon):
            if not np.isfinite(pcm).all():
                slot.pending.clear()
                self._release(slot, GenerationFailed("the model's sound was not numbers"))
                continue
            slot.heard(self._clock(), len(pcm) / self.spec.codec.sample_rate)
            slot.entry.stream.publish(Audio(slot.decoded, pcm))
            slot.decoded += len(pcm) // self.spec.codec.samples_per_frame
            # After a wait for text the listener is dry again: the ramp begins anew.
            slot.flushes = 0 if slot.starved else slot.flushes + 1
            if slot.silence.push(pcm) and slot.ending is None:
                slot.ending = FinishReason.SILENCE
                slot.pending.clear()

    def _retire(self) -> None:
        for slot in self._occupied():
            if slot.ending is None or slot.pending:
                continue
            if slot.decoded == 0:
                self._release(slot, GenerationFailed("the model produced no audio"))
                continue
            slot.entry.stream.finish(Finished(slot.ending, slot.stats(self._clock())))
            self._release(slot, None)

    def _release(self, slot: Slot, error: EngineError | None) -> None:
        outcome = error or slot.ending
        assert outcome is not None
        self._end(slot.entry, outcome, slot.decoded)
        self._clear(slot.index)

    def _end(self, entry: Entry, outcome: EngineError | FinishReason, frames: int) -> None:
        if isinstance(outcome, FinishReason):
            self._retired.append(Retired(entry, outcome.value, frames))
        else:
            entry.stream.fail(outcome)
            self._retired.append(Retired(entry, type(outcome).__name__, frames))

    def _clear(self, index: int) -> None:
        self._filling.drop(index)
        self.slots[index] = None
        self._generator.clear(index)
        self._vocoder.clear(index)

    def _dry_ats(self) -> list[float]:
        return [slot.dry_at for slot in self._occupied() if slot.dry_at]

    def _occupied(self) -> list[Slot]:
        return [slot for slot in self.slots if slot is not None]


__all__ = ["Runner"]
