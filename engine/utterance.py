"""One output fed by several jobs in order: a text too long for one slot, heard as one."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace

from engine.request import FinishReason, SpeechRequest
from engine.stream import Audio, Finished, Item, Stats, Stream


class Utterance:
    """Reads like a `Stream`: `Audio` items with running frame numbers, then one `Finished`.

    The next part is submitted when the last one has been read; `submit` must accept it (its
    request was accepted as a whole). The finish reason is the first that is not `stop`.
    """

    def __init__(
        self,
        parts: Sequence[SpeechRequest],
        first: Stream,
        submit: Callable[[SpeechRequest, int], Stream],
    ) -> None:
        self.id = first.id
        self.seed = first.seed
        self.sample_rate = first.sample_rate
        self.warnings = first.warnings
        self._parts = parts
        self._submit = submit
        self._stream = first
        self._index = 0
        self._start = time.monotonic()
        self._finished: list[Finished] = []
        self._cancelled = False
        self._lock = threading.Lock()

    @property
    def continues(self) -> bool:
        """A part is still to be submitted."""
        more = self._index + 1 < len(self._parts)
        return more and not self._cancelled and not self._stream.failed

    def cancel(self) -> None:
        """Stop the part that is speaking and those to come; a no-op after the end."""
        with self._lock:
            self._cancelled = True
            self._stream.cancel()

    async def read(self) -> Item:
        """The next item, waiting for it; raises the error of the part that failed."""
        while True:
            item = self._step(await self._stream.read())
            if item is not None:
                return item

    def __aiter__(self) -> AsyncIterator[Item]:
        return self._aiter()

    async def _aiter(self) -> AsyncIterator[Item]:
        while True:
            item = await self.read()
            yield item
            if isinstance(item, Finished):
                return

    def __iter__(self) -> Iterator[Item]:
        while True:
            for part in self._stream:
                item = self._step(part)
                if item is not None:
                    yield item
                if isinstance(item, Finished):
                    return

    def _step(self, item: Item) -> Item | None:
        if isinstance(item, Audio):
            before = sum(finished.stats.frames for finished in self._finished)
            return replace(item, first_frame=item.first_frame + before)
        self._finished.append(item)
        if self._index + 1 == len(self._parts):
            return self._end()
        with self._lock:
            self._index += 1
            self._stream = self._submit(self._parts[self._index], self._index)
            if self._cancelled:
                self._stream.cancel()
        return None

    def _end(self) -> Finished:
        reasons = [finished.reason for finished in self._finished]
        reason = next((r for r in reasons if r is not FinishReason.STOP), FinishReason.STOP)
        first = self._finished[0].stats
        total = time.monotonic() - self._start
        if len(self._finished) == 1:
            return Finished(reason, first)
        sums = {
            name: sum(getattr(finished.stats, name) for finished in self._finished)
            for name in (
                "frames",
                "prefill_s",
                "talker_s",
                "predictor_s",
                "codec_s",
                "prompt_positions",
            )
        }
        stats = Stats(
            seed=self.seed,
            queue_s=first.queue_s,
            first_audio_s=first.first_audio_s,
            total_s=total,
            **sums,
        )
        return Finished(reason, stats)


__all__ = ["Utterance"]
