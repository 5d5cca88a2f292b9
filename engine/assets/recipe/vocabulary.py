"""Step 4, vocabulary: a small byte-level BPE with Qwen2's split pattern, in Qwen2's files.

"assistant" and "user" become whole tokens, as the prompt's slicing by count expects.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from shape import talker_spec
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.config import TalkerSpec
from engine.tts.tokenizer import Tokenizer as EngineTokenizer

MERGES = 420
ROWS = 6  # markers: <|endoftext|>, im_start, im_end, tts_pad, tts_bos, tts_eos
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>"]
MARKERS += ["<tts_text_eod>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    work = parser.parse_args().work
    text = json.loads((work / "text.json").read_text("utf-8"))
    bpe = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, level])  # type: ignore[assignment]
    bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + MERGES, initial_alphabet=alphabet)
    # Lower case as well: users write in any case.
    lines = text["sentences"] + text["derived"]
    plain = [re.sub(r"[^a-z' ]", " ", line.lower()) for line in text["derived"]]
    roles = ["assistant\n", "user\n"] * 20000
    bpe.train_from_iterator(lines + plain + roles, trainer)
    folder = work / "vocabulary"
    folder.mkdir(exist_ok=True)
    bpe.model.save(str(folder))
    bpe.save(str(folder / "tokenizer.json"))
    tokenizer, _ = load(work)
    ids = tokenizer.utterance("Hello there, how are you today?")
    assert len(tokenizer.utterance("")) == 8, "the role must be one token"
    print(bpe.get_vocab_size(), [bpe.id_to_token(i) for i in ids])
    print(sum(map(len, lines)) / sum(len(e.ids) for e in bpe.encode_batch(lines)), "per token")


def load(work: Path) -> tuple[EngineTokenizer, TalkerSpec]:
    bpe = Tokenizer.from_file(str(work / "vocabulary" / "tokenizer.json"))
    size = bpe.get_vocab_size()
    spec = talker_spec(size + ROWS, size)
    return EngineTokenizer(bpe, spec.text_tokens), spec


def tokens(work: Path) -> list[str]:
    vocabulary = json.loads((work / "vocabulary" / "vocab.json").read_text("utf-8"))
    return sorted(vocabulary, key=vocabulary.__getitem__)


if __name__ == "__main__":
    main()
