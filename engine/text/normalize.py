"""Small repairs a text needs before it is spoken."""

from __future__ import annotations

import unicodedata

_ENDS = ".!?…。！？｡।॥؟۔։።៕။‼⁇⁈⁉"
_CLOSERS = "\"'”’»›)]}）］｝」』】〉》〕＂＇*_~`"
_LOOSE = ",;:-–—、，；：،؛"  # a text broken off here has not ended

# First and last code point of a script, and the mark that ends its sentences.
_MARKS = (
    ("\u3040", "\u30ff", "。"),  # Japanese syllables
    ("\u3400", "\u9fff", "。"),  # Han
    ("\u0900", "\u097f", "।"),  # Devanagari
    ("\u0600", "\u06ff", "."),  # Arabic has its own question mark only
)


def terminate(text: str) -> str:
    """`text` with a final mark, the one its last letter's script uses, if it has none.

    A closing quote or bracket stays last. A model that has learned from whole sentences does not
    know when to stop without one, and swallows or repeats the last word.
    """
    stripped = text.rstrip()
    core = stripped.rstrip(_CLOSERS + " ")
    if not core or core[-1] in _ENDS:
        return text
    closers = stripped[len(core) :]
    core = core.rstrip(_LOOSE + " ") or core
    return core + _mark(core) + closers


def _mark(text: str) -> str:
    letters = (char for char in reversed(text) if unicodedata.category(char)[0] in "LM")
    last = next(letters, "")
    return next((mark for low, high, mark in _MARKS if low <= last <= high), ".")


__all__ = ["terminate"]
