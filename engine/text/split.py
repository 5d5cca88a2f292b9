"""Cutting a text that is too long for one utterance, at sentences where it can be.

Works on every script by rules alone: the marks that end a sentence, and the cases in which they
end nothing. Where a sentence itself is too long the cut falls to clauses, then spaces, then
between characters of unspaced scripts, then anywhere outside a combining sequence.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache

Count = Callable[[str], int]
Cuts = Callable[[int], list[int]]

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


def split(text: str, max_tokens: int, count: Count) -> list[str]:
    """Cut `text` into parts of at most `max_tokens` each, in order.

    A text that fits comes back whole, as it is. Otherwise parts hold whole sentences, about
    equally many tokens each, with the white space between parts dropped and nothing else.

    Args:
        count: how many tokens a text has.

    Raises:
        ValueError: `max_tokens` is too small for a single character of the text.
    """
    if count(text) <= max_tokens:
        return [text]

    @cache
    def cuts(kind: int) -> list[int]:
        return sorted({*_KINDS[kind](text), len(text)})

    parts = _pack(text, cuts, max_tokens, max_tokens, count)
    target = sum(count(part) for part in parts) / max(len(parts), 1)
    for slack in (1.05, 1.2):
        even = _pack(text, cuts, max_tokens, min(max_tokens, int(target * slack)), count)
        if len(even) <= len(parts):
            return even
    return parts


def speakable(text: str) -> bool:
    """Whether `text` holds a letter or digit of any script."""
    return any(unicodedata.category(char)[0] in "LN" for char in text)


def _pack(text: str, cuts: Cuts, limit: int, wanted: int, count: Count) -> list[str]:
    """Greedy parts of about `wanted` tokens; only a single sentence takes up to `limit`."""
    parts = []
    start = 0
    while start < len(text):
        end = _furthest(text, start, cuts(0), wanted, count)
        for kind in range(len(_KINDS)) if end is None else ():
            end = _furthest(text, start, cuts(kind), limit, count)
            if end is not None:
                break
        if end is None:
            raise ValueError(f"max_tokens={limit} is too small for {text[start]!r}")
        parts.append(text[start:end].strip())
        start = end
    return [part for part in parts if part]


def _furthest(text: str, start: int, cuts: list[int], limit: int, count: Count) -> int | None:
    """The last of `cuts` behind `start` up to which the text fits, or None."""

    reach = start + limit * _CHARACTERS_PER_TOKEN

    def fits(index: int) -> bool:
        end = cuts[index]
        return end <= reach and count(text[start:end].strip()) <= limit

    low = bisect_right(cuts, start)  # the first cut behind start
    if low == len(cuts) or not fits(low):
        return None
    # Gallop, then halve: few counts, all of them near the limit.
    step = 1
    while low + step < len(cuts) and fits(low + step):
        low, step = low + step, step * 2
    high = min(low + step, len(cuts))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return cuts[low]


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _ENDING.finditer(text):
        if _ends_sentence(text, match):
            yield match.end()
    for match in _SPACE.finditer(text):
        breaks = len(_BREAK.findall(match[0]))
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


def _clause_ends(text: str) -> Iterator[int]:
    return (match.end() for match in _CLAUSE.finditer(text))


def _spaces(text: str) -> Iterator[int]:
    return (match.start() for match in _SPACE.finditer(text))


def _free_spaces(text: str) -> Iterator[int]:
    return (at for at in _spaces(text) if not _abbreviated(text, at))


def _unspaced_letters(text: str) -> Iterator[int]:
    return (
        at
        for at in _graphemes(text)
        if text[at].isalnum() and (_unspaced(text[at - 1]) or _unspaced(text[at]))
    )


def _graphemes(text: str) -> Iterator[int]:
    """Places outside what is drawn as one character; an approximation of Unicode's rules."""
    flag_open = False
    for at in range(1, len(text)):
        before, after = text[at - 1], text[at]
        flag_open = _regional(before) and not flag_open
        if not (_joins(before, after) or (flag_open and _regional(after))):
            yield at


def _joins(before: str, after: str) -> bool:
    return (
        unicodedata.category(after)[0] == "M"
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= after <= "\U000e007f"  # tag sequences
        or "\u1160" <= after <= "\u11ff"  # vowels and finals of spelled-out Hangul
        or "\udc00" <= after <= "\udfff"
    )


def _regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _characters(text: str) -> Iterable[int]:
    return range(1, len(text))


def _at(text: str, index: int) -> str:
    return text[index] if 0 <= index < len(text) else ""


def _unspaced(char: str) -> bool:
    """Whether `char` is of a script that sets no spaces between words."""
    return unicodedata.east_asian_width(char) in "WF" or (
        "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u109f" or "\u1780" <= char <= "\u17ff"
    )


# More than any text has on average; keeps the rest of a long text from being counted each time.
_CHARACTERS_PER_TOKEN = 24

# Best first; the next kind is used where the one before has no place near enough.
_KINDS: tuple[Callable[[str], Iterable[int]], ...] = (
    _sentence_ends,
    _clause_ends,
    _free_spaces,
    _spaces,
    _unspaced_letters,
    _graphemes,
    _characters,
)

__all__ = ["speakable", "split"]
