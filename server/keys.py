"""API keys: how they are written down, and how a request's key is found.

Only SHA-256 digests are kept. No message here quotes what was written: it may be a key.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VISIBLE = re.compile(r"[!-~]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_SCHEMES = ("bearer", "token", "api-key")
_HEADERS = ("api-key", "x-api-key", "xi-api-key")
LIMITS = ("requests_per_minute", "concurrency", "audio_seconds_per_hour")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One caller: its name, the SHA-256 of its key and what it may use.

    A limit of None takes the server's default, 0 is no limit. `priority` orders the queue, higher
    first.
    """

    name: str
    digest: bytes = field(repr=False)
    requests_per_minute: int | None = None
    concurrency: int | None = None
    audio_seconds_per_hour: float | None = None
    priority: int = 0

    def with_defaults(self, defaults: Mapping[str, float]) -> ApiKey:
        """The same key with every limit it has none of taken from `defaults`."""
        missing: dict[str, Any] = {n: v for n, v in defaults.items() if getattr(self, n) is None}
        return replace(self, **missing)


ANYONE = ApiKey("", b"")
# OpenAI's subprotocol that carries a key.
KEY_PROTOCOL = "openai-insecure-api-key."


class KeyRing:
    """The keys of one server; an empty ring lets anyone in."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self.keys = tuple(keys)

    def find(self, headers: Mapping[str, str]) -> ApiKey | None:
        """The key a request carries, in time that does not depend on how much of it is right."""
        found = None
        for given in given_keys(headers):
            digest = _sha256(given)
            for key in self.keys:
                if hmac.compare_digest(key.digest, digest):
                    found = found or key
        return found


def given_keys(headers: Mapping[str, str]) -> list[str]:
    """Every key in a request's headers, in any spelling; blank ones count as none."""
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    given = [credentials] if scheme.lower() in _SCHEMES else []
    given += [headers.get(name, "") for name in _HEADERS]
    # A page cannot give a WebSocket headers of its own.
    offered = headers.get("sec-websocket-protocol", "").split(",")
    given += [key for each in offered if (key := _after(KEY_PROTOCOL, each.strip()))]
    return [key.strip() for key in given if key.strip()]


def _after(prefix: str, text: str) -> str:
    return text[len(prefix) :] if text.startswith(prefix) else ""


def key_line(key: str, name: str | None = None) -> str:
    """The line of a key file for `key`, hashed.

    Raises:
        ValueError: no request could carry this key, or the name is not one.
    """
    digest = _sha256(_checked_secret(key)).hex()
    return f"{_checked_name(name)}:sha256:{digest}" if name else f"sha256:{digest}"


def parse_key(text: str, unnamed: str) -> ApiKey:
    """One key as written: `KEY`, `NAME:KEY` or `NAME:sha256:HEX`, then `limit=value` words.

    Args:
        unnamed: the name of a key written without one.

    Raises:
        ValueError: saying what is wrong.
    """
    head, *words = text.split()
    name, secret = _split_name(head, unnamed)
    options = [_option(word, place) for place, word in enumerate(words, 2)]
    if repeated := _repeated(option for option, _ in options):
        raise ValueError(f"`{repeated}` is given twice")
    return ApiKey(_checked_name(name), _digest(secret), **dict(options))


def parse_key_list(text: str) -> tuple[ApiKey, ...]:
    """Keys separated by commas; `ValueError` says which entry is wrong."""
    entries = [entry.strip() for entry in text.split(",")]
    if not any(entries):
        raise ValueError("it holds no key")
    return tuple(
        _parsed_at(f"entry {place}", entry, f"env-{place}")
        for place, entry in enumerate(entries, 1)
        if entry
    )


def read_key_file(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a file, one per line; what follows a word that starts with `#` is a comment.

    Raises:
        ValueError: the file cannot be read, a line is malformed, or there is no key in it.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except OSError as error:
        raise ValueError(f"cannot read `{path}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"`{path}` is not UTF-8 text") from None
    keys = tuple(
        _parsed_at(f"line {number} of `{path}`", entry, f"line-{number}")
        for number, line in enumerate(lines, 1)
        if (entry := _without_comment(line))
    )
    if not keys:
        raise ValueError(f"`{path}` holds no key")
    return keys


def refuse_repeated(keys: Sequence[ApiKey]) -> None:
    """`ValueError` when two keys have one name, or two names one key."""
    if name := _repeated(key.name for key in keys):
        raise ValueError(f"two API keys are named `{name}`")
    if digest := _repeated(key.digest for key in keys):
        names = [f"`{key.name}`" for key in keys if key.digest == digest]
        raise ValueError(f"{' and '.join(names)} are the same API key")


def _parsed_at(place: str, entry: str, unnamed: str) -> ApiKey:
    try:
        return parse_key(entry, unnamed)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _without_comment(line: str) -> str:
    words = line.split()
    end = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
    return " ".join(words[:end])


def _split_name(head: str, unnamed: str) -> tuple[str, str]:
    name, colon, secret = head.partition(":")
    # A digest without a name must not be read as a key named `sha256`: whoever sees the file
    # could then send the digest itself.
    if not colon or name.lower() == "sha256":
        return unnamed, head
    return name, secret


def _digest(secret: str) -> bytes:
    kind, colon, digest = secret.partition(":")
    if not colon or kind.lower() != "sha256":
        return _sha256(_checked_secret(secret))
    if not _DIGEST.fullmatch(digest):
        raise ValueError(
            "`sha256:` needs the 64 hexadecimal digits that `framecast hash-key` prints"
        )
    return bytes.fromhex(digest)


def _checked_name(name: str) -> str:
    # `sha256:HEX` is a digest without a name.
    if not _NAME.fullmatch(name) or name.lower() == "sha256":
        raise ValueError("a key's name is 1 to 64 letters, digits, `.`, `_` or `-`, not `sha256`")
    return name


def _checked_secret(secret: str) -> str:
    if not _VISIBLE.fullmatch(secret):
        raise ValueError("a key is one or more visible ASCII characters without blanks")
    return secret


def _sha256(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _option(word: str, place: int) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or name not in _OPTIONS:
        known = ", ".join(f"`{each}=`" for each in _OPTIONS)
        raise ValueError(f"word {place} is none of {known}")
    read, wanted = _OPTIONS[name]
    try:
        return name, read(value)
    except ValueError:
        raise ValueError(f"`{name}` must be {wanted}") from None


def _count(value: str) -> int:
    count = int(value)
    _refuse_below_zero(count)
    return count


def _seconds(value: str) -> float:
    seconds = float(value)
    _refuse_below_zero(seconds)
    return seconds


def _refuse_below_zero(value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError


_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "requests_per_minute": (_count, "a whole number, 0 for no limit"),
    "concurrency": (_count, "a whole number, 0 for no limit"),
    "audio_seconds_per_hour": (_seconds, "a number, 0 for no limit"),
    "priority": (int, "a whole number"),
}


def _repeated(values: Iterable[Any]) -> Any:
    return next((value for value, count in Counter(values).items() if count > 1), None)


__all__ = [
    "ANYONE",
    "KEY_PROTOCOL",
    "LIMITS",
    "ApiKey",
    "KeyRing",
    "given_keys",
    "key_line",
    "parse_key",
    "parse_key_list",
    "read_key_file",
    "refuse_repeated",
]
