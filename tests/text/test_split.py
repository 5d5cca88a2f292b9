import random
import re

import pytest

from engine.text.split import speakable
from engine.text.split import split as split_tokens


def words(text):
    return len(text.split())


def octets(text):
    return len(text.encode())


STARTS = {
    words: lambda text: [match.start() for match in re.finditer(r"\S+", text)],
    len: lambda text: range(len(text)),
    octets: lambda text: [at for at, char in enumerate(text) for _ in char.encode()],
}


def split(text, limit, count):
    return split_tokens(text, limit, count, STARTS[count])


def test_a_text_that_fits_comes_back_as_it_is():
    assert split("  One.\n\nTwo. ", 2, words) == ["  One.\n\nTwo. "]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Dr. Lee came. He sat.", ["Dr. Lee came.", "He sat."]),
        ("It cost 3.5 euros. No more.", ["It cost 3.5 euros.", "No more."]),
        ("The U.S. Army left. It rained.", ["The U.S. Army left.", "It rained."]),
        ("J. R. R. Tolkien wrote. We read.", ["J. R. R. Tolkien wrote.", "We read."]),
        ("Fruit, e.g. Apples grow. Yes.", ["Fruit, e.g. Apples grow.", "Yes."]),
        (
            "See No. 5 today. I said no. Then left.",
            ["See No. 5 today.", "I said no.", "Then left."],
        ),
        (
            "Go to https://a.b/c.d?e=1. Then mail a.b@c.de now.",
            ["Go to https://a.b/c.d?e=1.", "Then mail a.b@c.de now."],
        ),
        ("Wait... what is it? Wait... Now go.", ["Wait... what is it?", "Wait... Now go."]),
        ('"Stop." He said (at last.) Then left.', ['"Stop."', "He said (at last.)", "Then left."]),
        ('"Really?" she asked. "No!" he cried.', ['"Really?" she asked.', '"No!" he cried.']),
        ("Am 3. Oktober kam er. Sie ging.", ["Am 3. Oktober kam er.", "Sie ging."]),
        (
            "Vraiment\u202f? «\u00a0Oui.\u00a0» Bon.",
            ["Vraiment\u202f?", "«\u00a0Oui.\u00a0»", "Bon."],
        ),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, parts):
    longest = max(words(part) for part in parts)
    assert split(text, longest, words) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "今天很好。我们走吧！你说：“好的。”他走了",
            ["今天很好。", "我们走吧！", "你说：“好的。”", "他走了"],
        ),
        ("真的吗?是的呀!好极了", ["真的吗?", "是的呀!", "好极了"]),
        ("「行く。」と言った。帰った。", ["「行く。」と言った。", "帰った。"]),
        ("यह एक है। यह दो है॥ तीन", ["यह एक है।", "यह दो है॥", "तीन"]),
        ("كيف الحال؟ أنا بخير۔ شكرا", ["كيف الحال؟", "أنا بخير۔", "شكرا"]),
    ],
)
def test_every_script_ends_sentences_with_its_own_marks(text, parts):
    assert split(text, max(map(len, parts)), len) == parts


def test_blank_lines_and_new_lines_are_boundaries_but_a_wrapped_line_is_not():
    text = "A title\r\n\r\nFirst line\nof a sentence\nNext item\r\nLast"
    assert split(text, 5, words) == ["A title", "First line\nof a sentence", "Next item\r\nLast"]


def test_short_sentences_share_a_part_and_parts_are_even():
    text = " ".join(f"This is sentence number{i}." for i in range(7))
    parts = split(text, 20, words)
    assert [words(part) for part in parts] == [16, 12]


def test_a_long_sentence_is_cut_at_clauses_then_at_spaces():
    assert split("one two three, four five; six seven", 3, words) == [
        "one two three,",
        "four five;",
        "six seven",
    ]
    assert split("one two three four five", 2, words) == ["one two", "three four", "five"]


def test_no_space_is_cut_after_an_abbreviation():
    assert split("we all met Dr. Lee today", 4, words) == ["we all met", "Dr. Lee today"]


def test_an_unspaced_script_is_cut_between_letters_but_not_inside_a_number():
    assert split("增长了百分之3.5左右", 8, len) == ["增长了百分之", "3.5左右"]
    assert split("สวัสดีครับ", 5, len) == ["สวัส", "ดีครั", "บ"]


@pytest.mark.parametrize(
    "unit", ["e\u0301\u0323", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "\u1112\u1161\u11ab"]
)
def test_nothing_is_cut_inside_what_is_drawn_as_one_character(unit):
    for part in split(unit * 9, 2 * len(unit) + 1, len):
        assert part == unit * (len(part) // len(unit))


def test_a_combining_sequence_that_cannot_fit_is_cut_all_the_same():
    parts = split("a" + "\u0301" * 20, 6, len)
    assert "".join(parts) == "a" + "\u0301" * 20
    assert max(map(len, parts)) <= 6


def test_a_limit_below_one_character_is_refused():
    with pytest.raises(ValueError, match="max_tokens=3 is too small for '😀'"):
        split("😀😀", 3, octets)


@pytest.mark.parametrize("seed", range(40))
def test_no_character_is_lost_and_no_part_is_empty_or_too_long(seed):
    rng = random.Random(seed)
    alphabet = "ab.,;!?…  \n\r\t。，।あ漢字กำ👩\u200d👧🇩🇪\u0301\u200b\"')]35 "
    for _ in range(25):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 150)))
        limit = rng.randrange(1, 40)
        parts = split(text, limit, len)
        assert "".join("".join(parts).split()) == "".join(text.split())
        assert all(part.strip() and len(part) <= limit for part in parts) or parts == [text]


@pytest.mark.parametrize(
    "text", ["." * 30_000 + "x", " " * 30_000 + "x", '."' * 15_000, "🇩🇪" * 9_000, "Dr. " * 8_000]
)
def test_long_runs_are_counted_about_once(text):
    counted = 0

    def count(part):
        nonlocal counted
        counted += len(part)
        return len(part)

    split_tokens(text, 150, count, lambda text: range(len(text)))
    assert counted <= len(text)


@pytest.mark.parametrize("wrong", [2, 3, 10, 50])
def test_a_part_with_more_tokens_than_the_whole_text_promised_is_cut_nearer(wrong):
    text = " ".join(f"word{index}" for index in range(400))
    parts = split_tokens(text, 30, len, lambda text: range(0, len(text), wrong))
    assert " ".join(parts) == text
    assert all(len(part) <= 30 for part in parts)


def test_a_part_with_fewer_tokens_than_the_whole_text_promised_still_holds_a_character():
    assert split_tokens("abc", 1, len, lambda text: [0, 0, 1, 1, 2, 2]) == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["a", "é", "३", "字", "½", "*a*", "-1"])
def test_a_letter_or_digit_can_be_spoken(text):
    assert speakable(text)


@pytest.mark.parametrize("text", ["", " \n", "😀", "***", "—", "...", "\u200b", "👍🏽"])
def test_marks_and_pictures_alone_cannot_be_spoken(text):
    assert not speakable(text)
