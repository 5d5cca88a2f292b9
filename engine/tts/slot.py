"""What a runner holds for one request: the entry it came as, and the slot it lives in."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.incoming import OpenInput
from engine.pieces import Steps
from engine.request import FinishReason, Job
from engine.stream import Stats, Stream
from engine.tts.guards import LoopGuard, SilenceGuard
from engine.tts.head import Head
from engine.tts.prompt import Prompt, PromptPlan
from engine.tts.sampling import LaneSampling


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An accepted request on its way to a slot. Made by the intake, read-only after.

    `head` is what the worker has made of a cloned voice before it may take a slot. `input` holds
    the text of a request whose input was open at first; its `plan` has none then.
    """

    job: Job
    stream: Stream
    plan: PromptPlan
    sampling: LaneSampling
    max_frames: int
    streaming: bool = True  # somebody listens while it is made
    first_frames: int | None = None  # of its first flush; None as the ramp says
    head: Head | None = None
    input: OpenInput | None = None

    @property
    def ceiling(self) -> int:
        """Most frames, as far as that is known."""
        return self.max_frames if self.input is None else self.input.ceiling


@dataclass(slots=True)
class Clock:
    """Seconds a request spent per stage; a batched span counts in full for every slot in it."""

    admitted: float
    prefill: float = 0.0
    talker: float = 0.0
    predictor: float = 0.0
    codec: float = 0.0
    first_audio: float | None = None


@dataclass(slots=True, eq=False)
class Slot:
    """A running request. `index` is its row in every cache; `filling` is what is left to do of its
    prompt, which is made first, and `landed` tells whether the device is done with what was."""

    index: int
    entry: Entry
    clock: Clock
    loop: LoopGuard
    silence: SilenceGuard
    prompt: Prompt = field(init=False)
    filling: Steps[Callable[[], bool]] | None = None
    landed: Callable[[], bool] = lambda: True
    frames: int = 0  # generated
    decoded: int = 0  # of those, turned into sound
    flushes: int = 0
    history: list[int] = field(default_factory=list)  # codes of codebook 0
    pending: deque[Tensor] = field(default_factory=deque)  # int64[code groups] each
    embedded: Tensor | None = None  # [hidden], the last frame; None while there is none
    dry_at: float | None = None  # when a listener that started at the first sound runs dry
    ending: FinishReason | None = None

    @property
    def advances(self) -> bool:
        """Takes part in the next frame: its prompt is done, it is not ending, its reader keeps up,
        and its text."""
        ready = self.filling is None and self.ending is None and self.landed()
        return ready and not self.entry.stream.full and not self.starved

    @property
    def starved(self) -> bool:
        """The next frame goes with text that has not come, and the input is still open."""
        source = self.entry.input
        if source is None or source.ended or self.ending is not None:
            return False
        return self.frames > self.entry.plan.overlay_rows(len(source.items))

    @property
    def next_input(self) -> Tensor:
        """[hidden], what the talker hears next: the prompt's last position, then the last frame and
        the overlay that goes with it."""
        if self.embedded is None:
            return self.prompt.embeds[-1]
        return self.embedded + self.prompt.overlay_after(self.frames - 1)

    def stage(self, codes: Tensor, first: int, embedded: Tensor) -> None:
        """Take a generated frame: codes int64[groups], codebook 0 again as a number, and the
        frame's summed embeddings [hidden]."""
        self.pending.append(codes)
        self.history.append(first)
        self.embedded = embedded
        self.frames += 1
        if self.loop.push(first):
            self.ending = FinishReason.LOOP
        elif self.frames >= self.entry.ceiling:
            self.ending = FinishReason.LENGTH

    def due(self, ramp: tuple[int, ...], now: float, soon: float) -> bool:
        """A codec flush should happen now: the ramp says so, the end has come, the text has not,
        or the listener would run dry before `soon`. One who is dry already is served by the ramp:
        small flushes cost more per frame, and a machine that is behind must not fall further
        behind."""
        rescue = self.dry_at is not None and now < self.dry_at < soon
        if rescue or self.starved or self.ending is not None:
            return bool(self.pending)
        first = self.entry.first_frames
        if first is not None and self.decoded == 0 and self.entry.streaming:
            return len(self.pending) >= first
        step = self.flushes if self.entry.streaming else len(ramp)
        return len(self.pending) >= ramp[min(step, len(ramp) - 1)]

    def heard(self, now: float, seconds: float) -> None:
        """Sound has left for the listener."""
        if self.clock.first_audio is None:
            self.clock.first_audio = now
        if self.entry.streaming:
            self.dry_at = max(now, self.dry_at or now) + seconds

    def take(self, count: int) -> Tensor:
        """Remove the oldest `count` staged frames: int64[groups, count]."""
        return torch.stack([self.pending.popleft() for _ in range(count)], dim=1)

    def stats(self, now: float) -> Stats:
        arrival, clock = self.entry.job.arrival, self.clock
        return Stats(
            frames=self.decoded,
            seed=self.entry.sampling.seed,
            queue_s=clock.admitted - arrival,
            prefill_s=clock.prefill,
            first_audio_s=(clock.first_audio or now) - arrival,
            total_s=now - arrival,
            talker_s=clock.talker,
            predictor_s=clock.predictor,
            codec_s=clock.codec,
            prompt_positions=self.entry.plan.positions,
        )


@contextmanager
def timed(slots: Sequence[Slot], stage: str) -> Iterator[None]:
    """Add the seconds spent inside to `stage` of every slot's clock."""
    start = time.perf_counter()
    yield
    spent = time.perf_counter() - start
    for slot in slots:
        setattr(slot.clock, stage, getattr(slot.clock, stage) + spent)


__all__ = ["Clock", "Entry", "Slot", "timed"]
