"""Numbers as words: cardinals that agree with their noun, ordinals, years, decimals, digits."""

from __future__ import annotations

import re
from functools import lru_cache

from num2words import num2words

from engine.text.tongues import Tongue

MOST_DIGITS = 15  # of a number read as one; longer ones are read digit by digit

# Words that may follow a number without being what is counted.
_NO_NOUN = {
    "es": "de y a o en por para con que es e u al del el la los las más",
    "fr": "de et à ou en par pour avec que est sur du des le la les ou plus",
    "it": "di e a o in per con che è su del dei il la lo i gli le da più",
    "pt": "de e a o ou em por para com que é da do das dos as os mais",
}
_MASCULINE = {
    "es": "día días problema problemas sistema sistemas programa programas tema temas mapa mapas "
    "planeta planetas idioma idiomas",
    "it": "problema sistema programma tema pianeta",
    "pt": "dia dias problema problemas sistema sistemas programa programas tema temas mapa mapas "
    "planeta planetas idioma idiomas grama gramas quilograma quilogramas miligrama miligramas",
    "de": "Name Junge Kunde Käse Buchstabe Kollege Ende Auge Gebäude",
}
_FEMININE_ENDS = {
    "es": ("a", "as", "ción", "ciones", "dad", "dades"),
    "it": ("a", "zione", "tà"),
    "pt": ("a", "as", "ção", "ções", "dade", "dades"),
    "de": ("e", "ung", "heit", "keit", "schaft", "ion", "tät"),
    "fr": ("heure", "heures", "minute", "minutes", "seconde", "secondes", "livre", "livres",
           "tonne", "tonnes", "couronne", "couronnes", "roupie", "roupies", "once", "onces",
           "année", "années", "semaine", "semaines", "fois", "personne", "personnes", "page",
           "pages", "tion", "tions", "femme", "femmes", "fille", "filles", "calorie",
           "calories", "place", "places", "pomme", "pommes"),
}  # fmt: skip
_NO_NOUNS = {code: frozenset(words.split()) for code, words in _NO_NOUN.items()}
_MASCULINES = {code: frozenset(words.split()) for code, words in _MASCULINE.items()}


def cardinal(value: int | str, tongue: Tongue, noun: str = "") -> str:
    """A whole number in words, in the form it takes before `noun` (empty: on its own)."""
    if len(str(value)) > MOST_DIGITS:
        return digits(str(value), tongue)
    words = _plain(int(value), tongue)
    if not noun or noun in _NO_NOUNS.get(tongue.code, ()):
        return words
    return _agreeing(words, int(value), tongue, feminine(noun, tongue))


@lru_cache(maxsize=4096)  # texts may hold any number
def _plain(value: int, tongue: Tongue) -> str:
    words = str(num2words(value, lang=tongue.numerals)).replace(",", "")
    if tongue.code == "es":
        words = re.sub(r"veintiuno(?= mil)", "veintiún", words)
        words = re.sub(r"uno(?= mil)", "un", words)
    return words


def feminine(noun: str, tongue: Tongue) -> bool:
    """Whether a noun looks feminine; only languages whose numbers care are known."""
    word = noun.partition(" ")[0]
    if word in _MASCULINES.get(tongue.code, ()):
        return False
    return word.endswith(_FEMININE_ENDS.get(tongue.code, ()) or "\0")


def _agreeing(words: str, value: int, tongue: Tongue, is_feminine: bool) -> str:
    if tongue.code == "de":
        return re.sub("eins$", "eine" if is_feminine and value == 1 else "ein", words)
    if tongue.code == "it" and value == 1:
        return "una" if is_feminine else "un"
    if not is_feminine:
        return _es_masculine(words) if tongue.code == "es" else words
    return _FEMININE.get(tongue.code, str)(words)


def _es_masculine(words: str) -> str:
    return re.sub(r"uno$", "un", re.sub(r"veintiuno$", "veintiún", words))


def _es_feminine(words: str) -> str:
    return re.sub(r"uno$", "una", re.sub(r"(?<=ient)os\b", "as", words))


def _pt_feminine(words: str) -> str:
    words = re.sub(r"(?<=ent)os\b", "as", words)
    return re.sub(r"\bdois$", "duas", re.sub(r"\bum$", "uma", words))


def _fr_feminine(words: str) -> str:
    return re.sub(r"\bun$", "une", words)


_FEMININE = {"es": _es_feminine, "pt": _pt_feminine, "fr": _fr_feminine}


def digits(text: str, tongue: Tongue) -> str:
    """The digits in `text`, one by one."""
    return " ".join(_plain(int(char), tongue) for char in text if char in "0123456789")


def decimal(whole: str, fraction: str, tongue: Tongue, noun: str = "") -> str:
    """A number with what stands behind its decimal sign."""
    whole = whole or "0"
    if not fraction:
        return code(whole, tongue) if _coded(whole) else cardinal(whole, tongue, noun)
    spelled = tongue.spelled_decimals or len(fraction) > 2
    behind = digits(fraction, tongue) if spelled else code(fraction, tongue)
    return f"{cardinal(whole, tongue)} {tongue.words['decimal']} {behind}"


def code(text: str, tongue: Tongue) -> str:
    """A row of digits that may start with zeros, which are read: 05 is zero five."""
    bare = text.lstrip("0")
    if len(bare) > 4 and len(bare) < len(text):
        return digits(text, tongue)
    zeros = digits("0" * (len(text) - len(bare)), tongue)
    return " ".join(part for part in (zeros, cardinal(bare, tongue) if bare else "") if part)


def _coded(text: str) -> bool:
    return len(text) > 1 and text[0] == "0"


def ordinal(value: int, tongue: Tongue, is_feminine: bool = False) -> str:
    """The ordinal in its first form: German without its ending (`dritt`), masculine elsewhere
    unless asked for."""
    words = {("es", 11): "undécimo", ("es", 12): "duodécimo"}.get((tongue.code, value))
    words = words or str(num2words(value, lang=tongue.numerals, to="ordinal")).replace(",", "")
    if tongue.code == "de":
        return words.removesuffix("e")
    if is_feminine and tongue.code == "fr":
        return "première" if value == 1 else words
    if is_feminine and tongue.code in {"es", "it", "pt"}:
        return re.sub(r"o\b", "a", words)
    return words


def year(value: int, tongue: Tongue) -> str:
    """A year as it is read: in pairs in English and by hundreds in German, where they are."""
    if tongue.code not in {"en", "de"}:
        return cardinal(value, tongue)
    words = str(num2words(value, lang=tongue.numerals, to="year"))
    return words.replace("oh-", "oh ").replace(",", "")


__all__ = ["MOST_DIGITS", "cardinal", "code", "decimal", "digits", "feminine", "ordinal", "year"]
