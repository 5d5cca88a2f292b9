"""One output fed by several jobs in order: the parts of a long text, a pause, a second draw."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import EngineError
from engine.request import FinishReason, SpeechRequest, derive_seed
from engine.stream import Audio, Finished, Item, Readable, Stats, Stream

# Far from the part numbers, which seeds are derived with too.
_REDRAW = 1 << 20

_SUMMED = ("frames", "prefill_s", "talker_s", "predictor_s", "codec_s", "prompt_positions",
           "redraws")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text that fits one job, and the samples of silence in front of it and, of the
    last part, behind it."""

    request: SpeechRequest
    pause_samples: int = 0
    tail_samples: int = 0


class Utterance(Readable):
    """Reads like a `Stream`: `Audio` items with running frame numbers, then one `Finished`.

    A pause is exact to the sample; the numbers behind one count whole frames of what came before.
    `spoken_text` is what is said, with its pauses.

    A later part is submitted as soon as the one before has been generated, while its last sound
    is still to be read; `submit` must accept it, for its request was accepted as a whole. The
    finish reason is the first that is not `stop`.

    With `hold`, a part's sound is kept until the part is complete, and one that ended by `loop`,
    or by `length` at the automatic ceiling, is drawn again once, with another seed.

    Args:
        parts: what to say, in order.
        first: the stream of the first part.
        submit: makes the stream of a later part or of a second draw.
        frame_samples: samples of one frame.
        hold: nothing leaves before a part is complete.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        first: Stream,
        submit: Callable[[SpeechRequest], Stream],
        *,
        frame_samples: int,
        hold: bool = False,
    ) -> None:
        self.id = first.id
        self.seed = first.seed
        self.sample_rate = first.sample_rate
        self.warnings = first.warnings
        self.spoken_text = _spoken_text(parts, first.sample_rate)
        self._parts = parts
        self._submit = submit
        self._frame_samples = frame_samples
        self._hold = hold
        self._stream = first
        self._next: Stream | None = None
        self._index = 0
        self._redrawn = False
        self._samples = 0  # given out, pauses included
        self._held = _silence(parts[0].pause_samples)
        self._ready: deque[Item] = deque()
        self._finished: list[Finished] = []
        self._start = time.monotonic()
        self._cancelled = False
        self._lock = threading.Lock()

    @property
    def continues(self) -> bool:
        """A part is still to be submitted."""
        more = self._index + 1 < len(self._parts) and self._next is None
        return more and not self._cancelled and not self._stream.failed

    def cancel(self) -> None:
        """Stop the part that is speaking and those to come; a no-op after the end."""
        with self._lock:
            self._cancelled = True
            self._stream.cancel()
            if self._next is not None:
                self._next.cancel()

    async def read(self) -> Item:
        """The next item, waiting for it; raises the error of the part that failed."""
        while not self._ready:
            self._take(await self._stream.read())
        return self._ready.popleft()

    def get(self) -> Item:
        """Like `read`, blocking the thread."""
        while not self._ready:
            self._take(self._stream.get())
        return self._ready.popleft()

    def _take(self, item: Item) -> None:
        if isinstance(item, Audio):
            self._held.append(item)
            if not self._hold:
                self._give_out()
                self._look_ahead()
        elif self._hold and self._ran_away(item):
            self._draw_again(item)
        else:
            self._complete(item)

    def _give_out(self) -> None:
        for audio in self._held:
            self._ready.append(replace(audio, first_frame=self._samples // self._frame_samples))
            self._samples += len(audio.pcm)
        self._held.clear()

    def _look_ahead(self) -> None:
        # A refusal (the engine is stopping) is left for the part's own turn to report.
        if self._stream.ended and self.continues:
            with suppress(EngineError), self._lock:
                self._next = self._open(self._parts[self._index + 1].request)

    def _ran_away(self, finished: Finished) -> bool:
        automatic = self._parts[self._index].request.sampling.max_new_tokens is None
        ceiling = finished.reason is FinishReason.LENGTH and automatic
        return not self._redrawn and (finished.reason is FinishReason.LOOP or ceiling)

    def _draw_again(self, finished: Finished) -> None:
        part = self._parts[self._index].request
        seed = derive_seed(finished.stats.seed, _REDRAW)
        self._redrawn = True
        self._held = _silence(self._parts[self._index].pause_samples)
        again = replace(part, sampling=replace(part.sampling, seed=seed))
        with self._lock:
            self._stream = self._open(again)

    def _complete(self, finished: Finished) -> None:
        self._give_out()
        redraws = finished.stats.redraws + self._redrawn
        self._finished.append(replace(finished, stats=replace(finished.stats, redraws=redraws)))
        self._redrawn = False
        if self._index + 1 == len(self._parts):
            self._held = _silence(self._parts[-1].tail_samples)
            self._give_out()
            self._ready.append(self._end())
            return
        part = self._parts[self._index + 1]
        with self._lock:
            self._stream = self._next or self._open(part.request)
            self._index, self._next = self._index + 1, None
        self._held = _silence(part.pause_samples)
        if not self._hold:
            self._give_out()

    def _open(self, request: SpeechRequest) -> Stream:
        # Under the lock, so that a cancel finds either no stream or the one it has to stop.
        stream = self._submit(request)
        if self._cancelled:
            stream.cancel()
        return stream

    def _end(self) -> Finished:
        silent = self._parts[0].pause_samples or self._parts[-1].tail_samples
        if len(self._finished) == 1 and not silent and not self._finished[0].stats.redraws:
            return self._finished[0]
        reasons = [finished.reason for finished in self._finished]
        reason = next((r for r in reasons if r is not FinishReason.STOP), FinishReason.STOP)
        all_stats = [finished.stats for finished in self._finished]
        sums = {name: sum(getattr(stats, name) for stats in all_stats) for name in _SUMMED}
        sums["frames"] = self._samples // self._frame_samples
        stats = Stats(
            seed=self.seed,
            queue_s=all_stats[0].queue_s,
            first_audio_s=all_stats[0].first_audio_s,
            total_s=time.monotonic() - self._start,
            **sums,
        )
        return Finished(reason, stats)


def _silence(samples: int) -> list[Audio]:
    return [Audio(0, np.zeros(samples, np.float32))] if samples else []


def _spoken_text(parts: Sequence[Part], sample_rate: int) -> str:
    pieces = []
    for part in parts:
        pieces += [_tag(part.pause_samples / sample_rate), part.request.text]
    return " ".join(filter(None, [*pieces, _tag(parts[-1].tail_samples / sample_rate)]))


def _tag(seconds: float) -> str:
    return f"[pause:{seconds:g}s]" if seconds else ""


__all__ = ["Part", "Utterance"]
