"""Text to ids: Qwen2's byte-level BPE, built from a GGUF file's vocabulary.

Mirrors `Qwen2Tokenizer` of transformers and the three wrappers of the official
`Qwen3TTSModel` (`_build_assistant_text`, `_build_ref_text`, `_build_instruct_text`). The
normaliser (NFC) and the split pattern are facts of that tokenizer: the file names only `gpt2`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from engine.config import TextTokens
from engine.errors import ModelFileError

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
_PIECES = pre_tokenizers.Split(tokenizers.Regex(_SPLIT), behavior="isolated")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CHARACTER = re.compile(f"{_PAIR.pattern}|.", re.DOTALL)
_NORMAL = 1  # GGUF token type; the others are control, user-defined or unused
_ROLE = "assistant\n"


class Tokenizer:
    """Encodes what users write; only the markers set here become control ids.

    A literal `<|im_end|>` or `<tts_pad>` in a text is spelled out like any other word. The text
    between two markers is encoded whole, so a merge may cross the newline after the role.
    Safe to call from several threads.
    """

    def __init__(self, bpe: tokenizers.Tokenizer, control: TextTokens) -> None:
        self._bpe = bpe
        self._control = control
        self._role = self._encode(_ROLE)
        self._newline = self._encode("\n")

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokens: TextTokens) -> Tokenizer:
        """Build from the `tokenizer.ggml.*` keys of a talker file.

        Raises:
            ModelFileError: no such keys, another tokenizer model, a vocabulary that cannot spell
                every text, or a merge of tokens the vocabulary does not have.
        """
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise ModelFileError(f"`tokenizer.ggml.model` is {model!r}; it must be 'gpt2'")
        vocab = _vocabulary(metadata)
        _check_control(tokens, len(metadata["tokenizer.ggml.tokens"]))
        return cls(_build(vocab, _merges(metadata, vocab)), tokens)

    def utterance(self, text: str) -> list[int]:
        """Ids of `<|im_start|>assistant\\n{text}<|im_end|>\\n<|im_start|>assistant\\n`."""
        start = self._control.im_start
        return [*self._turn(_ROLE + text), start, *self._role]

    def reference(self, text: str) -> list[int]:
        """Ids of a reference transcript: `<|im_start|>assistant\\n{text}<|im_end|>\\n`."""
        return self._turn(_ROLE + text)

    def instructions(self, text: str) -> list[int]:
        """Ids of instructions: `<|im_start|>user\\n{text}<|im_end|>\\n`."""
        return self._turn("user\n" + text)

    def count(self, text: str) -> int:
        """How many ids `text` adds to an empty utterance."""
        return len(self._encode(_ROLE + text)) - len(self._role)

    def settling(self) -> Settling:
        """Encodes an utterance's text that arrives in pieces."""
        return Settling(self._bpe)

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids around an utterance's text: in front of one that starts with no white space,
        and behind every one."""
        control = self._control
        behind = [control.im_end, *self._newline, control.im_start, *self._role]
        return [control.im_start, *self._role], behind

    def starts(self, text: str) -> list[int]:
        """The place in `text` of the character each of its `count` ids starts at, in order."""
        segment = _ROLE + text
        encoding = self._bpe.encode(_well_formed(segment), add_special_tokens=False)
        places = [max(0, place - len(_ROLE)) for place in _places(segment)]
        begins = [places[begin] for begin, _ in encoding.offsets[len(self._role) :]]
        return list(accumulate(begins, max))

    def _turn(self, segment: str) -> list[int]:
        control = self._control
        return [control.im_start, *self._encode(segment), control.im_end, *self._newline]

    def _encode(self, segment: str) -> list[int]:
        return self._bpe.encode(_well_formed(segment), add_special_tokens=False).ids


class Settling:
    """Gives out the ids of a text that arrives in pieces: those of the whole, in order.

    An id is settled once no text that follows can change it. Merges stay within the pieces of the
    split pattern, so those are given out whose end is certain; the last word is kept back until
    something behind it has come.
    """

    def __init__(self, bpe: tokenizers.Tokenizer) -> None:
        self._bpe = bpe
        self._tail = ""

    def push(self, text: str) -> list[int]:
        """The ids that are settled with `text`."""
        tail = self._tail + text
        # Half of a surrogate pair says nothing about the character.
        whole = tail[:-1] if "\ud800" <= tail[-1:] <= "\udbff" else tail
        normal = self._bpe.normalizer.normalize_str(_well_formed(whole))
        end = _settled(normal)
        self._tail = normal[end:] + tail[len(whole) :]
        return self._encode(normal[:end])

    def rest(self) -> list[int]:
        """The ids that are left once the text has ended."""
        tail, self._tail = self._tail, ""
        return self._encode(_well_formed(tail))

    def count(self, text: str = "") -> int:
        """How many ids are still to be given out if the text ends with `text`; changes nothing."""
        return len(self._encode(_well_formed(self._tail + text)))

    def _encode(self, text: str) -> list[int]:
        return self._bpe.encode(text, add_special_tokens=False).ids


def _settled(text: str) -> int:
    """How much of an NFC text keeps its ids whatever follows: whole pieces of the split pattern.

    The last character that joins none before it may still change by what follows, though not what
    kind of character it is. A piece is certain that ends there or before; white space is certain
    once something else has come.
    """
    last = len(text) - 1
    while last > 0 and _joins(text[last]):
        last -= 1
    visible = len(text.rstrip())
    end = 0
    for piece, (_, stop) in _PIECES.pre_tokenize_str(text):
        if stop > last or (piece.isspace() and stop >= visible):
            break
        end = stop
    return end


def _joins(char: str) -> bool:
    """Whether NFC may join or reorder `char` with what stands before it."""
    return unicodedata.category(char)[0] == "M" or "\u1161" <= char <= "\u11c2"


def _well_formed(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates, which no UTF-8 has, as U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _places(text: str) -> Sequence[int]:
    """Where in `text` each character of its well-formed twin comes from."""
    if not _PAIR.search(text):
        return range(len(text) + 1)
    return [match.start() for match in _CHARACTER.finditer(text)]


def _build(vocab: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    bpe = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            _PIECES,
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return bpe


def _strings(metadata: Mapping[str, Any], key: str) -> Sequence[str]:
    value = metadata.get(key)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ModelFileError(f"`{key}` is missing or is not a list of strings")
    return value


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if not isinstance(types, list | tuple):
        raise ModelFileError(
            f"`tokenizer.ggml.token_type` is {types!r:.60}; it must be an array of integers"
        )
    if len(types) != len(tokens):
        raise ModelFileError(
            f"`tokenizer.ggml.token_type` has {len(types)} entries for {len(tokens)} tokens"
        )
    vocab = {
        token: index
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == _NORMAL
    }
    missing = sorted(_byte_symbols() - vocab.keys())
    if missing:
        raise ModelFileError(
            f"`tokenizer.ggml.tokens` lacks {len(missing)} byte symbols, first {missing[0]!r}"
        )
    return vocab


def _merges(metadata: Mapping[str, Any], vocab: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for line in _strings(metadata, "tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ModelFileError(f"`tokenizer.ggml.merges` joins {line!r}, not in the vocabulary")
        merges.append((left, right))
    return merges


def _check_control(tokens: TextTokens, size: int) -> None:
    for name in ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos"):
        if not 0 <= getattr(tokens, name) < size:
            raise ModelFileError(
                f"`qwen3-tts.text.{name}_id` is {getattr(tokens, name)}, outside the"
                f" vocabulary of {size} tokens"
            )


def _byte_symbols() -> set[str]:
    """The characters that spell single bytes; every UTF-8 text needs just these."""
    return set(pre_tokenizers.ByteLevel.alphabet())


__all__ = ["Settling", "Tokenizer"]
