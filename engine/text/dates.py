"""Dates, years and decades, as the language reads them."""

from __future__ import annotations

import re
from functools import cache, partial

from babel.dates import get_month_names

from engine.text.numerals import cardinal, ordinal, year
from engine.text.tongues import Tongue

_DAY, _MONTH, _YEAR = r"(?P<d>[0-9]{1,2})", r"(?P<m>[0-9]{1,2})", r"(?P<y>[12][0-9]{3})"
_ISO = re.compile(
    r"(?<![\w.-])(?P<y>[12][0-9]{3})(?P<sep>[-/.])(?P<m>[01][0-9])(?P=sep)(?P<d>[0-3][0-9])(?![\w-])"
)
_NUMERIC = re.compile(
    rf"(?<![\w.,/-])(?P<a>[0-9]{{1,2}})(?P<sep>[./-]){_MONTH}(?P=sep)"
    rf"(?P<y>[12][0-9]{{3}}|[0-9]{{2}})(?![\w/-]|[.,][0-9])"
)
_DAY_MONTH = re.compile(rf"(?<![\w.,]){_DAY}\.{_MONTH}\.(?![\w])")
_DATIVE = re.compile(r"\b(?:am|vom|zum|bis|dem|den|des|seit|ab|im|beim|zur|der|die|das)\s+$", re.I)
_YEAR_CUES = re.compile(
    r"\b(?:in|since|of|from|by|until|till|year|to|and|before|after|around|circa|early|late|mid"
    r"|spring|summer|autumn|fall|winter|©|january|february|march|april|may|june|july|august"
    r"|september|october|november|december)[\s(]+$",
    re.I,
)


def read_dates(text: str, tongue: Tongue) -> str:
    """`text` with its dates in words; other numbers are left."""
    text = _ISO.sub(partial(_iso, tongue=tongue), text)
    text = _NUMERIC.sub(partial(_numeric, tongue=tongue), text)
    return _named(text, tongue)


def read_decades(text: str, tongue: Tongue) -> str:
    """`text` with English and German decades in words: the 1990s, die 90er."""
    if tongue.code == "en":
        pattern = r"(?<![\w.,])['’]?([12][0-9])?([0-9])0['’]?s\b"
        return re.sub(pattern, partial(_decade, tongue=tongue), text)
    if tongue.code == "de":
        pattern = r"(?<![\w.,:/-])(1[1-9][0-9]{2}|[0-9]{1,2})er(?![\w/:])"
        return re.sub(pattern, lambda match: year(int(match[1]), tongue) + "er", text)
    return text


def read_years(text: str, tongue: Tongue) -> str:
    """`text` with its years in words, where they differ from other numbers."""
    if tongue.code == "en":
        pattern = r"(?<![\w.,:/-])(1[1-9][0-9]{2}|20[0-9]{2})(?![\w%/:-]|[.,][0-9])"
        return re.sub(pattern, partial(_english_year, tongue=tongue), text)
    if tongue.code == "de":
        pattern = r"(?<![\w.,:/-])1[1-9][0-9]{2}(?![\w%/:-]|[.,][0-9])"
        return re.sub(pattern, lambda match: year(int(match[0]), tongue), text)
    return text


def _english_year(match: re.Match[str], tongue: Tongue) -> str:
    before, after = match.string[max(0, match.start() - 20) : match.start()], match.string
    counted = re.match(r"\s+(?!was|is|has|as|this|its)[a-z]+s\b", after[match.end() :][:30])
    if counted and not _YEAR_CUES.search(before):
        return cardinal(int(match[0]), tongue)
    return year(int(match[0]), tongue)


def _decade(match: re.Match[str], tongue: Tongue) -> str:
    value = int((match[1] or "") + match[2] + "0")
    words = year(value, tongue) if match[1] else cardinal(value, tongue)
    return words.removesuffix("y") + ("ies" if words.endswith("y") else "s")


def _iso(match: re.Match[str], tongue: Tongue) -> str:
    return _date(match, int(match["d"]), int(match["m"]), tongue)


def _numeric(match: re.Match[str], tongue: Tongue) -> str:
    first, second = int(match["a"]), int(match["m"])
    # Where the custom cannot be meant, the other order is.
    day_first = tongue.day_first if max(first, second) <= 12 else first > 12
    day, month = (first, second) if day_first else (second, first)
    return _date(match, day, month, tongue)


def _date(match: re.Match[str], day: int, month: int, tongue: Tongue) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    number = int(match["y"])
    if number < 100:
        number += 2000 if number < 50 else 1900
    name = _months(tongue)[month - 1]
    read = year(number, tongue)
    if tongue.code == "en":
        spoken = _english(day, name, tongue, match, tongue.day_first)
        return spoken + (f", {read}" if not tongue.day_first else f" {read}")
    if tongue.code == "de":
        return f"{_german_day(day, match, tongue)} {name} {read}"
    spoken = _day(day, tongue)
    if tongue.code in {"es", "pt"}:
        return f"{spoken} de {name} de {read}"
    return f"{spoken} {name} {read}"


def _english(day: int, name: str, tongue: Tongue, match: re.Match[str], day_first: bool) -> str:
    if not day_first:
        return f"{name} {ordinal(day, tongue)}"
    the = "" if re.search(r"\bthe\s+$", match.string[: match.start()][-6:], re.I) else "the "
    return f"{the}{ordinal(day, tongue)} of {name}"


def _german_day(day: int, match: re.Match[str], tongue: Tongue) -> str:
    before = match.string[max(0, match.start() - 8) : match.start()]
    return ordinal(day, tongue) + german_ending(before)


def german_ending(before: str) -> str:
    """The ending of an ordinal behind what stands before it: der dritte, am dritten, dritter."""
    found = _DATIVE.search(before)
    if not found:
        return "er"
    return "e" if found[0].strip().lower() in {"der", "die", "das"} else "en"


def _day(day: int, tongue: Tongue) -> str:
    if day == 1 and tongue.code in {"fr", "it", "pt"}:
        return ordinal(1, tongue)
    return cardinal(day, tongue)


def _named(text: str, tongue: Tongue) -> str:
    names = "|".join(map(re.escape, _months(tongue)))
    if tongue.code == "en":
        return _english_named(text, tongue, names)
    if tongue.code == "de":
        short = r"Jan\.|Feb\.|Aug\.|Sept\.|Okt\.|Nov\.|Dez\."
        text = _DAY_MONTH.sub(partial(_german_numeric, tongue=tongue), text)
        pattern = rf"(?<![\w.,]){_DAY}\.[ ]?(?P<name>{names}|{short})(?!\w)"
        return re.sub(pattern, partial(_german_named, tongue=tongue), text)
    of = "de " if tongue.code in {"es", "pt"} else ""
    pattern = rf"(?<![\w.,])1(?:er|º|°|o)?[ ](?={of}(?:{names})\b)"
    if tongue.code == "es":
        return re.sub(rf"(?<![\w.,])1[º°][ ](?={of}(?:{names})\b)", "primero ", text, flags=re.I)
    return re.sub(pattern, f"{ordinal(1, tongue)} ", text, flags=re.I)


def _german_named(match: re.Match[str], tongue: Tongue) -> str:
    if not 1 <= int(match["d"]) <= 31:
        return match[0]
    name = next((m for m in _months(tongue) if m[:3] == match["name"][:3]), match["name"])
    return f"{_german_day(int(match['d']), match, tongue)} {name}"


def _german_numeric(match: re.Match[str], tongue: Tongue) -> str:
    day, month = int(match["d"]), int(match["m"])
    if not (_DATIVE.search(match.string[: match.start()][-8:]) and 0 < month <= 12 and day <= 31):
        return match[0]
    return f"{_german_day(day, match, tongue)} {_months(tongue)[month - 1]}"


def _english_named(text: str, tongue: Tongue, names: str) -> str:
    month = rf"(?P<name>{names}|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
    behind = rf"(?:,?[ ]{_YEAR})?(?![\w%]|[.,:/][0-9])"
    first = rf"\b{month}[ ]{_DAY}(?:st|nd|rd|th)?{behind}"
    text = re.sub(first, partial(_english_day, tongue=tongue), text)
    last = rf"(?<![\w.,:/]){_DAY}(?:st|nd|rd|th)?(?:[ ]of)?[ ]{month}{behind}"
    return re.sub(last, partial(_english_day, tongue=tongue, day_first=True), text)


def _english_day(match: re.Match[str], tongue: Tongue, day_first: bool = False) -> str:
    if not 1 <= int(match["d"]) <= 31:
        return match[0]
    name = next(m for m in _months(tongue) if m[:3] == match["name"][:3])
    spoken = _english(int(match["d"]), name, tongue, match, day_first)
    if not match["y"]:
        return spoken
    return f"{spoken}{' ' if day_first else ', '}{year(int(match['y']), tongue)}"


@cache
def _months(tongue: Tongue) -> list[str]:
    names = get_month_names("wide", locale=tongue.locale)
    return [str(names[number]) for number in range(1, 13)]


__all__ = ["german_ending", "read_dates", "read_decades", "read_years"]
