"""Roman numerals where they can be nothing else: after names of rulers, chapters, centuries."""

from __future__ import annotations

import re
from functools import partial

from engine.text.numerals import cardinal, ordinal
from engine.text.tongues import Tongue

_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_ROMAN = r"(?=[IVXLC])(?:C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?<=[IVXLC])"
_MARKS = {
    "en": "Chapter|Part|Volume|Book|Act|Scene|Section|Phase|War|Type|Title|Article|Appendix",
    "de": "Kapitel|Teil|Band|Akt|Szene|Buch|Weltkrieg|Phase|Typ|Artikel|Abschnitt",
    "fr": "chapitre|Chapitre|partie|tome|Tome|acte|Acte|scène|Livre|livre|volume|phase|type|Partie",
    "es": "capítulo|Capítulo|parte|tomo|Tomo|acto|Acto|escena|siglo|Siglo|libro|volumen|fase|tipo"
    "|Parte",
    "it": "capitolo|Capitolo|parte|tomo|atto|Atto|scena|libro|volume|fase|tipo|Parte|titolo",
    "pt": "capítulo|Capítulo|parte|tomo|ato|Ato|cena|século|Século|livro|volume|fase|tipo|Parte",
}
_CENTURY = {
    "fr": ("e|ème", r"siècles?"),
    "it": ("", "secolo"),
    "en": ("(?:th|st|nd|rd)", "century"),
}
_RULERS = {
    "en": "Henry|Charles|Edward|George|Elizabeth|James|William|Richard|Louis|Philip|Napoleon|Pius"
    "|Benedict|Innocent|Alexander|Frederick|Ferdinand|Francis|Peter|Catherine|Nicholas|Paul"
    "|Gregory|Leo|Clement|Ramses|Ptolemy|Otto|Mary",
    "de": "Heinrich|Karl|Ludwig|Friedrich|Wilhelm|Otto|Georg|Elisabeth|Philipp|Napoleon|Pius"
    "|Benedikt|Alexander|Ferdinand|Franz|Peter|Katharina|Nikolaus|Paul|Gregor|Leo|Maximilian"
    "|Joseph|Leopold",
    "fr": "Louis|Charles|Henri|François|Philippe|Napoléon|Élisabeth|Elisabeth|Pie|Benoît|Alexandre"
    "|Ferdinand|Pierre|Catherine|Nicolas|Paul|Grégoire|Léon|Guillaume|Clément",
    "es": "Felipe|Carlos|Alfonso|Fernando|Isabel|Enrique|Luis|Napoleón|Pío|Benedicto|Alejandro"
    "|Pedro|Catalina|Nicolás|Pablo|Gregorio|León|Juan|Sancho|Jaime",
    "it": "Vittorio Emanuele|Umberto|Carlo|Enrico|Luigi|Filippo|Napoleone|Elisabetta|Pio|Benedetto"
    "|Alessandro|Ferdinando|Francesco|Pietro|Caterina|Nicola|Paolo|Gregorio|Leone|Federico",
    "pt": "Pedro|João|Manuel|Afonso|Filipe|Carlos|Isabel|Henrique|Luís|Napoleão|Pio|Bento"
    "|Alexandre|Fernando|Catarina|Nicolau|Paulo|Gregório|Leão|José|Sebastião|Maria",
}
_WOMEN = ("Elizabeth", "Elisabeth", "Katharina", "Isabel", "Catalina", "Elisabetta", "Caterina",
          "Catarina", "Maria", "Mary", "Catherine", "Élisabeth")  # fmt: skip
_ANY_NAME = re.compile(rf"\b(?P<name>[A-ZÀ-Þ][\w'’-]+)[ ](?P<n>{_ROMAN})\b(?!['’.]?\w)")


def read_roman(text: str, tongue: Tongue) -> str:
    """`text` with its Roman numerals in words. A single letter counts only after a word such as
    "chapter" or, but for I, a ruler's name; two and more also after any capitalised word."""
    text = _century(text, tongue)
    if tongue.code == "fr":
        text = re.sub(r"(?<=[^\W\d_] )I(er|re|ère)\b", _first, text)
    marked = rf"\b(?P<mark>{_MARKS[tongue.code]})[ ](?P<n>{_ROMAN})\b(?!['’]\w)"
    text = re.sub(marked, lambda m: f"{m['mark']} {cardinal(value(m['n']), tongue)}", text)
    ruler = rf"\b(?P<name>{_RULERS[tongue.code]})[ ](?P<n>{_ROMAN})\b(?P<dot>\.?)(?!['’]\w)"
    text = re.sub(ruler, partial(_ruler, tongue=tongue), text)
    return _ANY_NAME.sub(partial(_named, tongue=tongue), text)


def value(roman: str) -> int:
    """The number a Roman numeral stands for."""
    total, last = 0, 0
    for letter in reversed(roman):
        number = _VALUES[letter]
        total += number if number >= last else -number
        last = max(last, number)
    return total


def _century(text: str, tongue: Tongue) -> str:
    if tongue.code not in _CENTURY:
        return text
    suffix, word = _CENTURY[tongue.code]
    ending = f"(?:{suffix})" if suffix else ""
    pattern = rf"\b(?P<n>{_ROMAN}){ending}[ ](?P<word>{word})\b"
    return re.sub(pattern, lambda m: f"{ordinal(value(m['n']), tongue)} {m['word']}", text)


def _first(match: re.Match[str]) -> str:
    return "premier" if match[1] == "er" else "première"


def _ruler(match: re.Match[str], tongue: Tongue) -> str:
    number, woman = value(match["n"]), match["name"] in _WOMEN
    if tongue.code == "en":
        if match["n"] == "I":  # also a pronoun
            return match[0]
        return f"{match['name']} the {ordinal(number, tongue).title()}{match['dot']}"
    if tongue.code == "de":
        return f"{match['name']} {_german(match, number, woman, tongue)}"
    if tongue.code == "fr":
        spoken = ordinal(1, tongue, woman) if number == 1 else cardinal(number, tongue)
    else:
        spoken = ordinal(number, tongue, woman) if number <= 10 else cardinal(number, tongue)
    return f"{match['name']} {spoken}{match['dot']}"


def _german(match: re.Match[str], number: int, woman: bool, tongue: Tongue) -> str:
    rest = match.string[match.end() :].lstrip()
    # The full stop is the ordinal's; at the end of a text it ends the sentence, too.
    dot = "." if match["dot"] and not rest else ""
    article = "die" if woman else "der"
    return f"{article} {ordinal(number, tongue).capitalize()}e{dot}"


def _named(match: re.Match[str], tongue: Tongue) -> str:
    roman = match["n"]
    # C and L make words and abbreviations (MIX, CD); a lone letter can be anything.
    if len(roman) < 2 or set(roman) - set("IVX"):
        return match[0]
    return f"{match['name']} {cardinal(value(roman), tongue)}"


__all__ = ["read_roman", "value"]
