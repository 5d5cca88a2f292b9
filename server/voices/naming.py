"""What a saved voice may be called, and how a file in a store is."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Iterable

from engine import InvalidRequest

LONGEST_NAME = 64
# Emoji are left out: several spellings of one look the same, and names are typed into URLs,
# headers and shells.
_MARKS = " ._-'’()&+,"
_ID = re.compile(r"[a-z]{1,8}_[0-9a-f]{24}")


def new_id(prefix: str) -> str:
    """A fresh id, `prefix_` and 24 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(12)}"


def is_id(text: str, prefix: str | None = None) -> bool:
    """Whether a text has the form of an id, of one kind or of any."""
    return bool(_ID.fullmatch(text)) and (prefix is None or text.startswith(f"{prefix}_"))


def checked_name(name: str, taken: Iterable[str] = (), field: str = "name") -> str:
    """A voice's name as it is stored: composed, without blanks at its ends.

    Args:
        taken: names that mean something else already: built-in speakers, aliases.

    Raises:
        InvalidRequest: it is no name, or one of those taken.
    """
    composed = unicodedata.normalize("NFC", name).strip()
    if not 1 <= len(composed) <= LONGEST_NAME:
        _refuse(field, f"must be 1 to {LONGEST_NAME} characters long, got {len(composed)}")
    if (odd := next((c for c in composed if not _may_stand(c)), None)) is not None:
        _refuse(
            field,
            f"may hold letters, digits, blanks and any of `{_MARKS.strip()}`, got {odd!a}",
        )
    if unicodedata.category(composed[0])[0] not in "LN":
        _refuse(field, f"must begin with a letter or a digit, got {composed[:1]!r}")
    if is_id(composed.lower()):
        _refuse(field, "must not look like the id of a voice")
    if name_key(composed) in {name_key(each) for each in taken}:
        _refuse(field, f"{composed!r} is a voice this server has already; choose another one")
    return composed


def name_key(name: str) -> str:
    """What two names have in common that count as the same."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def _may_stand(character: str) -> bool:
    return character in _MARKS or unicodedata.category(character)[0] in "LMN"


def _refuse(field: str, problem: str) -> None:
    raise InvalidRequest(f"`{field}` {problem}", field)


__all__ = ["LONGEST_NAME", "checked_name", "is_id", "name_key", "new_id"]
