"""Ids of a text that arrives in pieces are those of the whole, wherever it is cut."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.assets.published import vocabulary
from engine.config import TextTokens
from engine.errors import InvalidRequest
from engine.tts.feed import Feed
from engine.tts.prompt import ROLE, SUFFIX
from engine.tts.tokenizer import Tokenizer, _joins

CONTROL = TextTokens(*range(1000, 1005))


def tokenizer(role_merges: bool = True) -> Tokenizer:
    tokens, merges = vocabulary()
    if not role_merges:  # a small vocabulary: the role is more than two tokens
        merges = [merge for merge in merges if not "assistant".startswith(merge.replace(" ", ""))]
    padding = [f"<|unused-{index}|>" for index in range(1005 - len(tokens))]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*tokens, *padding],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [5] * len(padding),
        "tokenizer.ggml.merges": merges,
    }
    return Tokenizer.from_metadata(metadata, CONTROL)


BIG, SMALL = tokenizer(), tokenizer(role_merges=False)

AWKWARD = [
    "don't we'll I'd 'tis",
    "a  b   c \n\n d\r\n\r\n  e\t\tf ",
    "3.5 and 1,000.00; “quoted” — dashes…!?  ",
    "e\u0301a\u0323\u0302 u\u0308\u0304 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0ba8\u0bc6\u0bbe \u09c7\u09be が\u3099ば",
    "你好，世界。再见！ 10月5日",
    "😀👩\u200d👩\u200d👧 𠀀𠀁 a",
    "x\u00a0y\u2028z\x1cw\x0b",
    "= \u0338 =\u0338 <\u0338",
    "'\u0301re 'r\u00e9 'RE 'll",
]

texts = st.one_of(
    st.sampled_from(AWKWARD),
    st.text("abAB12 \n\r'.,!re\u0301\u0323\u1112\u1161\u11ab\ud83d\ude00好", max_size=24),
    st.lists(st.sampled_from(AWKWARD), min_size=2, max_size=3).map("".join),
    st.text(max_size=20),
)  # fmt: skip


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)]


@given(cut_texts())
def test_settled_ids_are_those_of_the_whole_text_wherever_it_is_cut(cut: tuple[str, list[str]]):
    text, pieces = cut
    settling = BIG.settling()
    ids = [each for piece in pieces for each in settling.push(piece)]
    whole = BIG.settling()
    assert [*ids, *settling.rest()] == [*whole.push(text), *whole.rest()]


@given(texts)
def test_every_prefix_gives_a_prefix_of_the_ids(text: str) -> None:
    settling, ids = BIG.settling(), []
    for char in text:
        ids += settling.push(char)
    kept = settling.count()
    whole = BIG.settling()
    expected = [*whole.push(text), *whole.rest()]
    assert ids == expected[: len(ids)]
    assert len(ids) + kept == len(expected)


@pytest.mark.parametrize("tokenizer", [BIG, SMALL], ids=["big", "small"])
@given(cut=cut_texts())
def test_a_feed_gives_out_what_stands_in_the_prompt_of_the_whole(tokenizer, cut) -> None:
    text, pieces = cut
    lead, trail = tokenizer.frame
    feed = Feed(tokenizer, 10_000, lead=lead[ROLE:], trail=trail[: len(trail) - SUFFIX])
    ids = []
    for piece in pieces:
        ids += feed.push(piece)
    try:
        ids += feed.end()
    except InvalidRequest:
        assert not any(unicodedata.category(char)[0] in "LN" for char in text)
        assert not ids
        return
    assert ids == tokenizer.utterance(text.lstrip())[ROLE:-SUFFIX]
    assert feed.tokens == tokenizer.count(text.lstrip())


def test_the_small_vocabulary_spells_the_role_in_more_tokens_than_the_prompt_cuts_off() -> None:
    assert len(SMALL.frame[0]) > len(BIG.frame[0]) >= ROLE


def test_no_character_that_is_kept_together_with_the_next_is_taken_for_a_certain_end() -> None:
    joining = set()
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and "<" not in parts[0]:
            joining.add(chr(int(parts[1], 16)))
    joining |= {chr(code) for code in range(0x1161, 0x1176)}
    joining |= {chr(code) for code in range(0x11A8, 0x11C3)}
    assert len(joining) > 100
    assert all(map(_joins, joining))


def test_a_word_is_given_out_once_something_behind_it_has_come() -> None:
    settling = BIG.settling()
    assert settling.push("Hel") == []
    assert settling.push("lo") == []
    assert settling.push(" ") != []
    assert settling.push("world") == []
    assert settling.push(".") != []


def feed(limit: int = 1000, **options) -> Feed:
    return Feed(BIG, limit, lead=[], trail=[], **options)


def test_text_that_does_not_fit_is_refused_whole_and_the_rest_goes_on() -> None:
    small = feed(limit=6)
    ids = small.push("one two ")
    with pytest.raises(InvalidRequest, match=r"holds 6 .*`kv_positions`") as caught:
        small.push("three four five six seven eight nine ten eleven twelve")
    assert caught.value.field == "text"
    ids += small.push(".")
    ids += small.end()
    assert ids == BIG.utterance("one two .")[ROLE:-SUFFIX]


def test_the_front_end_reads_sentence_by_sentence_and_a_missing_mark_is_added() -> None:
    heard = []

    def read(sentence: str) -> str:
        heard.append(sentence)
        return sentence.strip().replace("3", "three")

    reading = feed(read=read, mark=True)
    ids = []
    for piece in ("I have ", "3", ".5. Dr", ". Lee has", " 3! And", " you"):
        ids += reading.push(piece)
    ids += reading.end()
    assert heard == ["I have 3.5. ", "Dr. Lee has 3! ", "And you"]
    expected = "I have three.5. Dr. Lee has three! And you."
    assert ids == BIG.utterance(expected)[ROLE:-SUFFIX]


def test_a_last_sentence_that_grows_too_long_is_left_out() -> None:
    def read(sentence: str) -> str:
        return sentence.strip() * (10 if "x" in sentence else 1)

    reading = feed(limit=20, read=read)
    ids = reading.push("One. Two x")
    with pytest.raises(InvalidRequest, match="holds 20"):
        reading.end()
    assert [*ids, *reading.end()] == BIG.utterance("One. ")[ROLE:-SUFFIX]
