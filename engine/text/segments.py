"""Cutting a text while it still arrives: at sentences or clauses that are known to have ended."""

from __future__ import annotations

import re
from typing import Literal

from engine.errors import InvalidRequest
from engine.text.split import clause_ends, sentence_ends, speakable

Granularity = Literal["sentence", "clause"]
GRANULARITIES = ("sentence", "clause")

# What goes on for so many characters without an end is cut where it can be.
LONGEST = 1000
_SPACE = re.compile(r"\s+")


class Segments:
    """Gives out the segments of a text that arrives in pieces, wherever it was cut into them.

    A mark ends a segment once the first character behind it and its white space has come: only
    then is it known that `3.` is not `3.5` and `Dr.` no end. Segments keep the white space behind
    them, so together they are the text; each but the last holds something that can be spoken.

    Args:
        granularity: "sentence", or "clause" for commas, colons and their like too.

    Raises:
        InvalidRequest: another granularity.
    """

    def __init__(self, granularity: str = "sentence") -> None:
        if granularity not in GRANULARITIES:
            known = ", ".join(GRANULARITIES)
            raise InvalidRequest(
                f"`granularity` must be one of {known}, got {granularity!r}", "granularity"
            )
        self._clauses = granularity == "clause"
        self._tail = ""

    @property
    def tail(self) -> str:
        """What no segment was made of yet."""
        return self._tail

    def push(self, text: str) -> list[str]:
        """The segments that have ended with `text`."""
        segments, self._tail = self.peek(text)
        return segments

    def peek(self, text: str) -> tuple[list[str], str]:
        """What `push` would give out and keep; changes nothing."""
        text, segments = self._tail + text, []
        start = 0
        for end in self._ends(text):
            if end > start and speakable(text[start:end]):
                segments.append(text[start:end])
                start = end
        return segments, text[start:]

    def rest(self) -> str:
        """What is left once the text has ended; it is kept no longer."""
        tail, self._tail = self._tail, ""
        return tail

    def _ends(self, text: str) -> list[int]:
        known = len(text.rstrip())
        found = {*sentence_ends(text), *(clause_ends(text) if self._clauses else ())}
        ends = [_behind_space(text, end) for end in sorted(found) if end < known]
        return _with_long_ones_cut(text, ends)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _with_long_ones_cut(text: str, ends: list[int]) -> list[int]:
    cuts, start = [], 0
    for end in [*ends, len(text)]:
        while end - start > LONGEST:
            start = _place(text, start, start + LONGEST)
            cuts.append(start)
        start = end
    return sorted({*cuts, *ends})


def _place(text: str, start: int, end: int) -> int:
    clauses = [start + at for at in clause_ends(text[start:end]) if at < end - start]
    space = text.rfind(" ", start, end - 1) + 1
    return _behind_space(text, clauses[-1]) if clauses else space or end


__all__ = ["GRANULARITIES", "Granularity", "Segments"]
