"""Which language a text is read in: the one that was given, else the one it is written in."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from engine.catalog import LANGUAGE_ALIASES, LANGUAGE_CODES
from engine.text.tongues import TONGUES, Tongue

# What detection chooses from: the languages the model speaks.
SPOKEN = tuple(LANGUAGE_CODES)
UNDECIDED = "en"

_SAMPLE = 2000  # characters are enough to tell
_LEAST_SURE = 0.12  # ten languages that are equally likely have 0.1 each
# Addresses, what holds digits, marks.
_NO_HINT = re.compile(
    r"https?://\S+|(?<!\S)[\w.+-]{1,64}@\S+"
    r"|(?:(?<![A-Za-z])[A-Za-z]{1,9})?[0-9][0-9.,:/-]*[A-Za-z]{0,9}|[^\w\s'’]"
)
_SIGNS = {"R$": "pt"}


def resolve(language: str, text: str) -> str:
    """The BCP-47 tag, in lower case, to read `text` in.

    Args:
        language: as a request gives it: a name, a code, a tag or "auto". A name the models do
            not use is returned as it is: nothing is known about reading it.
    """
    given = language.strip().lower().replace("_", "-")
    if given in {"", "auto"}:
        return detect(text)
    primary, _, region = given.partition("-")
    name = LANGUAGE_ALIASES.get(primary, primary)
    code = next((code for code, known in LANGUAGE_CODES.items() if known == name), name)
    return f"{code}-{region}" if region else code


def tongue(tag: str) -> Tongue | None:
    """How to read numbers in a language; None where they are left to the model."""
    primary, _, region = tag.partition("-")
    if primary == "en" and region and region not in {"us", "ca", "ph"}:
        return TONGUES["en-gb"]
    return TONGUES.get(tag) or TONGUES.get(primary)


def detect(text: str) -> str:
    """The code of the language `text` is most likely written in, of those the models speak.

    Where there is nothing to go by it is English.
    """
    for sign, code in _SIGNS.items():
        if sign in text:
            return code
    words = _NO_HINT.sub(" ", text[:_SAMPLE])
    if not words.strip():
        return UNDECIDED
    code, certainty = _identifier().classify(words)
    return str(code) if certainty > _LEAST_SURE else UNDECIDED


@cache
def _identifier() -> Any:
    # Its model takes most of a second to read, so it is read when first needed.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(SPOKEN)
    return identifier


__all__ = ["SPOKEN", "detect", "resolve", "tongue"]
