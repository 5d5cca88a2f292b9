"""Digits that are no amount: telephone numbers, versions, addresses of machines, codes."""

from __future__ import annotations

import re
from functools import partial

from engine.text.numerals import code, digits
from engine.text.tongues import Tongue

_PHONE = re.compile(
    # +49 30 123456, (555) 123-4567, 555-123-4567, 01 23 45 67 89, 030/1234567, a bank card
    r"(?<![\w.,])(?<![0-9][ \u202f])(?:\+[0-9][0-9 ()/.-]{5,20}[0-9]"
    r"|\([0-9]{2,5}\)[ ]?[0-9][0-9 -]{3,14}[0-9]"
    r"|[0-9]{3}[-. ][0-9]{3}[-. ][0-9]{4}"
    r"|0[0-9](?:[ .][0-9]{2}){4}"
    r"|0[0-9]{2,4}(?:[ /-][0-9]{2,8}){1,4}"
    r"|[0-9]{4}(?:[ -][0-9]{4}){2,5})(?!\w|[.,][0-9])"
)
_CALLED = re.compile(
    r"(?P<cue>\b(?:phone|call|dial|fax|tel|telefon|telefono|teléfono|telefone|téléphone|mobile"
    r"|handy|rufnummer|whatsapp)\b[.:]*[ ])"
    r"(?P<digits>[0-9][0-9 ()/-]{3,18}[0-9]|911|112|999|110)(?![\w/]|[.,-][0-9])",
    re.I,
)
_VERSION = re.compile(r"(?<![0-9.,])[0-9]{1,6}(?:\.[0-9]{1,6}){2,9}(?![0-9]|\.[0-9])")
_CHAIN = re.compile(r"(?<![\w.,])[0-9]{1,9}(?:-[0-9]{1,9}){2,9}(?!\w|-|[.,][0-9])")
_GROUPS = re.compile(r"[0-9]+")


def read_codes(text: str, tongue: Tongue) -> str:
    """`text` with such rows of digits in words, groups set apart by commas."""
    text = _PHONE.sub(partial(_phone, tongue=tongue), text)
    text = _CALLED.sub(lambda match: match["cue"] + _spelled(match["digits"], tongue), text)
    text = _VERSION.sub(partial(_version, tongue=tongue), text)
    return _CHAIN.sub(lambda match: _spelled(match[0], tongue), text)


def _phone(match: re.Match[str], tongue: Tongue) -> str:
    if re.fullmatch(tongue.number, match[0]) and "." in match[0]:
        return match[0]  # 123.456.7890 is one, 123.456.789 is a number in some languages
    plus = f"{tongue.words['plus']} " if match[0].startswith("+") else ""
    pairs = tongue.code == "fr" and re.fullmatch(r"0[0-9](?:[ .][0-9]{2}){4}", match[0])
    if pairs:
        return ", ".join(code(group, tongue) for group in _GROUPS.findall(match[0]))
    return plus + _spelled(match[0], tongue)


def _spelled(text: str, tongue: Tongue) -> str:
    return ", ".join(digits(group, tongue) for group in _GROUPS.findall(text))


def _version(match: re.Match[str], tongue: Tongue) -> str:
    if re.fullmatch(tongue.number, match[0]):
        return match[0]
    before = match.string[max(0, match.start() - 1) : match.start()]
    point = f" {tongue.words['point']} "
    read = {True: code, False: digits}
    parts = [read[len(part) < 3](part, tongue) for part in match[0].split(".")]
    return (" " if before.isalpha() else "") + point.join(parts)


__all__ = ["read_codes"]
