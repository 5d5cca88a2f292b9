"""Times of day, as the language reads them."""

from __future__ import annotations

import re
from functools import partial

from engine.text.numerals import cardinal, code
from engine.text.tongues import Tongue

_AT = r"(?<![\w:.,])(?P<h>[01]?[0-9]|2[0-4])"
_TIME = re.compile(
    rf"{_AT}(?::|(?P<dot>\.)|(?P<fr>[ ]?h[ ]?))(?P<min>[0-5][0-9])"
    r"(?:[ ]?min\b)?(?::(?P<s>[0-5][0-9]))?"
    r"(?P<hours>[ ]?(?:Uhr|h|horas|heures)\b)?(?P<half>[ ]?(?:[AaPp]\.[Mm]\.|[AaPp][Mm]\b))?"
    r"(?![\w:]|[.,][0-9])"
)
_HOUR = {
    "de": re.compile(rf"{_AT}[ ]?(?:Uhr|h)(?!\w)"),
    "fr": re.compile(rf"{_AT}[ ]?h(?!\w)"),
    "pt": re.compile(rf"{_AT}h(?!\w)"),
}
_HALF = re.compile(r"(?<![\w:.,])(?P<h>1?[0-9])(?P<half>[ ]?(?:[AaPp]\.[Mm]\.|[AaPp][Mm]\b))")
_SPAN = re.compile(
    r"(?<=[0-9hmM])(?:[ ]?[-–—][ ]?)(?=[0-2]?[0-9](?:(?::|[ ]?h[ ]?)[0-5][0-9](?![\w:])"
    r"|[ ]?(?:Uhr|h|[AaPp]\.?[Mm])(?!\w)))"
)
_IT_CUE = re.compile(r"\b(?:ore|alle|dalle|le)\s+$", re.I)


def read_times(text: str, tongue: Tongue) -> str:
    """`text` with its times of day in words; other numbers are left."""
    text = _SPAN.sub(f" {tongue.words['to']} ", text)
    text = _TIME.sub(partial(_time, tongue=tongue), text)
    if tongue.code == "en":
        return _HALF.sub(lambda m: cardinal(m["h"], tongue) + _half(m), text)
    if hour := _HOUR.get(tongue.code):
        return hour.sub(lambda match: _read(int(match["h"]), 0, tongue), text)
    return text


def _time(match: re.Match[str], tongue: Tongue) -> str:
    if not _meant(match, tongue):
        return match[0]
    hour, minute = int(match["h"]), int(match["min"])
    if match["s"]:
        parts = (match["h"], match["min"], match["s"])
        return " ".join(code(part, tongue) for part in parts) + (match["hours"] or "")
    if tongue.code == "en":
        return _english(hour, minute, bool(match["half"]), tongue) + _half(match)
    spoken = _read(hour, minute, tongue)
    if match["hours"] and tongue.code == "es":
        return f"{spoken} horas"
    return spoken + _half(match)


def _meant(match: re.Match[str], tongue: Tongue) -> bool:
    """Whether this is a time and not a decimal or a duration of another custom."""
    if match["dot"]:
        cued = tongue.code == "it" and _IT_CUE.search(match.string[: match.start()][-8:])
        return bool(cued or (tongue.code == "de" and "Uhr" in (match["hours"] or "")))
    return not match["fr"] or tongue.code in {"fr", "pt", "es"}


def _half(match: re.Match[str]) -> str:
    return f" {match['half'].strip()}" if match["half"] else ""


def _english(hour: int, minute: int, half: bool, tongue: Tongue) -> str:
    spoken = cardinal(hour, tongue)
    if minute >= 10:
        return f"{spoken} {cardinal(minute, tongue)}"
    if minute:
        return f"{spoken} oh {cardinal(minute, tongue)}"
    if half:
        return spoken
    return f"{spoken} o'clock" if 1 <= hour <= 12 else f"{spoken} hundred"


def _read(hour: int, minute: int, tongue: Tongue) -> str:
    if tongue.code == "de":
        spoken = f"{cardinal(hour, tongue, 'Uhr')} Uhr"
        return f"{spoken} {cardinal(minute, tongue)}" if minute else spoken
    # An hour is feminine in all four.
    noun = {"fr": "heure", "es": "hora", "it": "ora", "pt": "hora"}[tongue.code]
    spoken = cardinal(hour, tongue, noun)
    if tongue.code == "fr":
        spoken += " heure" if hour < 2 else " heures"
        return f"{spoken} {cardinal(minute, tongue, noun)}" if minute else spoken
    if tongue.code == "es":
        return f"{spoken} {code(f'{minute:02}', tongue)}" if minute else spoken
    if tongue.code == "it":
        return f"{spoken} e {cardinal(minute, tongue)}" if minute else spoken
    if minute:
        return f"{spoken} e {cardinal(minute, tongue)}"
    return f"{spoken} {'hora' if hour == 1 else 'horas'}"


__all__ = ["read_times"]
