"""The pronunciation lexicon: which words it respells, and which files it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InvalidRequest
from engine.text.frontend import Frontend
from engine.text.lexicon import Lexicon, read_lexicon
from engine.text.steps import DEFAULT_TEXT_STEPS

LEXICON = Lexicon(
    {
        "all": {"Qwen": "Kwen", "gif": "jif", "data": "dah-ta", "东京": "とうきょう"},
        "en": {"5G": "five gee", "data": "day-ta", "data base": "dayta base", "C++": "see plus"},
        "en-gb": {"gif": "giff"},
    }
)


@pytest.mark.parametrize(
    ("text", "tag", "spoken"),
    [
        ("Qwen speaks", "de", "Kwen speaks"),
        ("QWEN and qwen", "de", "QWEN and qwen"),
        ("A gif, a GIF, a Gif.", "de", "A jif, a jif, a jif."),
        ("gifts and agif", "de", "gifts and agif"),
        ("data", "en", "day-ta"),
        ("data", "de", "dah-ta"),
        ("a data base of data", "en", "a dayta base of day-ta"),
        ("gif", "en-gb", "giff"),
        ("gif data", "en-us", "jif day-ta"),
        ("5G in C++ now", "en", "five gee in see plus now"),
        ("15G", "en", "15G"),
        ("去东京吧", "zh", "去とうきょう吧"),
        ("nothing here", "en", "nothing here"),
    ],
)
def test_whole_words_are_respelled_in_their_language(text: str, tag: str, spoken: str) -> None:
    assert LEXICON.apply(text, tag) == spoken


def test_what_an_entry_puts_in_is_not_looked_up_again() -> None:
    assert Lexicon({"all": {"a": "b", "b": "a"}}).apply("a b", "en") == "b a"


def test_an_entry_goes_before_the_reading_of_numbers() -> None:
    (passage,) = Frontend(LEXICON).read("5G and 5 g", "en", DEFAULT_TEXT_STEPS).passages
    assert passage.text == "five gee and five grams"


def test_a_file_is_read_by_language(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text('[all]\nQwen = "Kwen"\n[EN]\n"5G" = "five gee"\n', encoding="utf-8")
    lexicon = read_lexicon(file)
    assert lexicon == Lexicon({"all": {"Qwen": "Kwen"}, "en": {"5G": "five gee"}})
    assert lexicon.apply("Qwen 5G", "en") == "Kwen five gee"
    assert lexicon
    assert not Lexicon()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('word = "x"', "`word` stands in no table"),
        ("[en]\nword = 5", "[en] 'word' must be given a text"),
        ('[en]\nword = " "', "must be given a text"),
        ('[en]\n"+" = "plus"', "needs a letter or digit"),
        (f'[en]\n{"a" * 201} = "x"', "at most 200 characters"),
        ("[en", "lexicon"),
        ("\xff", "lexicon"),
    ],
)
def test_a_file_that_is_no_lexicon_is_refused_with_the_place(
    tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "words.toml"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidRequest) as caught:
        read_lexicon(file)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)
    assert caught.value.field == "lexicon"


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"missing\.toml"):
        read_lexicon(tmp_path / "missing.toml")
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * 1_048_577)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_lexicon(huge)
