"""The one table from the official checkpoints' tensor names to those in a GGUF file.

Facts from qwentts.cpp's `convert.py`. In a row, `#` stands for a number, and `.weight` or `.bias`
follows unless the last word names a parameter itself; both are carried over. Codebooks are apart:
each is made of a sum and a usage count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

_Rows = dict[str, str]

_ATTENTION: _Rows = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_SWIGLU: _Rows = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HEAD_NORMS: _Rows = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_LAYER_SCALES: _Rows = {
    "self_attn_layer_scale.scale": "attn_scale",
    "mlp_layer_scale.scale": "ffn_scale",
}
_GELU_MLP: _Rows = {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def _under(source: str, target: str, rows: _Rows) -> _Rows:
    return {f"{source}.{old}": f"{target}.{new}" for old, new in rows.items()}


_TALKER: _Rows = {
    "talker.model.codec_embedding": "talker.codec_embd",
    "talker.model.text_embedding": "talker.text_embd",
    "talker.model.norm": "talker.output_norm",
    "talker.codec_head": "talker.codec_head",
    "talker.text_projection.linear_fc1": "talker.text_proj.fc1",
    "talker.text_projection.linear_fc2": "talker.text_proj.fc2",
    **_under("talker.model.layers.#", "talker.blk.#", _ATTENTION | _HEAD_NORMS | _SWIGLU),
    "talker.code_predictor.model.norm": "code_pred.output_norm",
    "talker.code_predictor.model.codec_embedding.#": "code_pred.codec_embd.#",
    "talker.code_predictor.lm_head.#": "code_pred.lm_head.#",
    "talker.code_predictor.small_to_mtp_projection": "code_pred.mtp_proj",
    **_under(
        "talker.code_predictor.model.layers.#",
        "code_pred.blk.#",
        _ATTENTION | _HEAD_NORMS | _SWIGLU,
    ),
    "speaker_encoder.blocks.0.conv": "spk_enc.conv0",
    "speaker_encoder.blocks.#.res2net_block.blocks.#.conv": "spk_enc.blk.#.res2net.#",
    "speaker_encoder.blocks.#.se_block.conv1": "spk_enc.blk.#.se.conv1",
    "speaker_encoder.blocks.#.se_block.conv2": "spk_enc.blk.#.se.conv2",
    "speaker_encoder.blocks.#.tdnn1.conv": "spk_enc.blk.#.tdnn1",
    "speaker_encoder.blocks.#.tdnn2.conv": "spk_enc.blk.#.tdnn2",
    "speaker_encoder.mfa.conv": "spk_enc.mfa",
    "speaker_encoder.asp.tdnn.conv": "spk_enc.asp.tdnn",
    "speaker_encoder.asp.conv": "spk_enc.asp.conv",
    "speaker_encoder.fc": "spk_enc.fc",
}

_RESIDUAL: _Rows = {
    "act1.alpha": "act1.alpha",
    "act1.beta": "act1.beta",
    "act2.alpha": "act2.alpha",
    "act2.beta": "act2.beta",
    "conv1.conv": "conv1",
    "conv2.conv": "conv2",
}

_CODEC: _Rows = {
    "decoder.pre_conv.conv": "tok_dec.pre_conv",
    "decoder.pre_transformer.input_proj": "tok_dec.pre_tfm.input_proj",
    "decoder.pre_transformer.output_proj": "tok_dec.pre_tfm.output_proj",
    "decoder.pre_transformer.norm": "tok_dec.pre_tfm.norm",
    **_under(
        "decoder.pre_transformer.layers.#",
        "tok_dec.pre_tfm.blk.#",
        _ATTENTION | _SWIGLU | _LAYER_SCALES,
    ),
    "decoder.upsample.#.0.conv": "tok_dec.upsample.#.conv",
    "decoder.upsample.#.1.dwconv.conv": "tok_dec.upsample.#.dwconv",
    "decoder.upsample.#.1.norm": "tok_dec.upsample.#.norm",
    "decoder.upsample.#.1.pwconv1": "tok_dec.upsample.#.pwconv1",
    "decoder.upsample.#.1.pwconv2": "tok_dec.upsample.#.pwconv2",
    "decoder.upsample.#.1.gamma": "tok_dec.upsample.#.gamma",
    # The chain's first and last convolution and the snake between keep their own numbers.
    "decoder.decoder.#.conv": "tok_dec.dec.#.conv",
    "decoder.decoder.#.alpha": "tok_dec.dec.#.snake.alpha",
    "decoder.decoder.#.beta": "tok_dec.dec.#.snake.beta",
    "decoder.decoder.#.block.0.alpha": "tok_dec.dec.#.snake.alpha",
    "decoder.decoder.#.block.0.beta": "tok_dec.dec.#.snake.beta",
    "decoder.decoder.#.block.1.conv": "tok_dec.dec.#.conv_t",
    **_under("decoder.decoder.#.block.2", "tok_dec.dec.#.res.0", _RESIDUAL),
    **_under("decoder.decoder.#.block.3", "tok_dec.dec.#.res.1", _RESIDUAL),
    **_under("decoder.decoder.#.block.4", "tok_dec.dec.#.res.2", _RESIDUAL),
    "decoder.quantizer.rvq_first.output_proj": "tok_dec.vq_first.output_proj",
    "decoder.quantizer.rvq_rest.output_proj": "tok_dec.vq_rest.output_proj",
    "encoder.encoder.layers.#.conv": "tok_enc.conv.#",
    "encoder.encoder.layers.#.block.#.conv": "tok_enc.res.#.blk.#",
    **_under(
        "encoder.encoder_transformer.layers.#",
        "tok_enc.blk.#",
        _ATTENTION | _GELU_MLP | _LAYER_SCALES,
    ),
    "encoder.downsample.conv": "tok_enc.downsample",
    **{
        f"encoder.quantizer.{side}_residual_vector_quantizer.{way}_proj": (
            f"tok_enc.vq_{side}.{way}_proj"
        )
        for side in ("semantic", "acoustic")
        for way in ("input", "output")
    },
}

_PARAMETERS = ("alpha", "beta", "gamma", "scale")

_CODEBOOK = re.compile(
    r"(?:decoder\.quantizer\.r(?P<vq>vq_first|vq_rest)\.vq"
    r"|encoder\.quantizer\.(?P<side>semantic|acoustic)_residual_vector_quantizer)"
    r"\.layers\.(?P<index>\d+)\._?codebook\."
    r"(?P<field>embedding_sum|embed_sum|cluster_usage|initialized)"
)
# Decoding never projects into a codebook.
_UNUSED = re.compile(r"decoder\.quantizer\.rvq_(?:first|rest)\.input_proj\.weight")

CodebookField = Literal["sum", "usage", "initialized"]
_FIELDS: dict[str, CodebookField] = {
    "embedding_sum": "sum",
    "embed_sum": "sum",
    "cluster_usage": "usage",
    "initialized": "initialized",
}


@dataclass(frozen=True, slots=True)
class CodebookName:
    """One stored part of a codebook; `target` is the fused tensor's name in the GGUF file."""

    target: str
    field: CodebookField
    index: int
    acoustic_encoder: bool  # of these a file keeps only as many as the decoder has


def talker_name(source: str) -> str | None:
    """The GGUF name of a talker checkpoint's tensor, None for one that is not known."""
    return _translate(source, _compiled("talker"))


def codec_name(source: str) -> str | None:
    """The GGUF name of a speech tokenizer's tensor, None for one that is not known."""
    return _translate(source, _compiled("codec"))


def codebook_name(source: str) -> CodebookName | None:
    """What a codebook tensor of the speech tokenizer belongs to, None for any other tensor."""
    match = _CODEBOOK.fullmatch(source)
    if match is None:
        return None
    index = int(match["index"])
    side = match["side"]
    kind = f"tok_enc.vq_{side}" if side else f"tok_dec.{match['vq']}"
    target = f"{kind}.{index}.codebook"
    return CodebookName(target, _FIELDS[match["field"]], index, side == "acoustic")


def is_unused(source: str) -> bool:
    """Whether a speech tokenizer's tensor has no place in a GGUF file."""
    return _UNUSED.fullmatch(source) is not None


@cache
def _compiled(table: Literal["talker", "codec"]) -> Mapping[re.Pattern[str], str]:
    return dict(_patterns(_TALKER if table == "talker" else _CODEC))


def _patterns(rows: _Rows) -> Iterator[tuple[re.Pattern[str], str]]:
    for source, target in rows.items():
        pattern, result = re.escape(source).replace(r"\#", r"(\d+)"), target.replace("#", "{}")
        if source.endswith(_PARAMETERS):
            yield re.compile(pattern), result
        else:
            yield re.compile(pattern + r"(\.weight|\.bias)"), result + "{}"


def _translate(source: str, table: Mapping[re.Pattern[str], str]) -> str | None:
    for pattern, target in table.items():
        if match := pattern.fullmatch(source):
            return target.format(*match.groups())
    return None


__all__ = ["CodebookName", "codebook_name", "codec_name", "is_unused", "talker_name"]
