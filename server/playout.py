"""What a listener hears who starts playing at the first byte."""

from __future__ import annotations

import time
from collections.abc import Callable


class Playout:
    """Follows the writes of one streamed reply.

    Sound plays from the first write on. A write that comes after everything before it has been
    played is an underrun: the listener sat in silence, and plays on from there. The network is
    not seen: a listener far away hears the same, later.

    Attributes:
        underruns: writes that came too late.
        underrun_s: seconds of silence they made.
        largest_gap_s: longest time between two writes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.underruns = 0
        self.underrun_s = 0.0
        self.largest_gap_s = 0.0
        self._clock = clock
        self._last: float | None = None
        self._dry_at = 0.0

    def write(self, seconds: float) -> None:
        """So many seconds of sound are handed over now."""
        now = self._clock()
        if self._last is None:
            self._dry_at = now
        else:
            self.largest_gap_s = max(self.largest_gap_s, now - self._last)
        late = now - self._dry_at
        if late > 0:
            self.underruns += 1
            self.underrun_s += late
        self._last = now
        self._dry_at = max(now, self._dry_at) + seconds


__all__ = ["Playout"]
