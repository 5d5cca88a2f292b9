"""What has arrived of a request whose input is still open: ids of text now, later of sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import InputTimeout


@dataclass(slots=True, eq=False)
class OpenInput:
    """The input of one request as far as it has come. Belongs to the worker thread.

    Args:
        needed: items before the request may take a slot.
        ceiling: most frames; while the input is open that is not known better.
        patience_s: how long a request that needs more waits for it.
    """

    needed: int
    ceiling: int
    patience_s: float
    items: list[int] = field(default_factory=list)
    ended: bool = False
    _waiting_since: float | None = None

    @property
    def enough(self) -> bool:
        """The request may take a slot."""
        return self.ended or len(self.items) >= self.needed

    def append(self, items: Sequence[int]) -> None:
        """More has come."""
        self.items.extend(items)
        self._waiting_since = None

    def end(self, items: Sequence[int], ceiling: int) -> None:
        """The last has come, and with it how many frames there may be."""
        self.append(items)
        self.ceiling = ceiling
        self.ended = True

    def waited_out(self, now: float) -> bool:
        """Say at `now` that more is needed; True once that is so for longer than the patience."""
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since > self.patience_s

    def timeout(self) -> InputTimeout:
        """What a request ends with that was waited for in vain."""
        waited = f"{self.patience_s:g} s"
        return InputTimeout(f"the input is still open, and nothing came for {waited}")


__all__ = ["OpenInput"]
