"""Prompts on their way into the talker's cache: in pieces, slot after slot, between frames."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from engine.pieces import Steps
from engine.tts.cloning import Cloning
from engine.tts.rows import TalkerRows
from engine.tts.slot import Slot

# Between two frames prompts are processed for so long: half a frame while somebody listens who
# could be cut off, else two frames.
_HEARD_S = 0.04
_UNHEARD_S = 0.16
# A prompt gives way to listeners who would be cut off for so long, and no longer.
_MOST_PATIENCE_S = 0.5
# A piece may be shorter than the one to come: it is taken to be as long as the longest of so many.
_REMEMBERED = 4


class Filling:
    """The slots whose prompt is not done, in the order of their admission.

    Args:
        failed: is told of a slot whose prompt could not be processed, and why.
    """

    def __init__(
        self,
        generator: TalkerRows,
        cloning: Cloning,
        clock: Callable[[], float],
        failed: Callable[[Slot, Exception], None],
    ) -> None:
        self._took = deque([0.0], maxlen=_REMEMBERED)
        self._generator = generator
        self._cloning = cloning
        self._clock = clock
        self._failed = failed
        self._slots: deque[Slot] = deque()

    def steps(self, slot: Slot) -> Steps[Callable[[], bool]]:
        """All that is to do for a slot's prompt, as of `TalkerRows.prefill`."""
        plan, head = slot.entry.plan, slot.entry.head
        slot.prompt = self._generator.prompt(plan)
        prefix = head.prefix if head else (yield from self._cloning.prefix(plan, slot.prompt))
        return (yield from self._generator.prefill(slot.index, slot.prompt, prefix))

    def add(self, slot: Slot) -> None:
        self._slots.append(slot)

    def drop(self, index: int) -> None:
        """Forget the slot of row `index`, if it is here."""
        self._slots = deque(slot for slot in self._slots if slot.index != index)

    def run(self, listeners: Sequence[float], *, behind: bool) -> None:
        """Do some pieces.

        Args:
            listeners: when each listener runs dry.
            behind: the machine makes frames slower than they play, so that nobody can be saved.
        """
        now = self._clock()  # not that of a round: the frames of other models take time
        heard = not behind and any(end > now for end in listeners)
        most = _HEARD_S if heard else _UNHEARD_S
        while self._slots and self._clock() - now <= most:
            patient = now - self._slots[0].entry.job.arrival <= _MOST_PATIENCE_S
            if patient and self.stalls(now, listeners):
                return
            self._piece(self._slots[0])

    def stalls(self, now: float, listeners: Sequence[float]) -> bool:
        """A piece now would leave a listener without sound, and waiting may not."""
        return any(0 < end - now < max(self._took) for end in listeners)

    def _piece(self, slot: Slot) -> None:
        start = time.perf_counter()
        assert slot.filling is not None
        try:
            next(slot.filling)
        except StopIteration as end:
            self._slots.popleft()
            slot.filling, slot.landed = None, end.value
        except Exception as error:
            self._failed(slot, error)
        spent = time.perf_counter() - start
        slot.clock.prefill += spent
        self._took.append(spent)


__all__ = ["Filling"]
