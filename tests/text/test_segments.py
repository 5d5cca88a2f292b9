"""Segments of a text that still arrives: none too early, all of them, wherever it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.text.segments import LONGEST, Segments
from engine.text.split import speakable

KIND = st.sampled_from(["sentence", "clause"])
SENTENCES = [
    "Dr. Lee paid 3.5 of it. ",
    '"Good," he said: he went on. ',
    "「行く。」と言った。",
    "はい！ ",
    "No. 5? ",
    "Yes\n\n",
    "End",
]
TEXT = "".join(SENTENCES)


def cut(pieces: list[str], granularity: str = "sentence") -> list[str]:
    segments = Segments(granularity)
    found = [segment for piece in pieces for segment in segments.push(piece)]
    return [*found, segments.rest()]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_sentences_are_the_same_wherever_the_text_was_cut(places: list[int]) -> None:
    edges = [0, *sorted(places), len(TEXT)]
    pieces = [TEXT[a:b] for a, b in pairwise(edges)]
    assert cut(pieces) == SENTENCES


@given(st.lists(st.text("aB1 .,!?。、\n\"'-", max_size=9), max_size=9), KIND)
def test_segments_together_are_the_text_and_do_not_depend_on_the_cut(pieces, kind) -> None:
    found = cut(pieces, kind)
    assert "".join(found) == "".join(pieces)
    assert found == cut(list("".join(pieces)), kind)
    assert all(map(speakable, found[:-1]))


@pytest.mark.parametrize(
    ("pieces", "ended"),
    [
        (["It is 3."], []),
        (["It is 3.", "5"], []),
        (["It is so.", " "], []),
        (["It is so.", " ", "N"], ["It is so. "]),
        (["Ask Dr", ".", " ", "Lee"], []),
        (["你好。"], []),
        (["你好。", "再"], ["你好。"]),
    ],
)  # fmt: skip
def test_a_mark_ends_a_sentence_once_what_follows_says_so(pieces: list[str], ended) -> None:
    segments = Segments()
    assert [segment for piece in pieces for segment in segments.push(piece)] == ended


def test_clauses_end_at_commas_too() -> None:
    assert cut(["Well, it is: 3,5 or 4; so."], "clause") == [
        "Well, ",
        "it is: ",
        "3,5 or 4; ",
        "so.",
    ]


def test_what_cannot_be_spoken_is_joined_with_what_follows() -> None:
    assert cut(["... ! ? Yes. ", "— No."]) == ["... ! ? Yes. ", "— No."]


@pytest.mark.parametrize("text", ["word " * 900, "word, " * 900, "x" * 4000, "好" * 4000])
def test_a_text_without_an_end_is_cut_all_the_same(text: str) -> None:
    found = cut([text[at : at + 7] for at in range(0, len(text), 7)])
    assert "".join(found) == text
    assert max(map(len, found)) <= LONGEST + 7
    if " " in text:
        assert all(segment.endswith(" ") for segment in found[:-1])


def test_another_granularity_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="sentence, clause, got 'word'"):
        Segments("word")
