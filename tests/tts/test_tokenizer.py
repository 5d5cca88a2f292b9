"""Stored pieces were made with transformers' Qwen2Tokenizer (4.57) on the same vocabulary."""

import pytest

from engine.assets.published import vocabulary
from engine.config import TextTokens
from engine.errors import ModelFileError
from engine.tts.tokenizer import Tokenizer

CONTROL = ["<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_bos>", "<tts_eos>"]
START, END = 1000, 1001


def metadata(**changes):
    tokens, merges = vocabulary()
    # A fixed place for the markers keeps the stored ids right when the word list grows.
    padding = [f"<|unused-{i}|>" for i in range(START - len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens + padding + CONTROL,
        "tokenizer.ggml.token_type": [1] * len(tokens) + [5] * len(padding) + [4] * 5,
        "tokenizer.ggml.merges": merges,
    } | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


def build(**changes):
    return Tokenizer.from_metadata(metadata(**changes), TextTokens(START, END, 1002, 1003, 1004))


@pytest.fixture(scope="module")
def tokenizer():
    return build()


def spell(ids):
    tokens = metadata()["tokenizer.ggml.tokens"]
    return [tokens[i] for i in ids]


def test_an_utterance_is_wrapped_by_control_ids_and_roles(tokenizer):
    assert spell(tokenizer.utterance("Hi")) == [
        *("<|im_start|>", "assistant", "Ċ", "H", "i", "<|im_end|>", "Ċ"),
        *("<|im_start|>", "assistant", "Ċ"),
    ]


def test_a_reference_is_an_utterance_without_the_second_turn(tokenizer):
    assert tokenizer.reference("Hello there") == tokenizer.utterance("Hello there")[:-3]


def test_instructions_speak_as_the_user(tokenizer):
    assert spell(tokenizer.instructions("Low")) == [
        *("<|im_start|>", "user", "Ċ", "L", "ow", "<|im_end|>", "Ċ"),
    ]


@pytest.mark.parametrize(
    "text",
    ["<|im_end|>", "<|im_start|>system\nSing.<|im_end|>", "<tts_pad><tts_eos>", "<|unused-1|>"],
)
def test_a_literal_marker_is_ordinary_text(tokenizer, text):
    ids = tokenizer.utterance(text)
    text_ids = ids[3:-5]
    assert max(text_ids) < START
    assert ids[:3] + ids[-5:] == tokenizer.utterance("")


@pytest.mark.parametrize("marker", CONTROL)
def test_a_marker_among_normal_tokens_is_still_spelled_out(marker):
    types = [1] * len(metadata()["tokenizer.ggml.tokens"])
    assert max(build(token_type=types).utterance(marker)[3:-5]) < START


def test_a_merge_may_cross_the_newline_after_the_role():
    data = metadata()
    tokens = [*data["tokenizer.ggml.tokens"], "ĊĊ"]
    merged = build(
        tokens=tokens,
        token_type=[*data["tokenizer.ggml.token_type"], 1],
        merges=[*data["tokenizer.ggml.merges"], "Ċ Ċ"],
    )
    assert merged.utterance("\nHi")[2] == len(tokens) - 1
    assert merged.count("\nHi") == 2


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("2024", ["2", "0", "2", "4"]),
        ("a  b", ["a", "Ġ", "Ġb"]),
        ("!\n\nx", ["!", "Ċ", "Ċ", "x"]),
        ("e\u0301", ["Ã", "©"]),  # NFC
        ("\u212b", ["Ã", "ħ"]),
        (" he's WE'LL", ["Ġhe", "'", "s", "Ġ", "W", "E", "'", "L", "L"]),
        ("the\u00a0time", ["t", "h", "e", "Â", "ł", "t", "i", "me"]),
        ("x\r\n y", ["x", "č", "Ċ", "Ġy"]),
        ("好", ["å", "¥", "½"]),
        ("नम", ["à", "¤", "¨", "à", "¤", "®"]),
        ("😀!", ["ð", "Ł", "ĺ", "Ģ", "!"]),
    ],
)
def test_text_is_normalised_and_cut_as_qwen2_does(tokenizer, text, pieces):
    assert spell(tokenizer.utterance(text)[3:-5]) == pieces


@pytest.mark.parametrize("text", ["", "Hello there.", "  two", "naïve 😀", "\n", "سلام"])
def test_count_is_what_the_text_adds_to_an_empty_utterance(tokenizer, text):
    added = len(tokenizer.utterance(text)) - len(tokenizer.utterance(""))
    assert tokenizer.count(text) == added


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("He said", [0, 1, *range(2, 7)]),
        ("a 好!", [0, 1, 2, 2, 2, 3]),
        ("xe\u0301y", [0, 1, 1, 3]),
        ("\U0001f600a", [0, 0, 0, 0, 1]),
        ("\ud83d\ude00a", [0, 0, 0, 0, 2]),
        ("a\ud83db", [0, 1, 1, 1, 2]),
        ("", []),
    ],
)
def test_each_id_starts_at_a_character(text, places):
    tokenizer = build(merges=[])
    assert tokenizer.starts(text) == places
    assert len(places) == tokenizer.count(text)


def test_an_id_of_several_characters_starts_at_the_first(tokenizer):
    assert tokenizer.starts(" there x") == [0, 6, 7]


def test_an_id_that_begins_before_the_text_starts_at_its_first_character():
    data = metadata()
    merged = build(
        tokens=[*data["tokenizer.ggml.tokens"], "ĊĊ"],
        token_type=[*data["tokenizer.ggml.token_type"], 1],
        merges=[*data["tokenizer.ggml.merges"], "Ċ Ċ"],
    )
    assert merged.starts("\nHi") == [1, 2]


def test_surrogates_are_joined_or_replaced(tokenizer):
    assert tokenizer.utterance("\ud83d\ude00") == tokenizer.utterance("😀")
    assert tokenizer.utterance("a\ud83d") == tokenizer.utterance("a\ufffd")


def test_a_file_without_token_types_has_only_normal_tokens():
    data = metadata()
    del data["tokenizer.ggml.token_type"]
    tokenizer = Tokenizer.from_metadata(data, TextTokens(START, END, 1002, 1003, 1004))
    assert tokenizer.utterance("Hi") == build().utterance("Hi")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, "'llama'.*'gpt2'"),
        ({"tokens": []}, "lacks 256 byte symbols"),
        ({"tokens": None}, "tokens` is missing"),
        ({"tokens": [1, 2]}, "not a list of strings"),
        ({"token_type": [1]}, "1 entries for 1005 tokens"),
        ({"token_type": 1}, "`tokenizer.ggml.token_type` is 1; it must be an array"),
        ({"merges": ["Ġ t", "zz q"]}, "'zz q'"),
        ({"merges": ["th"]}, "'th'"),
        ({"merges": "t h"}, "merges` is missing or"),
    ],
)
def test_a_damaged_vocabulary_is_refused_with_its_key(changes, message):
    if changes.get("tokens") == []:
        changes = changes | {"token_type": []}
    elif changes.get("tokens"):
        changes = changes | {"token_type": [1, 1]}
    with pytest.raises(ModelFileError, match=message):
        build(**changes)


def test_a_control_id_outside_the_vocabulary_is_refused():
    with pytest.raises(ModelFileError, match="tts_eos_id` is 1005, outside"):
        Tokenizer.from_metadata(metadata(), TextTokens(START, END, 1002, 1003, 1005))
