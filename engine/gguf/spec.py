"""A model's frozen facts, read from the metadata of its two GGUF files and checked.

Keys are those qwentts.cpp's `convert.py` writes. What it leaves out when empty (languages,
speakers, `generation.*`) is optional here; two facts come from tensors because the metadata
cannot be trusted for them: the speaker encoder's presence and the width of a codebook vector.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

from engine.config import (
    CodecSpec,
    CodecTokens,
    DecoderSpec,
    GenerationDefaults,
    ModelSpec,
    Speaker,
    TalkerSpec,
    TextTokens,
)
from engine.errors import ModelFileError
from engine.gguf.keys import CODEC_ARCHITECTURE, TALKER_ARCHITECTURE, WIDEST, Keys
from engine.gguf.tensors import TensorFile
from engine.request import Task

TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
RESERVED_IDS = 1024  # the top of the talker's codec vocabulary: languages, speakers, control

_DEEPEST = 1024
_LONGEST = 1 << 24
_WIDEST_WINDOW = 1024  # every lane holds the keys and values of a whole window
_LONGEST_FRAME = 1 << 16  # samples
_TASKS: dict[str, Task] = {task: task for task in get_args(Task)}


def read_model_spec(talker_path: Path, codec_path: Path) -> ModelSpec:
    """Read both files of a model and check that they belong together.

    Raises:
        ModelFileError: as `read_talker_spec` and `read_codec_spec`, or the two disagree on the
            number of codebooks or their size.
    """
    with TensorFile(talker_path) as file:
        talker = read_talker_spec(file)
    with TensorFile(codec_path) as file:
        codec = read_codec_spec(file)
    _check_pair(talker, codec, talker_path, codec_path)
    return ModelSpec(talker, codec, talker_path, codec_path)


def read_talker_spec(file: TensorFile) -> TalkerSpec:
    """Read a talker file's spec.

    Raises:
        ModelFileError: another architecture; a key that is missing, of the wrong type or out of
            bounds (the message names it).
    """
    keys = Keys(file, TALKER_ARCHITECTURE)
    vocab = keys.integer("talker.vocab_size", RESERVED_IDS + 1, WIDEST)
    text_vocab = keys.integer("talker.text_vocab_size", 1, _LONGEST)
    _check_tokenizer(keys, text_vocab)
    return TalkerSpec(
        name=keys.text("general.name", file.path.stem),
        task=_task(keys),
        size=keys.text("model_size"),
        code_groups=keys.integer("num_code_groups", 2, 64),
        talker=_lm(keys, "talker"),
        vocab=vocab,
        text_vocab=text_vocab,
        text_hidden=keys.integer("talker.text_hidden_size", 1, WIDEST),
        predictor=_lm(keys, "code_pred"),
        predictor_vocab=keys.integer("code_pred.vocab_size", 1, WIDEST),
        predictor_projection="code_pred.mtp_proj.weight" in file.shapes,
        codec_tokens=_codec_tokens(keys, vocab),
        text_tokens=_text_tokens(keys, text_vocab),
        languages=_languages(keys, vocab),
        speakers=_speakers(keys, vocab),
        generation=_generation(keys),
        has_speaker_encoder=any(name.startswith("spk_enc.") for name in file.shapes),
    )


def read_codec_spec(file: TensorFile) -> CodecSpec:
    """Read a codec file's spec (the decoder's side).

    Raises:
        ModelFileError: another architecture; a key that is missing, of the wrong type or out of
            bounds (the message names it); no codebook tensor, or one of another size.
    """
    keys = Keys(file, CODEC_ARCHITECTURE)
    quantizers = keys.integer("decoder.num_quantizers", 2, 64)
    codebook_size = keys.integer("decoder.codebook_size", 1, WIDEST)
    window = keys.integer("decoder.sliding_window", 1, _WIDEST_WINDOW)
    rates = keys.integers("decoder.upsample_rates", 1, 256)
    ratios = keys.integers("decoder.upsampling_ratios", 1, 256)
    return CodecSpec(
        sample_rate=keys.integer("output_sample_rate", 1000, 384_000),
        samples_per_frame=_samples_per_frame(keys, rates + ratios),
        quantizers=quantizers,
        semantic_quantizers=keys.integer("decoder.num_semantic_quantizers", 1, quantizers - 1),
        codebook_size=codebook_size,
        codebook_dim=keys.integer("decoder.codebook_dim", 1, WIDEST),
        codebook_width=_codebook_width(file, codebook_size),
        latent_dim=keys.integer("decoder.latent_dim", 1, WIDEST),
        decoder_dim=keys.multiple("decoder.decoder_dim", 2 ** len(rates)),
        transformer=_codec_transformer(keys, window),
        window=window,
        upsample_rates=rates,
        upsampling_ratios=ratios,
    )


def _check_tokenizer(keys: Keys, text_vocab: int) -> None:
    if keys.text("tokenizer_type", TOKENIZER_TYPE) != TOKENIZER_TYPE:
        keys.wrong("tokenizer_type", f"`{TOKENIZER_TYPE}`")
    tokens = len(keys.names("tokenizer.ggml.tokens"))
    if tokens > text_vocab:
        keys.fail(
            f"`tokenizer.ggml.tokens` has {tokens} tokens, more than the {text_vocab} rows of"
            " `talker.text_vocab_size`"
        )


def _task(keys: Keys) -> Task:
    found = keys.text("model_type")
    if found not in _TASKS:
        keys.wrong("model_type", "one of " + ", ".join(f"`{task}`" for task in _TASKS))
    return _TASKS[found]


def _lm(keys: Keys, part: str) -> DecoderSpec:
    kv_heads = keys.integer(f"{part}.attention.head_count_kv", 1, WIDEST)
    return DecoderSpec(
        hidden=keys.integer(f"{part}.embedding_length", 1, WIDEST),
        ffn=keys.integer(f"{part}.feed_forward_length", 1, WIDEST),
        layers=keys.integer(f"{part}.block_count", 1, _DEEPEST),
        heads=keys.multiple(f"{part}.attention.head_count", kv_heads),
        kv_heads=kv_heads,
        head_dim=keys.multiple(f"{part}.attention.key_length", 2),
        rope_theta=keys.number(f"{part}.rope.freq_base", 1.0, 1e12),
        norm_eps=keys.number(f"{part}.attention.layer_norm_rms_epsilon", 0.0, 1.0),
        context=keys.integer(f"{part}.context_length", 1, _LONGEST),
    )


def _codec_transformer(keys: Keys, window: int) -> DecoderSpec:
    kv_heads = keys.integer("decoder.num_key_value_heads", 1, WIDEST)
    return DecoderSpec(
        hidden=keys.integer("decoder.hidden_size", 1, WIDEST),
        ffn=keys.integer("decoder.intermediate_size", 1, WIDEST),
        layers=keys.integer("decoder.num_hidden_layers", 1, _DEEPEST),
        heads=keys.multiple("decoder.num_attention_heads", kv_heads),
        kv_heads=kv_heads,
        head_dim=keys.multiple("decoder.head_dim", 2),
        rope_theta=keys.number("decoder.rope_theta", 1.0, 1e12),
        norm_eps=keys.number("decoder.rms_norm_eps", 0.0, 1.0),
        context=window,
    )


def _codec_tokens(keys: Keys, vocab: int) -> CodecTokens:
    names = ("pad", "bos", "eos", "think", "nothink", "think_bos", "think_eos")
    return CodecTokens(**{name: keys.integer(f"codec.{name}_id", 0, vocab - 1) for name in names})


def _text_tokens(keys: Keys, text_vocab: int) -> TextTokens:
    names = ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos")
    return TextTokens(
        **{name: keys.integer(f"text.{name}_id", 0, text_vocab - 1) for name in names}
    )


def _languages(keys: Keys, vocab: int) -> dict[str, int]:
    names = keys.names("codec.language_names")
    ids = keys.ids("codec.language_ids", "codec.language_names", vocab)
    return dict(zip(names, ids, strict=True))


def _speakers(keys: Keys, vocab: int) -> tuple[Speaker, ...]:
    names = keys.names("codec.speaker_names")
    ids = keys.ids("codec.speaker_ids", "codec.speaker_names", vocab)
    dialects = keys.names("codec.speaker_dialects") or ("",) * len(names)
    if len(dialects) != len(names):
        keys.wrong("codec.speaker_dialects", f"an array of {len(names)} strings, one per speaker")
    unknown = set(dialects) - {"", *keys.names("codec.language_names")}
    if unknown:
        keys.fail(
            f"`{keys.full('codec.speaker_dialects')}` has {min(unknown)!r:.60}; each must be one of"
            f" `{keys.full('codec.language_names')}` or empty"
        )
    return tuple(
        Speaker(name, id_, dialect or None)
        for name, id_, dialect in zip(names, ids, dialects, strict=True)
    )


def _generation(keys: Keys) -> GenerationDefaults:
    found: dict[str, Any] = {}
    for name in ("do_sample", "subtalker_do_sample"):
        if keys.has(f"generation.{name}"):
            found[name] = keys.flag(f"generation.{name}")
    for name, high in (
        ("temperature", 100.0),
        ("top_p", 1.0),
        ("repetition_penalty", 100.0),
        ("subtalker_temperature", 100.0),
        ("subtalker_top_p", 1.0),
    ):
        if keys.has(f"generation.{name}"):
            found[name] = keys.number(f"generation.{name}", 0.0, high)
    for name in ("top_k", "subtalker_top_k", "max_new_tokens"):
        if keys.has(f"generation.{name}"):
            found[name] = keys.integer(f"generation.{name}", 0, _LONGEST)
    return GenerationDefaults(**found)


def _samples_per_frame(keys: Keys, factors: tuple[int, ...]) -> int:
    samples = keys.integer("decode_upsample_rate", 1, _LONGEST_FRAME)
    if samples != math.prod(factors):
        keys.wrong(
            "decode_upsample_rate",
            f"{math.prod(factors)}, the product of `decoder.upsample_rates` and"
            " `decoder.upsampling_ratios`",
        )
    return samples


def _codebook_width(file: TensorFile, codebook_size: int) -> int:
    name = "tok_dec.vq_first.0.codebook"
    shape = file.shapes.get(name)
    if shape is None:
        raise ModelFileError(f"`{file.path}` has no tensor `{name}`")
    if len(shape) != 2 or shape[0] != codebook_size:
        raise ModelFileError(
            f"`{file.path}`: `{name}` is {list(shape)}; `decoder.codebook_size` asks for"
            f" [{codebook_size}, width]"
        )
    return shape[1]


def _check_pair(talker: TalkerSpec, codec: CodecSpec, talker_path: Path, codec_path: Path) -> None:
    pair = f"`{talker_path}` and `{codec_path}` do not belong together"
    if talker.code_groups != codec.quantizers:
        raise ModelFileError(
            f"{pair}: the talker makes {talker.code_groups} codes per frame"
            f" (`num_code_groups`), the codec takes {codec.quantizers}"
            " (`decoder.num_quantizers`)"
        )
    for key, codes in (
        ("talker.vocab_size", talker.vocab - RESERVED_IDS),
        ("code_pred.vocab_size", talker.predictor_vocab),
    ):
        if codes > codec.codebook_size:
            raise ModelFileError(
                f"{pair}: `{key}` allows {codes} codes, the codec's codebooks have"
                f" {codec.codebook_size} (`decoder.codebook_size`)"
            )


__all__ = [
    "CODEC_ARCHITECTURE",
    "RESERVED_IDS",
    "TALKER_ARCHITECTURE",
    "TOKENIZER_TYPE",
    "read_codec_spec",
    "read_model_spec",
    "read_talker_spec",
]
