"""An utterance whose text is still being written: text in and sound out at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from engine.errors import InvalidRequest
from engine.stream import Item, Readable, Stream
from engine.tts.feed import Feed


class LiveStream(Readable):
    """One utterance, open for text. Reads like a `Stream`; get one from `Engine.open`.

    The first sound comes as soon as the first word is certain. When the text runs dry while it is
    open, generation waits; what has been made is given out. Codes are those of the same text sent
    whole with `non_streaming_mode` false, wherever it was cut into pieces; one frame takes one
    more token, so text that comes slower than 12.5 tokens a second leaves gaps in the sound.

    `append`, `end` and `cancel` never block and may be called from any thread.

    Args:
        stream: where the sound comes from.
        feed: makes ids of text.
        append: hands settled ids to the worker.
        end: hands it the last ones and how many ids of text there were.
    """

    def __init__(
        self,
        stream: Stream,
        feed: Feed,
        append: Callable[[Sequence[int]], None],
        end: Callable[[Sequence[int], int], None],
    ) -> None:
        self.id = stream.id
        self.seed = stream.seed
        self.sample_rate = stream.sample_rate
        self.warnings = stream.warnings
        self.limit = feed.limit  # tokens of text it takes at most
        self._stream = stream
        self._feed = feed
        self._append = append
        self._end = end
        self._open = True
        self._lock = threading.Lock()

    @property
    def ended(self) -> bool:
        """No more sound is made; what was made may still be unread."""
        return self._stream.ended

    @property
    def tokens(self) -> int:
        """Tokens of text that are certain so far."""
        return self._feed.tokens

    def append(self, text: str) -> None:
        """Add a piece of text, cut anywhere.

        Raises:
            InvalidRequest: it does not fit a slot together with what came before, or the text or
                the utterance has ended. Nothing of it is taken; what came before is spoken.
            EngineError: what the utterance has failed with.
        """
        with self._lock:
            self._check_open()
            if ids := self._feed.push(text):
                self._append(ids)

    def end(self) -> None:
        """Say that the text is complete; a no-op when it was said before.

        Raises:
            InvalidRequest: nothing that can be spoken has come, which fails the utterance too; or
                the front end has made more of the last sentence than fits: it is left out.
        """
        with self._lock:
            if not self._open:
                return
            self._open = False
            if not self._stream.ended:
                self._finish()

    def cancel(self) -> None:
        """Stop the utterance and drop what was not read; a no-op after the end."""
        self._stream.cancel()

    async def read(self) -> Item:
        """The next item, waiting for it; raises the stream's error at a failed end."""
        return await self._stream.read()

    def get(self) -> Item:
        """Like `read`, blocking the thread."""
        return self._stream.get()

    def _finish(self) -> None:
        try:
            self._end(self._feed.end(), self._feed.tokens)
        except InvalidRequest as error:
            self._finish_without(error)
            raise

    def _finish_without(self, error: InvalidRequest) -> None:
        try:
            self._end(self._feed.end(), self._feed.tokens)
        except InvalidRequest:
            self._stream.abort(error)

    def _check_open(self) -> None:
        if self._stream.error is not None:
            raise self._stream.error
        if self._stream.ended:
            raise InvalidRequest("the utterance has ended; open another one for this text", "text")
        if not self._open:
            raise InvalidRequest("the text has ended; open another utterance for more", "text")


__all__ = ["LiveStream"]
