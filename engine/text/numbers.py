"""Everything with digits in a text, in words. The order of the steps is the order of trust:
what looks most like one thing only is read first."""

from __future__ import annotations

import re
from functools import partial

from engine.text.amounts import read_amounts
from engine.text.clock import read_times
from engine.text.codes import read_codes
from engine.text.dates import german_ending, read_dates, read_decades, read_years
from engine.text.fractions import read_fractions
from engine.text.numerals import cardinal, code, decimal, ordinal
from engine.text.roman import read_roman
from engine.text.tongues import NARROW, Tongue, compiled

_SIGN = re.compile(r"(?<![^\s(\[=<>±×*/+])(?:-|−[ ]?|(?P<plus>\+))(?=[$€£]?[0-9])")
_MATHS = re.compile(
    r"(?<=[0-9])[ ]?(?:(?P<eq>=)|(?P<plus>\+)|(?P<times>[×·*])|(?P<over>÷)|(?P<minus>−)"
    r"|(?P<less><)|(?P<more>>)|(?P<by>x))[ ]?(?=-?[0-9])"
)
_IS = re.compile(r"(?<=[\w)])[ ]?=[ ]?(?=-?[0-9])")
_EQUALS = re.compile(r"(?<=[0-9])[ ]=|=[ ](?=[0-9])")
_FEET = re.compile(r"(?<![\w.,'])([1-9])'(1?[0-9])(?:\"|'')(?!\w)")
_FOLD = re.compile(r"(?<![\w.,])([0-9]{1,6})[x×](?!\w)")
_BEFORE = {"<": "less", ">": "more", "≤": "most", "≥": "least", "~": "about", "≈": "about",
           "§": "section", "#": "number", "№": "number"}  # fmt: skip
_MARKED = re.compile(r"(?<![\w&])(?P<sign>§{1,2}|[<>≤≥~≈#№])[ ]?(?=[0-9])")
# Figures behind it will be words apart, so it is a power there as well.
_POWER = re.compile(r"(?<=[\w)])[²³](?![^\W0-9²³])")
_NUMBER_WORDS = {
    "en": r"\bNo\.", "de": r"\bNr\.", "fr": r"\b[Nn](?:°|º|o\.)", "es": r"\b[Nn](?:\.?º|°|úm\.)",
    "it": r"\b[Nn](?:\.|°|º)", "pt": r"\b[Nn](?:\.?º|°)",
}  # fmt: skip
_ORDINALS = {
    "en": r"(?<![\w.,])(?P<n>[0-9]{1,9}|[0-9]{1,3}(?:,[0-9]{3})+)(?:st|nd|rd|th)\b",
    "de": r"(?<=\s)(?P<n>[0-9]{1,4})\.(?=\s+[A-Za-zÄÖÜäöü])",
    "fr": r"(?<![\w.,])(?P<n>[0-9]{1,4})(?:(?P<f>[èe]?re)|er|nde?|[èe]?me|e|ᵉ)\b",
    "es": r"(?<![\w.,])(?P<n>[0-9]{1,4})\.?(?:º|°|(?P<f>ª)|(?P<er>er)\b|o\b)(?!C)",
    "it": r"(?<![\w.,])(?P<n>[0-9]{1,4})(?:º|°|(?P<f>ª))(?!C)",
    "pt": r"(?<![\w.,])(?P<n>[0-9]{1,4})\.?(?:º|°|(?P<f>ª)|o\b|(?P<g>a)\b)(?!C)",
}
_ARTICLE = re.compile(
    r"\b(?:der|die|das|dem|den|des|am|im|vom|zum|zur|beim|ein|eine|einen|jede[rsmn]?|seine[rnm]?"
    r"|ihre[rnm]?|unsere[rnm]?|diese[rsmn]?)\s+$",
    re.I,
)
_RANGE = (
    r"(?<![\w.,/-])(?P<before>[$€£])?(?P<a>{n})(?P<unit>[ ]?(?:[%€£$]|°[CF]?))?"
    r"(?:[ ]?[–—][ ]?|[ ]-[ ]|-)(?P<sign>[$€£]?)(?P<b>{n})(?![0-9]|[.,/-][0-9])"
)
_RATIO = re.compile(r"(?<![\w.,:])([0-9]{1,4}):([0-9]{1,4})(?![\w:]|[.,][0-9])")
_LEFT = r"(?<![0-9])(?P<n>{n})(?P<noun>[ ][^\W\d_][\w]*)?"
_APART = re.compile(r"(?<=[^\W\d_])(?=[0-9])|(?<=[0-9])(?=[^\W\d_])")


def read_numbers(text: str, tongue: Tongue) -> str:
    """`text` with its numbers in the words of a language, and no ASCII digit left in it."""
    for step in _STEPS:
        text = step(text, tongue)
    return text


def _signs(text: str, tongue: Tongue) -> str:
    words = tongue.words
    if tongue.code == "en":
        text = _FEET.sub(r"\1 foot \2", text)
    text = _FOLD.sub(lambda match: _fold(match[1], tongue), text)
    if _EQUALS.search(text):
        text = re.sub(r"(?<=[0-9])[ ]-[ ](?=[0-9])", f" {words['minus']} ", text)
    text = _MATHS.sub(
        lambda match: f" {words['equals' if match.lastgroup == 'eq' else str(match.lastgroup)]} ",
        text,
    )
    text = re.sub(_NUMBER_WORDS[tongue.code] + r"[ ]?(?=[0-9])", f"{words['number']} ", text)
    text = _IS.sub(f" {words['equals']} ", text)
    text = _MARKED.sub(lambda match: f"{words[_BEFORE[match['sign'][0]]]} ", text)
    text = re.sub(r"±[ ]?(?=[0-9])", f"{words['plus']} {words['minus']} ", text)
    text = _SIGN.sub(lambda match: f"{words['plus' if match['plus'] else 'minus']} ", text)
    return compiled(_RANGE, tongue).sub(partial(_range, tongue=tongue), text)


def _powers(text: str, tongue: Tongue) -> str:
    names = {"²": "squared", "³": "cubed"}
    return _POWER.sub(lambda match: f" {tongue.words[names[match[0]]]}", text)


def _fold(number: str, tongue: Tongue) -> str:
    if tongue.code == "de":
        return f"{cardinal(number, tongue, 'Mal')}mal"
    return f"{cardinal(number, tongue, tongue.words['fold'])} {tongue.words['fold']}"


def _range(match: re.Match[str], tongue: Tongue) -> str:
    values = [float(".".join(tongue.split(match[side])[:2])[:20] or 0) for side in "ab"]
    rising = values[0] < values[1]
    if not rising and len(match["b"]) == 2 and len(match["a"]) == 4:  # 1990-95
        rising = True
    word = tongue.words["to" if rising else "versus"]
    if match["before"] and not match["sign"]:  # $5-10
        return f"{match['a']} {word} {match['before']}{match['b']}"
    first = f"{match['before'] or ''}{match['a']}{match['unit'] or ''}"
    return f"{first} {word} {match['sign']}{match['b']}"


def _ordinals(text: str, tongue: Tongue) -> str:
    return re.sub(_ORDINALS[tongue.code], partial(_ordinal, tongue=tongue), text)


def _ordinal(match: re.Match[str], tongue: Tongue) -> str:
    number = int(match["n"].replace(",", ""))
    if not number:
        return match[0]
    if tongue.code == "de":
        before = match.string[max(0, match.start() - 12) : match.start()]
        if not _ARTICLE.search(before):
            return match[0]
        return ordinal(number, tongue) + german_ending(before)
    groups = match.groupdict()
    words = ordinal(number, tongue, bool(groups.get("f") or groups.get("g")))
    return words[:-1] if groups.get("er") else words


def _ratios(text: str, tongue: Tongue) -> str:
    return _RATIO.sub(rf"\1 {tongue.words['versus']} \2", text)


def _cardinals(text: str, tongue: Tongue) -> str:
    text = _APART.sub(" ", text)
    return compiled(_LEFT, tongue).sub(partial(_cardinal, tongue=tongue), text)


def _cardinal(match: re.Match[str], tongue: Tongue) -> str:
    whole, fraction = tongue.split(match["n"])
    noun = (match["noun"] or "").strip()
    if tongue.code == "de" and not _counts(match, noun):
        noun = ""
    if fraction and "." in match["n"] and tongue.decimal == ",":
        return _dotted(whole, fraction, tongue) + (match["noun"] or "")
    return decimal(whole, fraction, tongue, noun) + (match["noun"] or "")


def _counts(match: re.Match[str], noun: str) -> bool:
    """In German: whether a noun follows and none stands before that the number belongs to."""
    before = re.search(r"(\w+)\s+$", match.string[max(0, match.start() - 30) : match.start()])
    return noun[:1].isupper() and not (before and before[1][0].isupper() and before.start())


def _dotted(whole: str, fraction: str, tongue: Tongue) -> str:
    # 3.5 where a comma is the custom: a version, or a foreign decimal.
    return f"{cardinal(whole, tongue)} {tongue.words['point']} {code(fraction, tongue)}"


def _ungrouped(text: str, tongue: Tongue) -> str:
    return text.replace(NARROW, " ")


_STEPS = (
    read_roman,
    read_dates,
    read_codes,
    read_times,
    read_decades,
    read_fractions,
    _signs,
    read_amounts,
    _powers,
    _ordinals,
    read_years,
    _ratios,
    _cardinals,
    _ungrouped,
)

__all__ = ["read_numbers"]
