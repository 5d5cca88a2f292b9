"""Cutting a text that is too long for one utterance, at sentences where it can be.

Works on every script by rules alone: the marks that end a sentence, and the cases in which they
end nothing. Where a sentence itself is too long the cut falls to clauses, then spaces, then
between characters of unspaced scripts, then anywhere outside a combining sequence.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

Count = Callable[[str], int]
Starts = Callable[[str], Sequence[int]]
Cuts = Callable[[int], list[int]]
Furthest = Callable[[int, list[int], int], int | None]

_HARD = "。！？｡।॥؟۔։።፧၊။។៕‼⁇⁈⁉"  # end a sentence whatever follows
_SOFT = ".!?…"  # need white space behind them
_CLOSERS = r"\"'”’»›)\]}）］｝」』】〉》〕＂＇*_"
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_ENDING = re.compile(
    rf"[{_HARD}][{_HARD}{_SOFT}]*[{_CLOSERS}]*"
    # The look-behinds keep a long row of marks from being tried at each of them.
    rf"|(?<![{_SOFT}])(?P<soft>[{_SOFT}]+)(?:[\u00a0\u202f]»|[{_CLOSERS}])*(?=\s|$)"
    rf"|(?<![!?])[!?]+[{_CLOSERS}]*(?=[{_CJK}])"
)
_BREAK = re.compile(r"\r\n|[\r\n\v\f\x85\u2028\u2029]")
_CLAUSE = re.compile(rf"[,;:–][{_CLOSERS}]*(?=\s)|[—、，；：،؛፣፤]+[{_CLOSERS}]*")
_SPACE = re.compile(r"\s+")
_LAST_WORD = re.compile(r"[^\s(\[{\"'“‘«„¿¡*_]*$")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_JOINER = "\u200d"
_NUMBER = re.compile(r"\d{1,2}")

# English, German, French, Spanish, Italian, Portuguese, Russian
_TITLES = """
    adm apt asst ave bldg blvd brig bros capt cf cmdr co corp cpl dept dr drs esp etc gov hon inc
    jr lt ltd maj messrs mr mrs ms mt mme mlle mm pres prof pvt rep rev sen sgt sr st ste vs viz
    bzw ca evtl ggf inkl str usw vgl zzgl av env sra srta ud uds dott ing sig avv dra exmo
    им ул гр проф"""
_NUMBERED = """
    no nos nr núm num fig figs vol vols pp ch sec art op ext tel approx abb bd kap стр рис
    jan feb mar apr jun jul aug sep sept oct nov dec"""
_ABBREVIATIONS = frozenset(_TITLES.split())
_BEFORE_NUMBERS = frozenset(_NUMBERED.split())


def split(text: str, max_tokens: int, count: Count, starts: Starts) -> list[str]:
    """Cut `text` into parts of at most `max_tokens` each, in order.

    A text that fits comes back whole, as it is. Otherwise parts hold whole sentences, about
    equally many tokens each, with the white space between parts dropped and nothing else. The
    text is cut by where its tokens start; then each part is counted once.

    Args:
        count: how many tokens a text has on its own.
        starts: the place of the character each token of a text starts at, in order.

    Raises:
        ValueError: `max_tokens` is too small for a single character of the text.
    """
    begins = starts(text)
    if len(begins) <= max_tokens:
        return [text]
    text = text.rstrip()

    @cache
    def cuts(kind: int) -> list[int]:
        return sorted({*_KINDS[kind](text), len(text)})

    tokens = _Tokens(text, begins, max_tokens, count)

    def parts(wanted: int) -> int:
        return sum(1 for _ in _pack(tokens, cuts, wanted, tokens.estimated))

    fewest = parts(max_tokens)
    target = len(begins) / max(fewest, 1)
    for wanted in (int(target * 1.05), int(target * 1.2)):
        if wanted < max_tokens and parts(wanted) <= fewest:
            return list(_pack(tokens, cuts, wanted, tokens.checked))
    return list(_pack(tokens, cuts, max_tokens, tokens.checked))


def line_breaks(text: str) -> int:
    """How many lines end in `text`; two or more in white space end a paragraph."""
    return len(_BREAK.findall(text))


def speakable(text: str) -> bool:
    """Whether `text` holds a letter or digit of any script."""
    return any(unicodedata.category(char)[0] in "LN" for char in text)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Which cut a part may reach: by the tokens of the whole text, and by counting the part."""

    text: str
    begins: Sequence[int]
    limit: int
    count: Count

    def estimated(self, start: int, cuts: list[int], limit: int) -> int | None:
        """The last of `cuts` with at most `limit` of the text's tokens behind `start`."""
        first = bisect_left(self.begins, start)
        if first and (first == len(self.begins) or self.begins[first] > start):
            first -= 1  # the token before reaches into the part
        behind = first + max(limit, 0)
        stop = self.begins[behind] if behind < len(self.begins) else len(self.text)
        index = bisect_right(cuts, stop) - 1
        return cuts[index] if index >= 0 and cuts[index] > start else None

    def checked(self, start: int, cuts: list[int], limit: int) -> int | None:
        """Like `estimated`, but the part up to there is known to fit."""
        end = self.estimated(start, cuts, limit)
        if end is None or (excess := self._count(start, end) - self.limit) <= 0:
            return end
        nearer = self.estimated(start, cuts, limit - excess)
        if nearer is not None and self._count(start, nearer) <= self.limit:
            return nearer
        return self._searched(start, cuts, nearer or end)

    def _searched(self, start: int, cuts: list[int], failed: int) -> int | None:
        low, high = bisect_right(cuts, start) - 1, bisect_left(cuts, failed)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._count(start, cuts[middle]) <= self.limit
            low, high = (middle, high) if fits else (low, middle)
        return cuts[low] if low >= 0 and cuts[low] > start else None

    def _count(self, start: int, end: int) -> int:
        return self.count(self.text[start:end].rstrip())


def _pack(tokens: _Tokens, cuts: Cuts, wanted: int, furthest: Furthest) -> Iterator[str]:
    """Greedy parts of about `wanted` tokens; only a single sentence takes up to the limit."""
    text = tokens.text
    start = _behind_space(text, 0)
    while start < len(text):
        end = furthest(start, cuts(0), wanted)
        for kind in range(len(_KINDS)) if end is None else ():
            end = furthest(start, cuts(kind), tokens.limit)
            if end is not None:
                break
        if end is None:
            end = start + 1
            if tokens.count(text[start]) > tokens.limit:
                raise ValueError(f"max_tokens={tokens.limit} is too small for {text[start]!r}")
        yield text[start:end].rstrip()
        start = _behind_space(text, end)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def sentence_ends(text: str) -> Iterator[int]:
    """Where sentences end in `text`: behind their marks, or in front of a line break."""
    for match in _ENDING.finditer(text):
        if _ends_sentence(text, match):
            yield match.end()
    for match in _SPACE.finditer(text):
        breaks = line_breaks(match[0])
        wrapped_line = breaks == 1 and _at(text, match.end()).islower()
        if breaks and not wrapped_line:
            yield match.start()


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    rest = _SPACE.match(text, match.end())
    following = _at(text, rest.end() if rest else match.end())
    if match["soft"] is None:
        # Japanese quotes a sentence and goes on: 「行く。」と言った
        return not (match[0][-1] in "」』" and following in ("と", "っ"))
    if following.islower():
        return False
    return match["soft"] != "." or not _abbreviated(text, match.start("soft") + 1)


def _abbreviated(text: str, at: int) -> bool:
    """Whether the word before `at` ends with a full stop that ends no sentence."""
    if _at(text, at - 1) != ".":
        return False
    found = _LAST_WORD.search(text[max(0, at - 25) : at - 1])
    word = found[0].lower() if found else ""
    if len(word) == 1 and word != word.upper():
        return True
    if word in _BEFORE_NUMBERS:
        return text[at : at + 4].lstrip()[:1].isdigit()
    return bool(word in _ABBREVIATIONS or _INITIALS.fullmatch(word) or _NUMBER.fullmatch(word))


def clause_ends(text: str) -> Iterator[int]:
    """Where clauses end in `text`: behind their marks."""
    return (match.end() for match in _CLAUSE.finditer(text))


def _spaces(text: str) -> Iterator[int]:
    return (match.start() for match in _SPACE.finditer(text))


def _free_spaces(text: str) -> Iterator[int]:
    return (at for at in _spaces(text) if not _abbreviated(text, at))


def _unspaced_letters(text: str) -> Iterator[int]:
    unspaced = {char for char in set(text) if _unspaced(char)}
    return (
        at
        for at in _graphemes(text)
        if (text[at] in unspaced or text[at - 1] in unspaced) and text[at].isalnum()
    )


def _graphemes(text: str) -> Iterator[int]:
    """Places outside what is drawn as one character; an approximation of Unicode's rules."""
    joined = {char for char in set(text) if _joins(char)}
    regional = {char for char in set(text) if "\U0001f1e6" <= char <= "\U0001f1ff"}
    flag_open = False
    for at in range(1, len(text)):
        before, after = text[at - 1], text[at]
        flag_open = not flag_open and before in regional
        if not (after in joined or before == _JOINER or (flag_open and after in regional)):
            yield at


def _joins(char: str) -> bool:
    """Whether `char` belongs to the one before it."""
    return (
        unicodedata.category(char)[0] == "M"
        or char == _JOINER
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tag sequences
        or "\u1160" <= char <= "\u11ff"  # vowels and finals of spelled-out Hangul
        or "\udc00" <= char <= "\udfff"
    )


def _characters(text: str) -> Iterable[int]:
    return range(1, len(text))


def _at(text: str, index: int) -> str:
    return text[index] if 0 <= index < len(text) else ""


def _unspaced(char: str) -> bool:
    """Whether `char` is of a script that sets no spaces between words."""
    return unicodedata.east_asian_width(char) in "WF" or (
        "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u109f" or "\u1780" <= char <= "\u17ff"
    )


# Best first; the next kind is used where the one before has no place near enough.
_KINDS: tuple[Callable[[str], Iterable[int]], ...] = (
    sentence_ends,
    clause_ends,
    _free_spaces,
    _spaces,
    _unspaced_letters,
    _graphemes,
    _characters,
)

__all__ = ["clause_ends", "line_breaks", "sentence_ends", "speakable", "split"]
