"""Fractions, written with a slash or as one character."""

from __future__ import annotations

import re
import unicodedata
from functools import partial

from engine.text.numerals import cardinal, ordinal
from engine.text.tongues import Tongue

_VULGAR = re.compile(r"(?:([0-9])[ ]?)?([¼-¾⅐-⅞])")
_FRACTION = re.compile(
    r"(?<![\w/.,])(?:(?P<whole>[0-9]{1,3})[ ])?(?P<up>[0-9]{1,2})/(?P<down>[0-9]{1,2})"
    r"(?![\w/]|[.,][0-9])"
)
# One and many, by denominator; the others are ordinals.
_NAMES = {
    "en": {2: "half halves", 4: "quarter quarters"},
    "de": {3: "Drittel Drittel", 7: "Siebtel Siebtel"},
    "fr": {2: "demi demis", 3: "tiers tiers", 4: "quart quarts"},
    "es": {2: "medio medios", 3: "tercio tercios"},
    "it": {2: "mezzo mezzi"},
    "pt": {2: "meio meios", 3: "terço terços"},
}
_HALF = {"en": "and a half", "de": "einhalb", "fr": "et demi", "es": "y medio", "it": "e mezzo",
         "pt": "e meio"}  # fmt: skip
_BETWEEN = {"en": "and ", "es": "y ", "it": "e ", "pt": "e "}


def read_fractions(text: str, tongue: Tongue) -> str:
    """`text` with fractions up to tenths in words; in other pairs with a slash (24/7) the slash
    goes and two numbers are left."""
    text = _VULGAR.sub(_written_out, text)
    return _FRACTION.sub(partial(_fraction, tongue=tongue), text)


def _written_out(match: re.Match[str]) -> str:
    fraction = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    return f"{match[1] or ''} {fraction}" if match[1] else fraction


def _fraction(match: re.Match[str], tongue: Tongue) -> str:
    up, down = int(match["up"]), int(match["down"])
    if not (2 <= down <= 10 and 0 < up < down):
        return match[0].replace("/", " ")
    if not match["whole"]:
        return _part(up, down, tongue)
    whole = cardinal(match["whole"], tongue)
    if (up, down) == (1, 2):
        if tongue.code == "de":
            return f"{whole.removesuffix('s') if whole == 'eins' else whole}einhalb"
        return f"{whole} {_HALF[tongue.code]}"
    return f"{whole} {_BETWEEN.get(tongue.code, '')}{_part(up, down, tongue)}"


def _part(up: int, down: int, tongue: Tongue) -> str:
    if (tongue.code, up, down) == ("de", 1, 2):
        return "ein halb"
    known = _NAMES[tongue.code].get(down)
    one, many = known.split() if known else _names(down, tongue)
    name = one if up == 1 else many
    return f"{cardinal(up, tongue, name)} {name}"


def _names(down: int, tongue: Tongue) -> tuple[str, str]:
    one = ordinal(down, tongue)
    if tongue.code == "de":
        return (
            f"{one.removesuffix('t').capitalize()}tel",
            f"{one.removesuffix('t').capitalize()}tel",
        )
    if tongue.code == "it":
        return one, one[:-1] + "i"
    return one, f"{one}s"


__all__ = ["read_fractions"]
