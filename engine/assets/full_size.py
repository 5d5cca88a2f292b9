"""Random weights in the published sizes, to measure speed without a download.

The files have the layout of converted ones, load here and in qwentts.cpp, and hold what a model
of that size holds, but for the codec encoder and the text vocabulary's words. They make noise, and
never draw the end: whoever measures says how many frames to make.

Values are drawn once per row width and used over and over, so that a file takes seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGMLQuantizationType as _Type
from gguf.gguf_writer import GGUFWriter
from torch import nn

from engine.assets.published import CONTROL, LANGUAGES, SPEAKERS, SPECIAL, vocabulary
from engine.codec.decoder import CodecDecoder
from engine.config import (
    CodecSpec,
    CodecTokens,
    DecoderSpec,
    GenerationDefaults,
    ModelFiles,
    TalkerSpec,
    TextTokens,
)
from engine.convert.quantize import encode, one_thread, parse_type, stored_size, tensor_type
from engine.models.code_predictor import CodePredictor
from engine.models.talker import Talker

Size = Literal["0.6b", "1.7b"]

_TEXT_VOCAB = 151936
_CODES = 2048
_GROUPS = 16
_POOL = 512  # rows drawn per width


@dataclass(frozen=True, slots=True)
class _Widths:
    hidden: int
    ffn: int
    label: str


_SIZES: dict[str, _Widths] = {
    "0.6b": _Widths(1024, 3072, "0b6"),
    "1.7b": _Widths(2048, 6144, "1b7"),
}
_CODEC = {
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
    "encoder_valid_num_quantizers": _GROUPS,
    "decoder.latent_dim": 1024,
    "decoder.codebook_dim": 512,
    "decoder.codebook_size": _CODES,
    "decoder.decoder_dim": 1536,
    "decoder.hidden_size": 512,
    "decoder.intermediate_size": 1024,
    "decoder.head_dim": 64,
    "decoder.num_attention_heads": 16,
    "decoder.num_key_value_heads": 16,
    "decoder.num_hidden_layers": 8,
    "decoder.num_quantizers": _GROUPS,
    "decoder.num_semantic_quantizers": 1,
    "decoder.rms_norm_eps": 1e-5,
    "decoder.rope_theta": 10000.0,
    "decoder.sliding_window": 72,
    "decoder.layer_scale_initial_scale": 0.01,
    "decoder.upsample_rates": [8, 5, 4, 3],
    "decoder.upsampling_ratios": [2, 2],
    "decoder.vector_quantization_hidden_dim": 512,
    "decoder.codebook_dim_internal": 256,
}
Shapes = dict[str, tuple[int, ...]]


def random_files(folder: Path, size: Size = "0.6b", quant: str = "q8_0") -> ModelFiles:
    """Write a talker and a codec of the published size into `folder`, or find them there.

    Args:
        quant: the type of their weights, as `framecast convert` names it.

    Raises:
        InvalidRequest: no such type.
    """
    kind = parse_type(quant)
    folder.mkdir(parents=True, exist_ok=True)
    files = ModelFiles(folder / f"talker-{size}-{quant}.gguf", folder / f"codec-{quant}.gguf")
    for path, write in ((files.talker, _write_talker), (files.codec, _write_codec)):
        if not path.exists():
            draft = path.with_suffix(".part")
            with one_thread():
                write(draft, _SIZES[size], kind)
            draft.replace(path)
    return files


def _write_talker(path: Path, widths: _Widths, kind: _Type) -> None:
    words, merges = vocabulary()
    ids = {token: len(words) + index for index, token in enumerate(SPECIAL)}
    filler = range(_TEXT_VOCAB - len(words) - len(SPECIAL))
    tokens = [*words, *SPECIAL, *(f"[unused{index}]" for index in filler)]
    metadata: dict[str, Any] = {
        "general.name": f"framecast-random-{widths.label}",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "model_size": widths.label,
        "model_type": "custom_voice",
        "num_code_groups": _GROUPS,
        **_stack("talker", widths.hidden, widths.ffn, 28, _CODES + 1024),
        "talker.text_vocab_size": _TEXT_VOCAB,
        "talker.text_hidden_size": 2048,
        "talker.position_id_per_seconds": 13,
        **_stack("code_pred", 1024, 3072, 5, _CODES),
        **{f"codec.{name}_id": _CODES + place for name, place in CONTROL.items()},
        "codec.language_names": list(LANGUAGES),
        "codec.language_ids": [_CODES + place for place in LANGUAGES.values()],
        "codec.speaker_names": list(SPEAKERS),
        "codec.speaker_ids": [_CODES + 200 + place for place in range(len(SPEAKERS))],
        "codec.speaker_dialects": list(SPEAKERS.values()),
        "text.im_start_id": ids["<|im_start|>"],
        "text.im_end_id": ids["<|im_end|>"],
        "text.tts_pad_id": ids["<tts_pad>"],
        "text.tts_bos_id": ids["<tts_bos>"],
        "text.tts_eos_id": ids["<tts_eos>"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [4 if token in ids else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": ids["<|endoftext|>"],
    }
    _write(path, "qwen3-tts", metadata, _talker_shapes(widths), kind)


def _write_codec(path: Path, _: _Widths, kind: _Type) -> None:
    metadata = {"general.name": "framecast-random-codec", **_CODEC}
    _write(path, "qwen3-tts-tokenizer", metadata, _codec_shapes(), kind)


def _stack(part: str, hidden: int, ffn: int, layers: int, vocab: int) -> dict[str, Any]:
    return {
        f"{part}.embedding_length": hidden,
        f"{part}.feed_forward_length": ffn,
        f"{part}.block_count": layers,
        f"{part}.attention.head_count": 16,
        f"{part}.attention.head_count_kv": 8,
        f"{part}.attention.key_length": 128,
        f"{part}.vocab_size": vocab,
        f"{part}.context_length": 32768,
        f"{part}.rope.freq_base": 1e6,
        f"{part}.attention.layer_norm_rms_epsilon": 1e-6,
    }


def _talker_shapes(widths: _Widths) -> Shapes:
    spec = TalkerSpec(
        name="",
        task="custom_voice",
        size=widths.label,
        code_groups=_GROUPS,
        talker=_decoder(widths.hidden, widths.ffn, 28),
        vocab=_CODES + 1024,
        text_vocab=_TEXT_VOCAB,
        text_hidden=2048,
        predictor=_decoder(1024, 3072, 5),
        predictor_vocab=_CODES,
        predictor_projection=widths.hidden != 1024,
        codec_tokens=CodecTokens(0, 0, 0, 0, 0, 0, 0),
        text_tokens=TextTokens(0, 0, 0, 0, 0),
        languages={},
        speakers=(),
        generation=GenerationDefaults(),
    )
    with torch.device("meta"):
        return _shapes("talker.", Talker(spec)) | _shapes("code_pred.", CodePredictor(spec))


def _decoder(hidden: int, ffn: int, layers: int) -> DecoderSpec:
    return DecoderSpec(hidden, ffn, layers, 16, 8, 128, 1e6, 1e-6, 32768)


def _codec_shapes() -> Shapes:
    spec = CodecSpec(
        sample_rate=24000,
        samples_per_frame=1920,
        quantizers=_GROUPS,
        semantic_quantizers=1,
        codebook_size=_CODES,
        codebook_dim=512,
        codebook_width=256,
        latent_dim=1024,
        decoder_dim=1536,
        transformer=DecoderSpec(512, 1024, 8, 16, 16, 64, 1e4, 1e-5, 8000),
        window=72,
        upsample_rates=(8, 5, 4, 3),
        upsampling_ratios=(2, 2),
    )
    with torch.device("meta"):
        return _shapes("tok_dec.", CodecDecoder(spec))


def _shapes(prefix: str, module: nn.Module) -> Shapes:
    return {prefix + name: tuple(value.shape) for name, value in module.state_dict().items()}


def _write(
    path: Path, architecture: str, metadata: dict[str, Any], shapes: Shapes, kind: _Type
) -> None:
    writer = GGUFWriter(path, architecture)
    add: dict[type, Any] = {
        str: writer.add_string,
        int: writer.add_uint32,
        float: writer.add_float32,
    }
    for key, value in metadata.items():
        full = key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}"
        add.get(type(value), writer.add_array)(full, value)
    pool = _Pool()
    kinds = {name: tensor_type(name, shape, kind) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        size = stored_size(shape, kinds[name])
        writer.add_tensor_info(name, shape, np.dtype(np.float32), size, kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape in shapes.items():
        writer.write_tensor_data(pool.tensor(name, shape, kinds[name]))
    writer.close()


class _Pool:
    """Encoded rows by width, scale and type."""

    def __init__(self) -> None:
        self._random = np.random.RandomState(2027)
        self._rows: dict[tuple[int, float, _Type], npt.NDArray[np.uint8]] = {}

    def tensor(self, name: str, shape: tuple[int, ...], kind: _Type) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor."""
        if len(shape) == 1:
            return _vector(name, shape[0]).view(np.uint8)
        scale = 1.0 if name.endswith("codebook") or "embd" in name else _fan_in(name, shape) ** -0.5
        key = (shape[-1], scale, kind)
        if key not in self._rows:
            drawn = self._random.standard_normal((_POOL, shape[-1])).astype(np.float32) * scale
            self._rows[key] = encode(name, torch.from_numpy(drawn), kind).reshape(_POOL, -1)
        count = math.prod(shape[:-1])
        return self._rows[key][self._random.randint(_POOL, size=count)].reshape(-1)


def _vector(name: str, width: int) -> npt.NDArray[np.float32]:
    """Norms of 1, layer scales and frequencies small, and no bias."""
    if name.endswith("norm.weight"):
        return np.ones(width, np.float32)
    scaled = name.endswith((".gamma", "_scale"))
    return np.full(width, 0.1 if scaled else 0.0, np.float32)


def _fan_in(name: str, shape: tuple[int, ...]) -> float:
    """How many values are summed, counting a residual branch's more often to keep it quiet."""
    if "conv_t" in name or (".conv.weight" in name and "upsample" in name):
        return shape[0] * 2.0
    return math.prod(shape[1:]) * (10.0 if ".conv2." in name else 1.0)


__all__ = ["Size", "random_files"]
