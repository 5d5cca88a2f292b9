"""What the published models' files name: control codes, languages, speakers, special tokens.

And a small vocabulary with one token per role, as the published tokenizer has them, for models
whose text nobody reads.
"""

from __future__ import annotations

from itertools import pairwise

from tokenizers import pre_tokenizers

# Ids above the codes, as far from each other as in the published models.
CONTROL = {
    "pad": 100,
    "bos": 101,
    "eos": 102,
    "think": 106,
    "nothink": 107,
    "think_bos": 108,
    "think_eos": 109,
}
LANGUAGES = {
    "chinese": 7,
    "english": 2,
    "german": 5,
    "italian": 22,
    "portuguese": 23,
    "spanish": 6,
    "japanese": 10,
    "korean": 16,
    "french": 13,
    "russian": 21,
    "beijing_dialect": 26,
    "sichuan_dialect": 14,
}
SPEAKERS = {
    "serena": "",
    "vivian": "",
    "uncle_fu": "",
    "ryan": "",
    "aiden": "",
    "ono_anna": "",
    "sohee": "",
    "eric": "sichuan_dialect",
    "dylan": "beijing_dialect",
}
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_bos>",
    "<tts_eos>",
)
MERGES = 220
WORDS = """
    the of and to in is it you that he was for on are with as his they be at one have this from or
    had by but what some we can out other were all there when up use your how said an each she
    which do their time if will way about many then them write would like so these her long make
    thing see him two has look more day could go come did number sound no most people my over know
    water than call first who may down side been now find any new work part take get place made
    live where after back little only round man year came show every good me give our under very
    through just form sentence great think say help low line before turn cause same mean here
    right hello world please thank yes speech voice read word letter
"""


def vocabulary() -> tuple[list[str], list[str]]:
    """Text tokens without the special ones, and merges, learned from the word list above."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [["Ġ", *word] for word in WORDS.split()]
    # The roles are one token each, as the published tokenizer has them.
    words += [[*"assistant"]] * len(words) + [[*"user"]] * len(words)
    merges: list[str] = []
    while len(merges) < MERGES:
        left, right = _most_frequent_pair(words)
        merges.append(f"{left} {right}")
        tokens.append(left + right)
        words = [_join(word, left, right) for word in words]
    return tokens, merges


def _most_frequent_pair(words: list[list[str]]) -> tuple[str, str]:
    counts: dict[tuple[str, str], int] = {}
    for word in words:
        for pair in pairwise(word):
            counts[pair] = counts.get(pair, 0) + 1
    return max(counts, key=lambda pair: (counts[pair], pair))


def _join(word: list[str], left: str, right: str) -> list[str]:
    joined: list[str] = []
    for symbol in word:
        if joined and joined[-1] == left and symbol == right:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return joined


__all__ = ["CONTROL", "LANGUAGES", "SPEAKERS", "SPECIAL", "vocabulary"]
