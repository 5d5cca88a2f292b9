"""The contexts of one socket, for dialects in which several talk at a time."""

from __future__ import annotations

from itertools import count

from engine import InvalidRequest
from server.live.contexts import Context
from server.live.outbox import Outbox
from server.live.segment import Manner, Mouth

MOST = 16


class Contexts:
    """Contexts under ids of their own, so that a client may use its ids again at once.

    Args:
        most_chars: characters that may wait to be spoken, in each of them.
        most: contexts there may be at a time.
    """

    def __init__(self, mouth: Mouth, outbox: Outbox, most_chars: int, most: int = MOST) -> None:
        self._mouth = mouth
        self._outbox = outbox
        self._most_chars = most_chars
        self._most = most
        self._numbers = count(1)
        self._open: dict[str, Context] = {}

    @property
    def speaking(self) -> bool:
        """Something is still to be said by one of them."""
        return any(context.speaking for context in self._open.values())

    def open(self, manner: Manner) -> Context:
        """A new context; `InvalidRequest` when there are too many."""
        if len(self._open) >= self._most:
            raise InvalidRequest(
                f"{self._most} are being spoken at the same time on this socket; wait for an end"
            )
        context = Context(
            str(next(self._numbers)), self._mouth, manner, self._outbox, most_chars=self._most_chars
        )
        self._open[context.id] = context
        return context

    def release(self, context: Context) -> None:
        """End one at once, without a word: nothing of it is sent any more."""
        self._open.pop(context.id, None)
        context.end()

    async def aclose(self) -> None:
        """End all of them."""
        for context in list(self._open.values()):
            await context.aclose()
        self._open.clear()


__all__ = ["MOST", "Contexts"]
