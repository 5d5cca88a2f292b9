"""The front end as a whole: what is spoken for what was sent, and what each switch leaves."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.text.frontend import Frontend, Passage, Reading
from engine.text.lexicon import Lexicon
from engine.text.steps import DEFAULT_TEXT_STEPS, TEXT_STEPS, check_text_steps, wanted_steps

FRONTEND = Frontend(Lexicon({"en": {"gif": "jif"}}))


def read(
    text: str, language: str = "en", *, steps: tuple[str, ...] = DEFAULT_TEXT_STEPS
) -> Reading:
    return FRONTEND.read(text, language, steps)


def said(text: str, language: str = "en", *, steps: tuple[str, ...] = DEFAULT_TEXT_STEPS) -> str:
    (passage,) = read(text, language, steps=steps).passages
    return passage.text


SENT = (
    "“See” **this** GIF 🎉 (laughs) of 5 APIs at a.b@example.com, or `x` on www.example.com"
    " [pause:1s] now"
)
# What each step leaves of it when it is the only one that is on.
ALONE = {
    "characters": SENT.replace("“See”", '"See"').replace("🎉 ", ""),
    "markup": SENT.replace("**", "").replace("`", ""),
    "directions": SENT.replace("(laughs)", ""),
    "lexicon": SENT.replace("GIF", "jif"),
    "addresses": SENT.replace("a.b@example.com", "a dot b at example dot com").replace(
        "www.example.com", "example dot com"
    ),
    "numbers": SENT.replace("5", "five").replace("1s", "one second"),
    "acronyms": SENT.replace("APIs", "A P I's"),
    "drop_urls": SENT.replace("www.example.com", ""),
}


@pytest.mark.parametrize("step", ALONE)
def test_each_step_can_be_used_alone(step: str) -> None:
    assert said(SENT, steps=(step,)).split() == ALONE[step].split()


def test_pauses_alone_cut_the_text_and_leave_the_rest() -> None:
    before, after = SENT.split(" [pause:1s] ")
    assert read(SENT, steps=("pauses",)) == Reading((Passage(before), Passage(after, 1.0)))


@pytest.mark.parametrize("step", DEFAULT_TEXT_STEPS)
def test_each_step_can_be_left_out(step: str) -> None:
    rest = tuple(name for name in DEFAULT_TEXT_STEPS if name != step)
    assert read(SENT, steps=rest) != read(SENT)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_without_steps_the_text_is_untouched(text: str) -> None:
    assert read(text, "auto", steps=()) == Reading((Passage(text),))


def test_everything_at_once() -> None:
    first, second = read(SENT).passages
    assert first.text == (
        '"See" this jif of five A P I\'s at a dot b at example dot com, or x on example dot com'
    )
    assert second == Passage("now", 1.0)


# The kinds of faults seen elsewhere, in a text.


@pytest.mark.parametrize("text", ["🎉", "***", "—", "...", ":-)", "\u200b"])
def test_what_holds_nothing_to_speak_stays_as_it_is_to_be_refused(text: str) -> None:
    assert said(text) == text


@pytest.mark.parametrize("text", ["[laugh]", "(whispering) 🎉", "<b></b>", "[pause:2s] [sighs]"])
def test_a_text_of_which_nothing_is_left_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(InvalidRequest, match="`normalize` false") as caught:
        read(text)
    assert caught.value.field == "text"
    assert said(text, steps=()) == text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("It grew by 50%", "It grew by fifty percent"),
        ("He said “stop”", 'He said "stop"'),
        ("« Oui »", '"Oui"'),
        ("It’s fine…", "It's fine…"),
    ],
)
def test_a_missing_mark_and_a_closing_quote_are_left_to_the_final_mark(
    text: str, spoken: str
) -> None:
    assert said(text) == spoken


@pytest.mark.parametrize(
    "text", ["a <|im_end|> b", "<|im_start|>system b", "<tts_pad> b", "<|endoftext|> b", "<custom>"]
)
def test_control_tokens_stay_plain_text(text: str) -> None:
    assert said(text) == text


def test_pauses_are_exact_and_add_up() -> None:
    reading = read("[pause:0.25s] One... [pause:1.5s] [pause: 500 ms] two. [pause 2s]")
    assert reading == Reading((Passage("One...", 0.25), Passage("two.", 2.0)), 2.0)


def test_a_pause_between_blank_lines_is_the_pause_alone() -> None:
    assert read("One.\n\n[pause:1.5s]\n\nTwo.").passages == (Passage("One."), Passage("Two.", 1.5))


@pytest.mark.parametrize("gap", ["\n\n", "\r\n\r\n", "\n \t\n", "\u2029\u2029", "\r\r", "\v\n"])
def test_every_paragraph_is_spoken_whatever_parts_it(gap: str) -> None:
    assert said(f"One here.{gap}Two here.") == "One here.\n\nTwo here."


@pytest.mark.parametrize("blank", ["\u00a0", "\u2009", "\t", "  ", "\u200b ", "\u3000"])
def test_every_kind_of_blank_parts_words(blank: str) -> None:
    assert said(f"One{blank}two.").split() == ["One", "two."]


def test_a_sentence_at_a_time_gives_what_the_whole_gives() -> None:
    sentences = ["It is 5 km to **Bonn**.", "Dr. Lee paid $3.50 on May 4, 2020!", "See a@b.com."]
    assert " ".join(map(said, sentences)) == said(" ".join(sentences))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["The", "fox", "paid", "for", "apples", "early."]),
            st.from_regex(r"\A[$€]?[0-9]{1,7}([.,][0-9]{1,3})?%?\Z"),
            st.sampled_from([",", "-", "🎉", "**", "\n\n", '"']),
        ),
        min_size=1,
        max_size=15,
    ).filter(lambda words: any(word.isalnum() for word in words)),
    st.sampled_from(["auto", "en", "de", "fr", "es", "it", "pt", "zh", "ru"]),
)
@settings(max_examples=100, deadline=None)
def test_a_text_with_words_is_never_read_as_nothing(words: list[str], language: str) -> None:
    reading = read(" ".join(words), language)
    assert all(re.search(r"\w", passage.text) for passage in reading.passages)


HOSTILE = [
    "1", "1,234", "1.2", "1-2", "1/2 ", "1 ", "1:2", "1..", "+1 ", "$1 ", "1\u00a0234", "x²",
    "*a", "**a*", "_a_", "~~", "[", "[a](", "![", "`", "> ", "- ", "#", "|a|b\n|-|-\n", "```\n",
    "<", "<b>", "<!--", "<script>", "<b ", "&amp;", "[pause:", "[pause:1", "(a", "[a", "a", "A",
    "AB ", "Aa ", "a@", "a.", "a-", "http://a", "www.a", "XIV ", "Louis XIV ", "\n", " ", "!", '"',
    "🎉", "\u200b", "->", ":-", "the fox ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_work_grows_with_the_length_and_not_with_its_square(piece: str) -> None:
    def seconds(length: int) -> float:
        text = "x 5 " + piece * (length // len(piece))
        taken = []
        for _ in range(3):
            start = time.process_time()
            FRONTEND.read(text, "en", TEXT_STEPS)
            taken.append(time.process_time() - start)
        return min(taken)

    # Eight times the text: 8 where it is linear, 64 where it is quadratic. What takes less than
    # the clock can tell is neither.
    short, long = seconds(1_000), seconds(8_000)
    assert long < 0.01 or long < 30 * short


def test_steps_are_put_in_order_and_unknown_ones_are_refused_with_those_there_are() -> None:
    assert check_text_steps(["numbers", "markup", "numbers"]) == ("markup", "numbers")
    with pytest.raises(InvalidRequest, match="'nubmers'; one of characters, markup") as caught:
        check_text_steps(["nubmers"])
    assert caught.value.field == "normalize"


@pytest.mark.parametrize(
    ("asked", "usual", "steps"),
    [
        (None, ("numbers",), ("numbers",)),
        (None, (), ()),
        (True, ("numbers",), ("numbers",)),
        (True, (), DEFAULT_TEXT_STEPS),
        (False, ("numbers",), ()),
        (("markup",), ("numbers",), ("markup",)),
        ((), ("numbers",), ()),
        (["numbers", "markup"], (), ("markup", "numbers")),
    ],
)
def test_a_request_may_follow_the_engine_or_have_its_own_steps(
    asked: bool | tuple[str, ...] | None, usual: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    assert wanted_steps(asked, usual) == steps
