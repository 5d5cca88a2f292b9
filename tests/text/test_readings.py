"""Numbers and signs in six languages, each read as a person reads it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.text.frontend import Frontend
from engine.text.language import tongue
from engine.text.numbers import read_numbers
from engine.text.steps import DEFAULT_TEXT_STEPS
from engine.text.tongues import TONGUES

with (Path(__file__).parent / "readings.tsv").open(encoding="utf-8", newline="") as file:
    READINGS = [tuple(row.values()) for row in csv.DictReader(file, delimiter="\t", quoting=3)]

FRONTEND = Frontend()
LANGUAGES = ("en", "de", "fr", "es", "it", "pt")


def said(text: str, language: str, steps: tuple[str, ...] = DEFAULT_TEXT_STEPS) -> str:
    (passage,) = FRONTEND.read(text, language, steps).passages
    return passage.text


@pytest.mark.parametrize(("language", "written", "read"), READINGS)
def test_a_text_is_read_as_its_language_reads_it(language: str, written: str, read: str) -> None:
    assert said(written, language) == read


@pytest.mark.parametrize(("language", "written", "read"), READINGS)
def test_a_reading_is_read_as_itself(language: str, written: str, read: str) -> None:
    assert said(read, language) == read


def test_the_table_has_enough_of_every_language() -> None:
    assert len(READINGS) >= 150
    assert all(sum(row[0] == code for row in READINGS) >= 25 for code in LANGUAGES)


@pytest.mark.parametrize(
    ("language", "written", "read"),
    [
        ("en-GB", "On 3/4/2025.", "On the third of April twenty twenty-five."),
        ("en-US", "On 3/4/2025.", "On March fourth, twenty twenty-five."),
        ("English", "On 13/4/2025.", "On April thirteenth, twenty twenty-five."),
        ("pt-PT", "16 km", "dezasseis quilómetros"),
        ("pt_BR", "16 km", "dezesseis quilômetros"),
        ("German", "16 km", "sechzehn Kilometer"),
        ("deu", "16 km", "sechzehn Kilometer"),
    ],
)
def test_a_region_has_its_own_custom(language: str, written: str, read: str) -> None:
    assert said(written, language) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("He owes me 5 dollars for the 3 tickets.", "five"),
        ("Er schuldet mir noch 5 Euro für die Karten.", "fünf"),
        ("Il me doit encore 5 euros pour les billets.", "cinq"),
        ("Todavía me debe 5 euros por las entradas.", "cinco"),
        ("Mi deve ancora 5 euro per i biglietti.", "cinque"),
        ("Ele ainda me deve 7 reais pelos ingressos.", "sete"),
    ],
)
def test_without_a_language_the_text_is_read_in_its_own(text: str, read: str) -> None:
    assert read in said(text, "auto").split()


@pytest.mark.parametrize(
    "text",
    ["他今年25岁，身高1.8米。", "彼は25歳です。", "그는 25살입니다.", "Ему 25 лет, рост 1,8 м."],
)
@pytest.mark.parametrize("language", ["auto", "given"])
def test_numbers_of_the_other_languages_are_left_to_the_model(text: str, language: str) -> None:
    given = dict(zip("他彼그Е", ("chinese", "japanese", "korean", "russian"), strict=True))
    assert said(text, "auto" if language == "auto" else given[text[0]]) == text


@pytest.mark.parametrize("language", ["klingon", "hi", "x-private"])
def test_a_language_nobody_knows_leaves_the_numbers(language: str) -> None:
    assert said("It is 5 km.", language) == "It is 5 km."


NUMBERS = st.from_regex(
    r"\A[-+$€£#§~]?[0-9]{1,18}([.,:/ –-][0-9]{1,6}){0,4}[ ]?(%|°C|km|km/h|€|h|x|st|er|º|M|)\Z"
)


@given(before=st.sampled_from(["", "a ", "Am ", "le ", "v", "the (", "siglo "]), number=NUMBERS,
       after=st.sampled_from(["", ".", " Jahre", " personas", ") und", ", et", "-mal"]),
       code=st.sampled_from(sorted(TONGUES)))  # fmt: skip
@settings(max_examples=250, deadline=None)
def test_no_digit_is_left_in_a_supported_language(
    before: str, number: str, after: str, code: str
) -> None:
    read = read_numbers(before + number + after, TONGUES[code])
    assert not re.search("[0-9]", read)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
       st.sampled_from(sorted(TONGUES)))  # fmt: skip
@example("A²0", "de")
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_read_and_reading_it_again_changes_nothing(text: str, code: str) -> None:
    once = read_numbers(text, TONGUES[code])
    assert not re.search("[0-9]", once)
    assert read_numbers(once, TONGUES[code]) == once


@given(st.lists(st.sampled_from(["the", "fox", "hat", "zwei", "Katzen", "et", "un", "dos"]),
                min_size=1, max_size=12))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_plain_words_are_never_changed(words: list[str]) -> None:
    text = " ".join(words)
    for code in LANGUAGES:
        assert said(text, code) == text


def test_every_tongue_is_reached_by_a_tag() -> None:
    tags = ("en-US", "en-GB", "de", "fr", "es", "it", "pt", "pt-PT")
    assert {tongue(tag.lower()) for tag in tags} == set(TONGUES.values())
