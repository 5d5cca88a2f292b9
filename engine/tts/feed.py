"""Text that arrives in pieces, on its way to an open request: into ids, within a slot's room."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import InvalidRequest
from engine.text.normalize import terminate
from engine.text.segments import Segments
from engine.text.split import speakable
from engine.tts.tokenizer import Tokenizer

Read = Callable[[str], str]


class Feed:
    """The ids of one open request's text, given out as soon as they are settled.

    The ids are those of the whole text, wherever it was cut; white space in front of its first
    word is dropped. Nothing is given out before there is something to speak.

    Args:
        tokenizer: the model's.
        limit: ids of text the request may come to.
        lead, trail: ids given out before the first and behind the last.
        read: what the front end makes of a sentence; each is then given out when it has ended.
            None takes the text as it is.
        mark: add a missing final mark.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        limit: int,
        *,
        lead: list[int],
        trail: list[int],
        read: Read | None = None,
        mark: bool = False,
    ) -> None:
        self.limit = limit
        self.tokens = 0  # given out, those around the text left out
        self._settling = tokenizer.settling()
        self._sentences = Segments("sentence")
        self._waiting = lead
        self._trail = trail
        self._read = read
        self._mark = mark
        self._begun = self._speakable = False

    def push(self, text: str) -> list[int]:
        """The ids that are settled with `text`.

        Raises:
            InvalidRequest: it does not fit any more, or the front end refuses it; nothing of it
                is taken then.
        """
        text = text if self._begun or self._sentences.tail else text.lstrip()
        if self._read is None:
            self._check(text)
            return self._given(text)
        ended, tail = self._sentences.peek(text)
        spoken = "".join(map(self._prepared, ended))
        self._check(spoken + tail)
        self._sentences.push(text)
        return self._given(spoken)

    def end(self) -> list[int]:
        """The ids that are left once the text has ended.

        Raises:
            InvalidRequest: there is nothing to speak at all, or what was kept back does not fit
                once it is prepared; call it again for the end without that.
        """
        kept = self._sentences.rest()
        if kept:
            kept = self._prepared(kept)
            if self._mark and speakable(kept):
                kept = terminate(kept)
            self._check(kept)
        ids = self._given(kept)
        if not self._speakable:
            raise InvalidRequest("`text` holds nothing that can be spoken", "text")
        rest = self._settling.rest()
        self.tokens += len(rest)
        return [*ids, *self._waiting, *rest, *self._trail]

    def _given(self, text: str) -> list[int]:
        self._begun = self._begun or bool(text)
        self._speakable = self._speakable or speakable(text)
        ids = self._settling.push(text)
        self.tokens += len(ids)
        self._waiting = [*self._waiting, *ids]
        if not self._speakable or not self.tokens:
            return []
        ids, self._waiting = self._waiting, []
        return ids

    def _prepared(self, sentence: str) -> str:
        assert self._read is not None
        if not speakable(sentence):
            return ""
        spoken = self._read(sentence).rstrip()
        apart = sentence[len(sentence.rstrip()) :]
        return spoken + (" " if apart and spoken else "")

    def _check(self, text: str) -> None:
        tokens = self.tokens + self._settling.count(text)
        if tokens > self.limit:
            raise InvalidRequest(
                f"`text` would come to {tokens} tokens, and an utterance whose text is still open"
                f" holds {self.limit} (`kv_positions` and `max_frames` set that): end it and open"
                " another one for the rest",
                "text",
            )


__all__ = ["Feed"]
