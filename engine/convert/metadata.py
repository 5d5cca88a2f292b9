"""A checkpoint's JSON files turned into GGUF metadata, key by key.

Keys and types are those of qwentts.cpp's `convert.py`; so is the order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from gguf.gguf_writer import GGUFWriter

from engine.convert.source import Config, read_config, read_text, shortened
from engine.gguf.spec import CODEC_ARCHITECTURE, TALKER_ARCHITECTURE, TOKENIZER_TYPE
from engine.request import Task

_HIGHEST_ID = 1 << 20
_PUBLISHED_EOS = 151643  # <|endoftext|>, for a vocabulary that has it under no name
_NORMAL, _USER_DEFINED, _UNUSED = 1, 4, 5  # GGUF token types

# GGUF key -> config key, all uint32 unless said otherwise.
_STACK = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "vocab_size": "vocab_size",
}
_TALKER_ONLY = {"text_vocab_size": "text_vocab_size", "text_hidden_size": "text_hidden_size"}
_CONTEXT = {"context_length": "max_position_embeddings"}
_STACK_FLOATS = {
    "rope.freq_base": "rope_theta",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_SPEAKER_ENCODER = {"embedding_length": "enc_dim", "sample_rate": "sample_rate"}
_CODEC_TOKENS = {
    "pad_id": "codec_pad_id",
    "bos_id": "codec_bos_id",
    "eos_id": "codec_eos_token_id",
    "think_id": "codec_think_id",
    "nothink_id": "codec_nothink_id",
    "think_bos_id": "codec_think_bos_id",
    "think_eos_id": "codec_think_eos_id",
}
_TEXT_TOKENS = {
    "im_start_id": "im_start_token_id",
    "im_end_id": "im_end_token_id",
    "tts_pad_id": "tts_pad_token_id",
    "tts_bos_id": "tts_bos_token_id",
    "tts_eos_id": "tts_eos_token_id",
}
_GENERATION = {
    "do_sample": ("do_sample", "flag"),
    "top_k": ("top_k", "u32"),
    "top_p": ("top_p", "f32"),
    "temperature": ("temperature", "f32"),
    "repetition_penalty": ("repetition_penalty", "f32"),
    "subtalker_do_sample": ("subtalker_dosample", "flag"),
    "subtalker_top_k": ("subtalker_top_k", "u32"),
    "subtalker_top_p": ("subtalker_top_p", "f32"),
    "subtalker_temperature": ("subtalker_temperature", "f32"),
    "max_new_tokens": ("max_new_tokens", "u32"),
}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_CODEC_TOP = _same(
    "input_sample_rate",
    "output_sample_rate",
    "decode_upsample_rate",
    "encode_downsample_rate",
    "encoder_valid_num_quantizers",
)
_QUANTIZER = {"vector_quantization_hidden_dim": "vector_quantization_hidden_dimension"} | _same(
    "codebook_dim", "codebook_size", "num_quantizers", "num_semantic_quantizers"
)
_CODEC_STACK = _same(
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
)
_CODEC_DECODER = _QUANTIZER | _CODEC_STACK | _same("latent_dim", "decoder_dim", "sliding_window")
_CODEC_ENCODER = (
    _QUANTIZER
    | _CODEC_STACK
    | _same(
        "num_filters",
        "kernel_size",
        "last_kernel_size",
        "residual_kernel_size",
        "num_residual_layers",
        "dilation_growth_rate",
        "compress",
    )
)


def talker_writer(checkpoint: Path) -> GGUFWriter:
    """A writer that holds all metadata of a talker file and no tensor yet.

    Raises:
        ModelFileError: a file, key or value is missing or not what it must be; an unknown
            `tts_model_type` or `tokenizer_type`.
    """
    config = read_config(checkpoint / "config.json")
    writer = GGUFWriter(None, TALKER_ARCHITECTURE)
    _add_identity(writer, config)
    _add_stacks(writer, config.section("talker_config"))
    if config.content.get("speaker_encoder_config") is not None:
        _add(writer, "spk_enc", config.section("speaker_encoder_config"), _SPEAKER_ENCODER)
    _add_codec_tokens(writer, config.section("talker_config"))
    _add(writer, "text", config, _TEXT_TOKENS)
    _add_generation(writer, checkpoint / "generation_config.json")
    text_vocab = config.section("talker_config").u32("text_vocab_size")
    _add_vocabulary(writer, checkpoint, min(text_vocab, _HIGHEST_ID))
    return writer


def codec_writer(speech_tokenizer: Path) -> GGUFWriter:
    """A writer that holds all metadata of a codec file and no tensor yet.

    Raises:
        ModelFileError: as `talker_writer`.
    """
    config = read_config(speech_tokenizer / "config.json")
    config.one_of("model_type", (TOKENIZER_TYPE,))
    decoder, encoder = config.section("decoder_config"), config.section("encoder_config")
    writer = GGUFWriter(None, CODEC_ARCHITECTURE)
    writer.add_string("general.name", "Qwen3-TTS-Tokenizer-12Hz")
    _add(writer, "", config, _CODEC_TOP)
    _add(writer, "decoder", decoder, _CODEC_DECODER)
    _add_floats(writer, "decoder", decoder, "rms_norm_eps")
    _add_arrays(writer, "decoder", decoder, "upsample_rates", "upsampling_ratios")
    # The peer's files hold this literal whatever the codebooks are; readers use the tensor.
    writer.add_uint32(f"{CODEC_ARCHITECTURE}.decoder.codebook_dim_internal", 256)
    _add(writer, "encoder", encoder, _CODEC_ENCODER)
    _add_floats(writer, "encoder", encoder, "norm_eps")
    _add_arrays(writer, "encoder", encoder, "upsampling_ratios")
    return writer


def kept_acoustic_codebooks(speech_tokenizer: Path) -> int:
    """How many of the encoder's acoustic codebooks are in use; the file holds no others."""
    config = read_config(speech_tokenizer / "config.json")
    semantic = config.section("encoder_config").u32("num_semantic_quantizers")
    return config.u32("encoder_valid_num_quantizers") - semantic


def _add(writer: GGUFWriter, part: str, config: Config, keys: Mapping[str, str]) -> None:
    prefix = f"{writer.arch}.{part}." if part else f"{writer.arch}."
    for key, source in keys.items():
        writer.add_uint32(prefix + key, config.u32(source))


def _add_floats(writer: GGUFWriter, part: str, config: Config, eps: str) -> None:
    for key in (eps, "rope_theta", "layer_scale_initial_scale"):
        writer.add_float32(f"{writer.arch}.{part}.{key}", config.f32(key))


def _add_arrays(writer: GGUFWriter, part: str, config: Config, *keys: str) -> None:
    for key in keys:
        writer.add_array(f"{writer.arch}.{part}.{key}", config.i32s(key))


def _add_identity(writer: GGUFWriter, config: Config) -> None:
    tokenizer = config.one_of("tokenizer_type", (TOKENIZER_TYPE,))
    task = config.one_of("tts_model_type", get_args(Task))
    size = config.text("tts_model_size")
    label = re.sub(r"(\d+)b(\d+)", r"\1.\2B", size)
    writer.add_string("general.name", f"Qwen3-TTS-12Hz-{label}-{task}")
    writer.add_string("qwen3-tts.tokenizer_type", tokenizer)
    writer.add_string("qwen3-tts.model_size", size)
    writer.add_string("qwen3-tts.model_type", task)


def _add_stacks(writer: GGUFWriter, talker: Config) -> None:
    _add(writer, "", talker, {"num_code_groups": "num_code_groups"})
    _add_stack(writer, "talker", talker, _STACK | _TALKER_ONLY | _CONTEXT)
    if "position_id_per_seconds" in talker.content:
        position = {"position_id_per_seconds": "position_id_per_seconds"}
        _add(writer, "talker", talker, position)
    scaling = talker.optional("rope_scaling")
    if "mrope_section" in scaling.content:
        section = scaling.i32s("mrope_section")
        writer.add_array("qwen3-tts.talker.rope.mrope_section", section)
        interleaved = bool(scaling.content.get("interleaved", False))
        writer.add_bool("qwen3-tts.talker.mrope_interleaved", interleaved)
    _add_stack(writer, "code_pred", talker.section("code_predictor_config"), _STACK | _CONTEXT)


def _add_stack(writer: GGUFWriter, part: str, config: Config, keys: Mapping[str, str]) -> None:
    _add(writer, part, config, keys)
    for key, source in _STACK_FLOATS.items():
        writer.add_float32(f"{writer.arch}.{part}.{key}", config.f32(source))


def _add_codec_tokens(writer: GGUFWriter, talker: Config) -> None:
    _add(writer, "codec", talker, _CODEC_TOKENS)
    vocab = talker.u32("vocab_size")
    languages = talker.optional("codec_language_id").ids(vocab)
    writer.add_array("qwen3-tts.codec.language_names", list(languages))
    writer.add_array("qwen3-tts.codec.language_ids", list(languages.values()))
    speakers = talker.optional("spk_id").ids(vocab)
    dialects = talker.optional("spk_is_dialect")
    # A speaker's entry is the name of a dialect, or false.
    named = [dialects.text(name) if dialects.content.get(name) else "" for name in speakers]
    writer.add_array("qwen3-tts.codec.speaker_names", list(speakers))
    writer.add_array("qwen3-tts.codec.speaker_ids", list(speakers.values()))
    writer.add_array("qwen3-tts.codec.speaker_dialects", named)


def _add_generation(writer: GGUFWriter, path: Path) -> None:
    if not path.exists():
        return
    config = read_config(path)
    add = {"flag": writer.add_bool, "u32": writer.add_uint32, "f32": writer.add_float32}
    for key, (source, kind) in _GENERATION.items():
        if source in config.content:
            add[kind](f"generation.{key}", getattr(config, kind)(source))


def _add_vocabulary(writer: GGUFWriter, checkpoint: Path, limit: int) -> None:
    tokens, types = _tokens(checkpoint, limit)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", types)
    writer.add_array("tokenizer.ggml.merges", _merges(checkpoint / "merges.txt"))
    eos = tokens.index("<|endoftext|>") if "<|endoftext|>" in tokens else _PUBLISHED_EOS
    writer.add_uint32("tokenizer.ggml.eos_token_id", eos)


def _tokens(checkpoint: Path, limit: int) -> tuple[list[str], list[int]]:
    vocabulary = read_config(checkpoint / "vocab.json").ids(limit)
    added = _added_tokens(checkpoint / "tokenizer_config.json", limit)
    size = max([*vocabulary.values(), *added], default=-1) + 1
    tokens = [f"<|unused-{id_}|>" for id_ in range(size)]
    types = [_UNUSED] * size
    for token, id_ in vocabulary.items():
        tokens[id_], types[id_] = token, _NORMAL
    for id_, token in added.items():
        tokens[id_], types[id_] = token, _USER_DEFINED
    return tokens, types


def _added_tokens(path: Path, limit: int) -> dict[int, str]:
    config = read_config(path).optional("added_tokens_decoder")
    tokens: dict[int, str] = {}
    for key in config.content:
        if not key.isdecimal() or len(key) > 9 or int(key) >= limit:
            config.fail(
                f"`added_tokens_decoder` has the key {shortened(key)}; it must be a token id below"
                f" {limit}"
            )
        tokens[int(key)] = config.section(key).text("content")
    return tokens


def _merges(path: Path) -> list[str]:
    # Only the first line is a comment: later ones that begin with `#` merge that sign.
    lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
    if lines[0].startswith("#version"):
        del lines[0]
    return [line for line in lines if line]


__all__ = ["codec_writer", "kept_acoustic_codebooks", "talker_writer"]
