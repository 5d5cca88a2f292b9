"""E-mail addresses and URLs, as one would say them, or left out."""

from __future__ import annotations

import re
from functools import partial

from engine.text.numerals import digits
from engine.text.tongues import Tongue

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}"
_EMAIL = re.compile(
    rf"(?<![\w.+@-])(?:mailto:)?(?P<user>[A-Za-z0-9_+-]{{1,64}}(?:\.[A-Za-z0-9_+-]{{1,64}}){{0,8}})@(?P<host>{_HOST})(?!\w)"
)
_PATH = r"(?P<path>/[A-Za-z0-9._~%/+@:,;=-]*)?(?P<rest>[?#][^\s<>\"')\]]*)?"
_URL = re.compile(
    r"(?<![\w.@/-])(?:(?:https?|ftp)://(?:[^\s/@]{1,64}@)?(?P<host>[\w.-]{1,253}|\[[0-9a-f:]+\])|"
    rf"(?P<www>www\.{_HOST}))(?::(?P<port>[0-9]{{1,5}}))?{_PATH}",
    re.I,
)
# Only endings that are no words, and in small letters: "sat.It" is a missing space.
_BARE = re.compile(
    r"(?<![\w.@/-])(?P<host>(?:[A-Za-z0-9][a-z0-9-]{0,62}\.){1,4}"
    r"(?:com|org|net|edu|gov|io|dev|app|ai|info|de|fr|es|br|uk|eu|ch))" + _PATH + r"(?!\w|\.\w|@)"
)
_PARTS = re.compile(r"[0-9]|[^\W\d_]+|[./@_:-]")


def read_addresses(text: str, tongue: Tongue) -> str:
    """`text` with e-mail addresses and URLs in words. Of a URL its scheme, `www.`, and whatever
    stands behind its path are not said."""
    for pattern in (_EMAIL, _URL, _BARE):
        text = pattern.sub(partial(_spoken, tongue=tongue), text)
    return text


def without_urls(text: str) -> str:
    """`text` without its URLs; e-mail addresses stay."""
    return _URL.sub(_dropped, _BARE.sub(_dropped, text))


def _dropped(match: re.Match[str]) -> str:
    return _split_end(match[0])[1]


def _spoken(match: re.Match[str], tongue: Tongue) -> str:
    groups = match.groupdict()
    host = (groups.get("host") or groups.get("www") or "").removeprefix("www.")
    path = "" if groups.get("rest") else _split_end(groups.get("path") or "")[0]
    path = (groups.get("path") or "") if groups.get("rest") else path
    end = _split_end(match[0])[1]
    address = f"{groups['user']}@{host}" if groups.get("user") else host + path.rstrip("/")
    return _said(address.rstrip("."), tongue) + end


def _split_end(address: str) -> tuple[str, str]:
    """An address and the marks behind it that belong to the sentence."""
    bare = address.rstrip(".,;:!?")
    return bare, address[len(bare) :]


def _said(address: str, tongue: Tongue) -> str:
    names = {".": "dot", "/": "slash", "@": "at", "_": "underscore", ":": "colon", "-": "dash"}
    return " ".join(
        digits(part, tongue) if part.isdigit() else tongue.words[names[part]] if part in names
        else part
        for part in _PARTS.findall(address)
    )  # fmt: skip


__all__ = ["read_addresses", "without_urls"]
