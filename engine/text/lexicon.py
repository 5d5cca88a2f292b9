"""A pronunciation lexicon: words and how to write them so that they are said right.

The file is TOML: a table per language code, and `all` for every language.

    [all]
    Qwen = "Kwen"

    [en]
    "5G" = "five G"
    gif = "jif"

An entry in small letters matches in any case; one with a capital matches as it is written. Only
whole words match, and of two entries the longer one wins; a language's own entry goes before one
of `all`. What an entry puts in is not looked up again, but the later steps read it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import InvalidRequest

EVERY = "all"
_LARGEST = 1_048_576
_LONGEST = 200
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Respellings by language code, `all` for every language."""

    entries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _index: dict[str, dict[str, list[tuple[str, str]]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Order the entries by their first word, longest first."""
        for tag in self.entries:
            self._index[tag] = _indexed(self.entries[tag])

    def __bool__(self) -> bool:
        return any(self.entries.values())

    def apply(self, text: str, tag: str) -> str:
        """`text` with the entries of language `tag` respelled."""
        indexes = [self._index[t] for t in (tag, tag.partition("-")[0], EVERY) if t in self._index]
        if not indexes:
            return text
        pieces, end = [], 0
        for match in _WORD.finditer(text):
            for start in _starts(match):
                if start >= end and (found := _longest(text, start, indexes)):
                    pieces += [text[end:start], found[1]]
                    end = start + found[0]
        return "".join([*pieces, text[end:]])


def read_lexicon(path: Path) -> Lexicon:
    """The lexicon in a file.

    Raises:
        InvalidRequest: it cannot be read or does not hold what it should; says where.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidRequest(f"lexicon {path}: larger than {_LARGEST} bytes", "lexicon")
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"lexicon {path}: {error}", "lexicon") from None
    for tag, table in tables.items():
        _check(path, tag, table)
    return Lexicon({tag.lower(): table for tag, table in tables.items()})


def _check(path: Path, tag: str, table: object) -> None:
    where = f"lexicon {path}"
    if not isinstance(table, dict):
        raise InvalidRequest(
            f"{where}: `{tag}` stands in no table; put it below `[{EVERY}]` or a language such as"
            " `[en]`",
            "lexicon",
        )
    for word, respelling in table.items():
        if not isinstance(respelling, str) or not respelling.strip():
            raise InvalidRequest(f"{where}: [{tag}] {word!r} must be given a text", "lexicon")
        if not _WORD.search(word) or max(len(word), len(respelling)) > _LONGEST:
            raise InvalidRequest(
                f"{where}: [{tag}] {word!r} needs a letter or digit and at most {_LONGEST}"
                " characters",
                "lexicon",
            )


def _indexed(table: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    index: dict[str, list[tuple[str, str]]] = {}
    for word in sorted(table, key=len, reverse=True):
        found = _WORD.search(word)
        if found:
            index.setdefault(_first(word[found.start() :]), []).append((word, table[word]))
    return index


def _first(text: str) -> str:
    """What an entry is found by: its first word in small letters, one character of Chinese."""
    if _UNSPACED.match(text):
        return text[0]
    found = _WORD.match(text)
    return found[0].lower() if found else ""


def _starts(match: re.Match[str]) -> range:
    return range(match.start(), match.end() if _UNSPACED.search(match[0]) else match.start() + 1)


def _longest(
    text: str, start: int, indexes: list[dict[str, list[tuple[str, str]]]]
) -> tuple[int, str] | None:
    for index in indexes:
        for word, respelling in index.get(_first(text[start : start + _LONGEST]), ()):
            if _matches(text, start, word):
                return len(word), respelling
    return None


def _matches(text: str, start: int, word: str) -> bool:
    end = start + len(word)
    written = text[start:end]
    if written != word and not (word == word.lower() and written.lower() == word):
        return False
    if _UNSPACED.search(word):
        return True
    return not (word[-1:].isalnum() and text[end : end + 1].isalnum())


__all__ = ["EVERY", "Lexicon", "read_lexicon"]
