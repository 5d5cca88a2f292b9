from __future__ import annotations

import pytest

from engine.text.normalize import terminate


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("Hello there", "Hello there."),
        ("Hello there  \n", "Hello there."),
        ("50%", "50%."),
        ('He said "stop"', 'He said "stop."'),
        ("(in brackets)", "(in brackets.)"),
        ("Wait,", "Wait."),
        ("Wait --", "Wait."),
        ("你好，世界", "你好，世界。"),
        ("「行く」", "「行く。」"),
        ("नमस्ते", "नमस्ते।"),
        ("مرحبا", "مرحبا."),
        ("Take 3", "Take 3."),
        ("漢字 and words", "漢字 and words."),
    ],
)
def test_a_missing_final_mark_is_added_in_the_texts_own_script(text, ended):
    assert terminate(text) == ended


@pytest.mark.parametrize(
    "text",
    ["Done.", "Really?!", "So…", '"Stop!"', "(yes.)", "好。", "ठीक है।", "هل؟", "One.\n", "Why?  "],
)
def test_a_text_that_ends_is_left_as_it_is(text):
    assert terminate(text) == text


def test_ending_twice_changes_nothing_more():
    for text in ("Hello", "你好", 'He said "stop"', "Wait,"):
        assert terminate(terminate(text)) == terminate(text)
