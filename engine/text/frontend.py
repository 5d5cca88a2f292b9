"""From the text a caller sent to what is spoken: an ordered list of steps, each with a switch.

A step repairs what a model reads badly (markup, signs, digits) and never exchanges one word for
another. Each works on any stretch of text; stretches cut where a sentence or a block ends give
what the whole gives, in a language that is named. No step knows the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from engine.errors import InvalidRequest
from engine.text.acronyms import spell_acronyms
from engine.text.addresses import read_addresses, without_urls
from engine.text.characters import clean, tidy, unify_quotes
from engine.text.directions import pauses, without_directions
from engine.text.language import resolve, tongue
from engine.text.lexicon import Lexicon
from engine.text.markup import plain
from engine.text.numbers import read_numbers
from engine.text.split import speakable

# Without one of these a language has nothing to read, so it need not be known.
_ANY_SIGN = re.compile(r"[0-9²³¼-¾⅐-⅞@&]|\w\.\w|[A-Z]{2}|[ ][VX]\b")


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of text and the seconds of silence in front of it."""

    text: str
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What is spoken: passages in order, at least one, and the silence behind the last."""

    passages: tuple[Passage, ...]
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Frontend:
    """The steps and what they need; safe to use from several threads."""

    lexicon: Lexicon = field(default_factory=Lexicon)

    def read(self, text: str, language: str, steps: Collection[str]) -> Reading:
        """What is spoken for `text` with the named steps; without any, `text` as it is.

        Args:
            language: what the request names, or "auto": then the text's own is detected.

        Raises:
            InvalidRequest: a pause is too long, or nothing is left to speak.
        """
        if not steps or not speakable(text):
            return Reading((Passage(text),))
        if "characters" in steps:
            text = clean(text)
        if "markup" in steps:
            text = plain(text, code="drop_code" not in steps)
        if "characters" in steps:
            text = unify_quotes(text)
        tag = resolve(language, text) if self.lexicon or _ANY_SIGN.search(text) else ""
        waiting, passages = 0.0, []
        for pause_s, piece in pauses(text) if "pauses" in steps else [(0.0, text)]:
            waiting += pause_s
            if speakable(words := self._words(piece, tag, steps)):
                passages.append(Passage(words, waiting))
                waiting = 0.0
        if not passages:
            raise InvalidRequest(
                "`text` holds nothing that can be spoken: all of it is markup, stage directions or"
                " other things that are not read out; `normalize` false speaks it as it is",
                "text",
            )
        return Reading(tuple(passages), waiting)

    def _words(self, text: str, tag: str, steps: Collection[str]) -> str:
        known = tongue(tag)
        if "directions" in steps:
            text = without_directions(text)
        if "lexicon" in steps:
            text = self.lexicon.apply(text, tag)
        if "drop_urls" in steps:
            text = without_urls(text)
        if known and "addresses" in steps:
            text = read_addresses(text, known)
        if known and "numbers" in steps:
            text = read_numbers(text, known)
        if known and "acronyms" in steps:
            text = spell_acronyms(text, known)
        return tidy(text) if "characters" in steps else text


__all__ = ["Frontend", "Passage", "Reading"]
