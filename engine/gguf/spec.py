"""A model's frozen facts, read from the metadata of its two GGUF files and checked.

Keys are those qwentts.cpp's `convert.py` writes. What it leaves out when empty (languages,
speakers, `generation.*`) is optional here; some facts come from tensors because the metadata
cannot be trusted for them: whether an encoder is there, the speaker encoder's widths and the width
of a codebook vector.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, get_args

from engine.config import (
    CodecEncoderSpec,
    CodecSpec,
    CodecTokens,
    DecoderSpec,
    GenerationDefaults,
    ModelSpec,
    Speaker,
    SpeakerEncoderSpec,
    TalkerSpec,
    TextTokens,
)
from engine.errors import ModelFileError
from engine.gguf.keys import CODEC_ARCHITECTURE, TALKER_ARCHITECTURE, WIDEST, Keys
from engine.gguf.tensors import TensorFile
from engine.request import Task

TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
RESERVED_IDS = 1024  # the top of the talker's codec vocabulary: languages, speakers, control

_ENCODER_DOWNSAMPLING = 2  # between transformer and codebooks; no key says so
_FARTHEST_REACH = 8  # mel frames: a clip of 0.1 s has 9
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
            bounds (the message names it); a speaker encoder with a tensor missing or of a shape
            that is not supported.
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
        speaker_encoder=_speaker_encoder(file) if _has(file, "spk_enc.") else None,
    )


def read_codec_spec(file: TensorFile) -> CodecSpec:
    """Read a codec file's spec; `encoder` is None in a file without one.

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
        codebook_width=_codebook_width(
            file, "tok_dec.vq_first.0.codebook", "decoder.codebook_size", codebook_size
        ),
        latent_dim=keys.integer("decoder.latent_dim", 1, WIDEST),
        decoder_dim=keys.multiple("decoder.decoder_dim", 2 ** len(rates)),
        transformer=_codec_transformer(keys, "decoder", "rms_norm_eps", window),
        window=window,
        upsample_rates=rates,
        upsampling_ratios=ratios,
        encoder=_codec_encoder(keys, file) if _has(file, "tok_enc.") else None,
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


def _codec_transformer(keys: Keys, part: str, norm_eps: str, context: int) -> DecoderSpec:
    kv_heads = keys.integer(f"{part}.num_key_value_heads", 1, WIDEST)
    return DecoderSpec(
        hidden=keys.integer(f"{part}.hidden_size", 1, WIDEST),
        ffn=keys.integer(f"{part}.intermediate_size", 1, WIDEST),
        layers=keys.integer(f"{part}.num_hidden_layers", 1, _DEEPEST),
        heads=keys.multiple(f"{part}.num_attention_heads", kv_heads),
        kv_heads=kv_heads,
        head_dim=keys.multiple(f"{part}.head_dim", 2),
        rope_theta=keys.number(f"{part}.rope_theta", 1.0, 1e12),
        norm_eps=keys.number(f"{part}.{norm_eps}", 0.0, 1.0),
        context=context,
    )


def _codec_encoder(keys: Keys, file: TensorFile) -> CodecEncoderSpec:
    ratios = keys.integers("encoder.upsampling_ratios", 1, 256)
    semantic = keys.integer("encoder.num_semantic_quantizers", 1, 63)
    codes = keys.integer("encoder_valid_num_quantizers", semantic + 1, 64)
    codebook_size = keys.integer("encoder.codebook_size", 1, WIDEST)
    return CodecEncoderSpec(
        sample_rate=keys.integer("input_sample_rate", 1000, 384_000),
        samples_per_frame=_encoder_samples_per_frame(keys, ratios),
        filters=_filters(keys, len(ratios)),
        kernel=keys.integer("encoder.kernel_size", 1, 256),
        last_kernel=keys.integer("encoder.last_kernel_size", 1, 256),
        residual_kernel=keys.integer("encoder.residual_kernel_size", 1, 256),
        residual_layers=keys.integer("encoder.num_residual_layers", 1, 16),
        dilation_growth=keys.integer("encoder.dilation_growth_rate", 1, 16),
        compress=keys.integer("encoder.compress", 1, 64),
        strides=ratios[::-1],
        downsample_stride=_ENCODER_DOWNSAMPLING,
        downsample_kernel=_downsample_kernel(file),
        transformer=_codec_transformer(keys, "encoder", "norm_eps", _LONGEST),
        semantic_quantizers=semantic,
        acoustic_quantizers=codes - semantic,
        codebook_size=codebook_size,
        codebook_width=_codebook_width(
            file, "tok_enc.vq_semantic.0.codebook", "encoder.codebook_size", codebook_size
        ),
    )


def _filters(keys: Keys, doublings: int) -> int:
    filters = keys.multiple("encoder.num_filters", keys.integer("encoder.compress", 1, 64))
    if filters << doublings > WIDEST:
        keys.wrong("encoder.num_filters", f"at most {WIDEST >> doublings}")
    return filters


def _downsample_kernel(file: TensorFile) -> int:
    name = "tok_enc.downsample.weight"
    kernel = _shape(file, name, 3)[2]
    if kernel < _ENCODER_DOWNSAMPLING:
        raise ModelFileError(
            f"`{file.path}`: `{name}` has a kernel of {kernel}, less than its stride"
        )
    return kernel


def _encoder_samples_per_frame(keys: Keys, ratios: tuple[int, ...]) -> int:
    samples = keys.integer("encode_downsample_rate", 1, _LONGEST_FRAME)
    made = _ENCODER_DOWNSAMPLING * math.prod(ratios)
    if samples != made:
        keys.wrong(
            "encode_downsample_rate",
            f"{made}, {_ENCODER_DOWNSAMPLING} times the product of `encoder.upsampling_ratios`",
        )
    return samples


def _speaker_encoder(file: TensorFile) -> SpeakerEncoderSpec:
    channels, mels, kernel = _shape(file, "spk_enc.conv0.weight", 3)
    spec = SpeakerEncoderSpec(
        mels=mels,
        channels=channels,
        kernel=kernel,
        blocks=_count(file, "spk_enc.blk.{}.tdnn1.weight", first=1),
        block_kernel=_shape(file, "spk_enc.blk.1.res2net.0.weight", 3)[2],
        scale=_count(file, "spk_enc.blk.1.res2net.{}.weight", first=0) + 1,
        squeezed=_shape(file, "spk_enc.blk.1.se.conv1.weight", 2)[0],
        attention=_shape(file, "spk_enc.asp.tdnn.weight", 2)[0],
        width=_shape(file, "spk_enc.fc.weight", 2)[0],
    )
    if channels % spec.scale or max(kernel // 2, spec.reach) > _FARTHEST_REACH:
        raise ModelFileError(
            f"`{file.path}`: a speaker encoder of {channels} channels in {spec.scale} groups,"
            f" kernels {kernel} and {spec.block_kernel} and {spec.blocks} blocks is not supported"
        )
    return spec


def _has(file: TensorFile, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in file.shapes)


def _count(file: TensorFile, name: str, first: int) -> int:
    _shape(file, name.format(first), 2)
    return next(n for n in itertools.count() if name.format(first + n) not in file.shapes)


def _shape(file: TensorFile, name: str, least: int) -> tuple[int, ...]:
    shape = file.shapes.get(name)
    if shape is None:
        raise ModelFileError(f"`{file.path}` has no tensor `{name}`")
    if not least <= len(shape) <= 3:
        raise ModelFileError(
            f"`{file.path}`: `{name}` is {list(shape)}; a convolution has 3 dimensions"
        )
    return shape


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


def _codebook_width(file: TensorFile, name: str, key: str, codebook_size: int) -> int:
    shape = file.shapes.get(name)
    if shape is None:
        raise ModelFileError(f"`{file.path}` has no tensor `{name}`")
    if len(shape) != 2 or shape[0] != codebook_size:
        raise ModelFileError(
            f"`{file.path}`: `{name}` is {list(shape)}; `{key}` asks for [{codebook_size}, width]"
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
