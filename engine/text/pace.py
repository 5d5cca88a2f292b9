"""How long a text takes to say: whether a transcript can be what a clip of some length says.

Every letter, sign or digit takes a time that depends on its script. The bounds are those of people:
outside the outer ones nobody speaks, outside the inner ones hardly anybody. They are Framecast's
own. What is not said (blanks, punctuation) takes no time; a pause is not speech.
"""

from __future__ import annotations

import enum
import unicodedata
from dataclasses import dataclass


class Fit(enum.Enum):
    """Whether a text can be what is said in some time."""

    SURE = "sure"
    DOUBTFUL = "doubtful"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Pace:
    """Characters per second of speech: (least, most) possible, (least, most) usual."""

    possible: tuple[float, float]
    usual: tuple[float, float]


_LETTERS = Pace((4.0, 32.0), (8.0, 24.0))
_DIGITS = Pace((0.8, 12.0), (1.2, 8.0))  # "7" is a word, and 1999 is four or seven
_HAN = Pace((1.2, 13.0), (3.0, 9.0))
_KANA = Pace((2.0, 18.0), (4.5, 13.0))
_HANGUL = Pace((1.2, 13.0), (3.4, 9.5))
_CONSONANTS = Pace((3.0, 26.0), (6.5, 20.0))  # scripts that leave most vowels out
_SYLLABLES = Pace((2.0, 26.0), (5.0, 20.0))  # letters that stand for more than one sound

_BY_NAME = (
    (("CJK ", "IDEOGRAPHIC"), _HAN),
    (("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"), _KANA),
    (("HANGUL",), _HANGUL),
    (("ARABIC", "HEBREW", "SYRIAC"), _CONSONANTS),
    (("LATIN", "CYRILLIC", "GREEK", "FULLWIDTH LATIN"), _LETTERS),
)


def fit(text: str, speech_s: float) -> Fit:
    """Can `text` be what is said in so many seconds of speech?"""
    paces = [pace for character in text if (pace := _pace(character)) is not None]
    if not _within(speech_s, [pace.possible for pace in paces]):
        return Fit.IMPOSSIBLE
    return Fit.SURE if _within(speech_s, [pace.usual for pace in paces]) else Fit.DOUBTFUL


def _within(seconds: float, bounds: list[tuple[float, float]]) -> bool:
    shortest = sum(1 / most for _, most in bounds)
    longest = sum(1 / least for least, _ in bounds)
    # Half a second either way: a breath, a word that was cut, what is measured in steps.
    return shortest - 0.5 <= seconds <= longest + 0.5


def _pace(character: str) -> Pace | None:
    category = unicodedata.category(character)
    if category[0] == "N":
        return _DIGITS
    if category[0] != "L":
        return None
    name = unicodedata.name(character, "")
    return next((pace for starts, pace in _BY_NAME if name.startswith(starts)), _SYLLABLES)


__all__ = ["Fit", "fit"]
