"""Pauses and stage directions."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.text.directions import pauses, without_directions


@pytest.mark.parametrize(
    "direction",
    [
        "[laugh]", "[laughs]", "[Laughter]", "[LAUGH]", "[sighs softly]", "[clears throat]",
        "[excited]", "[gasps]", "[strong accent]", "[door slams]", "[lacht]", "[seufzt]",
        "[rires]", "[soupire]", "[risas]", "[suspira]", "[ride]", "[sospira]", "[risos]",
        "(whispering)", "(laughs)", "(sighs)", "(softly laughing)", "(Lacht)", "(soupire)",
    ],
)  # fmt: skip
def test_a_stage_direction_is_not_read_aloud(direction: str) -> None:
    assert without_directions(f"Well {direction} yes").split() == ["Well", "yes"]


@pytest.mark.parametrize(
    "words",
    [
        "[the president]", "[He] left", "[Berlin]", "[John Smith]", "[1]", "[a.b]", "[x=1]",
        "(a lot)", "(sad but true)", "(see below)", "(the crying game)", "(1999)", "(e.g. this)",
        "[laugh](http://a.b)", "[ ]", "()", "[this is far too long for a direction]",
    ],
)  # fmt: skip
def test_words_in_brackets_are_read(words: str) -> None:
    assert without_directions(f"Well {words} yes") == f"Well {words} yes"


@pytest.mark.parametrize(
    ("tag", "seconds"),
    [
        ("[pause:1.5s]", 1.5), ("[pause: 1,5 s]", 1.5), ("[PAUSE:2]", 2.0), ("[pause:500ms]", 0.5),
        ("[pause 3 seconds]", 3.0), ("[pause:1 sec]", 1.0), ("[pause:0s]", 0.0),
    ],
)  # fmt: skip
def test_a_pause_says_how_long_it_is(tag: str, seconds: float) -> None:
    assert list(pauses(f"One {tag} two")) == [(0.0, "One"), (seconds, "two")]


@pytest.mark.parametrize("tag", ["[pause]", "[pause:x]", "[pause:-1s]", "[pause:1h]", "pause:1s"])
def test_what_names_no_time_is_no_pause(tag: str) -> None:
    assert list(pauses(f"One {tag}")) == [(0.0, f"One {tag}")]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a [pause:30.5s]", "30 s each"),
        ("a [pause:999999s]", "30 s each"),
        ("a [pause:30s]" * 11, "300 s in all"),
        ("a [pause:1ms]" * 201, "more than 200"),
    ],
)
def test_too_much_silence_is_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what) as caught:
        list(pauses(text))
    assert caught.value.field == "text"
