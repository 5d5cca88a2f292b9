"""Tiny random checkpoints in the official layout, for every test that needs model files.

A `Case` names every width; `make_checkpoint` writes what the official package reads: the talker
(`model.safetensors`, whole or sharded), its configs and byte-level BPE vocabulary, and
`speech_tokenizer/` with decoder and encoder. Values come from one `RandomState` (a stream that
numpy keeps frozen) over the tensor names in sorted order, so a case is the same everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
DType = Literal["F32", "BF16"]

# Offsets into the reserved range; with a codebook of 2048 they are the published ids.
CONTROL = {
    "codec_pad_id": 100,
    "codec_bos_id": 101,
    "codec_eos_token_id": 102,
    "codec_think_id": 106,
    "codec_nothink_id": 107,
    "codec_think_bos_id": 108,
    "codec_think_eos_id": 109,
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
    "serena": 1018,
    "vivian": 1017,
    "uncle_fu": 962,
    "ryan": 1013,
    "aiden": 813,
    "ono_anna": 825,
    "sohee": 816,
    "eric": 827,
    "dylan": 830,
}
DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
# Each is merged left to right into one token; the earlier ones take the lower ranks.
MERGED_WORDS = (
    "user",
    "\n\n",
    " the",
    "ing",
    "er",
    " a",
    "on",
    "ll",
    "你好",
    "ü",
    "こ",
    "नम",
    "مر",
)


@dataclass(frozen=True)
class Stack:
    """Widths of a Qwen3-style decoder stack."""

    hidden: int = 64
    ffn: int = 96
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16


@dataclass(frozen=True)
class Codec:
    """Widths of the codec; a codebook vector has `codebook_dim // 2` values."""

    codebook_dim: int = 32
    latent_dim: int = 32
    decoder_dim: int = 32
    transformer: Stack = Stack(hidden=32, ffn=48, layers=2, heads=2, kv_heads=2, head_dim=16)
    window: int = 72
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[int, ...] = (2, 2)
    encoder_hidden: int = 32
    encoder_filters: int = 4
    encoder_layers: int = 2
    encoder_heads: int = 2
    encoder_ffn: int | None = None  # None: twice the hidden size
    encoder_ratios: tuple[int, ...] = (8, 6, 5, 4)
    encoder_extra_quantizers: int = 2  # in the file, but past `encoder_valid_num_quantizers`
    output_gain: float = 0.03

    @property
    def encoder_inner(self) -> int:
        return self.encoder_ffn or 2 * self.encoder_hidden

    @property
    def samples_per_frame(self) -> int:
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)


@dataclass(frozen=True)
class Case:
    """One tiny model. Equal talker and predictor widths mean no projection between them.

    `eos_gain` scales the eos row of the talker's head: 0 makes its logit 0, which a greedy run
    never picks; 1 makes eos as likely as any code. `single_token_role` merges "assistant".
    """

    name: str = "tiny"
    task: Literal["custom_voice", "voice_design", "base"] = "custom_voice"
    size: str = "1b7"
    talker: Stack = Stack()
    predictor: Stack = Stack(hidden=48, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=12)
    codec: Codec = Codec()
    code_groups: int = 4
    codebook_size: int = 64
    text_hidden: int = 48
    speaker_channels: int = 16
    speaker_inner: int = 8  # of attention, and of squeeze and excitation
    speakers: tuple[str, ...] = ("vivian", "ryan", "eric", "dylan")
    single_token_role: bool = True
    eos_gain: float = 0.0
    head_gain: float = 4.0
    seed: int = 0
    generation: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def vocab(self) -> int:
        return self.codebook_size + 1024

    @property
    def eos(self) -> int:
        return self.codebook_size + CONTROL["codec_eos_token_id"]


TINY = Case()


def make_checkpoint(
    case: Case, out: Path, *, dtype: DType = "F32", codec_dtype: DType = "F32", shards: int = 1
) -> Path:
    """Write the checkpoint of `case` under `out` and return `out`.

    `dtype` is the talker's; published codecs are F32. `shards` > 1 writes an index and that many
    files, as the hub does for large models.
    """
    speech = out / "speech_tokenizer"
    speech.mkdir(parents=True, exist_ok=True)
    tokens, merges = vocabulary(case)
    _write_tokenizer(out, tokens, merges)
    _write_json(out / "config.json", _talker_config(case, tokens))
    _write_json(out / "generation_config.json", _GENERATION | case.generation)
    _write_json(speech / "config.json", _codec_config(case))
    _write_json(speech / "preprocessor_config.json", _PREPROCESSOR)
    _write_weights(out, talker_weights(case, len(tokens)), dtype, shards)
    _write_weights(speech, codec_weights(case), codec_dtype, 1)
    return out


# Tensors: name -> (shape, how it is drawn). A number is a standard deviation.


def talker_weights(case: Case, tokens: int) -> dict[str, Array]:
    """Every tensor of the talker checkpoint; the text table has a few rows past the tokens."""
    plan: dict[str, _Plan] = {}
    hidden, text = case.talker.hidden, case.text_hidden
    plan["talker.model.codec_embedding.weight"] = ((case.vocab, hidden), 1.0)
    plan["talker.model.text_embedding.weight"] = ((tokens + 6, text), 1.0)
    plan["talker.codec_head.weight"] = ((case.vocab, hidden), case.head_gain / math.sqrt(hidden))
    plan |= _linear("talker.text_projection.linear_fc1", text, text, bias=True, gain=1.5)
    plan |= _linear("talker.text_projection.linear_fc2", hidden, text, bias=True, gain=1.5)
    plan |= _decoder_stack("talker.model", case.talker)
    plan |= _predictor(case)
    if case.task == "base":
        plan |= _speaker_encoder(case)
    weights = _draw(plan, case.seed)
    weights["talker.codec_head.weight"][case.eos] *= np.float32(case.eos_gain)
    return weights


def codec_weights(case: Case) -> dict[str, Array]:
    """Every tensor of `speech_tokenizer/`, decoder and encoder."""
    codec = case.codec
    plan = _codec_quantizer(case) | _codec_transformer(codec) | _codec_upsample(codec)
    plan |= _codec_wave(codec) | _encoder_convs(codec) | _encoder_rest(case)
    weights = _draw(plan, case.seed + 1_000_003)
    _scale_codebooks(weights)
    return weights


_Plan = tuple[tuple[int, ...], float | str]
_BIAS = 0.05


def _linear(
    name: str, out: int, into: int, *, bias: bool = False, gain: float = 1.0
) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {f"{name}.weight": ((out, into), gain / math.sqrt(into))}
    return plan | ({f"{name}.bias": ((out,), _BIAS)} if bias else {})


def _conv(
    name: str, shape: tuple[int, int, int], fan_in: int, *, bias: bool = True, gain: float = 1.0
) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {f"{name}.weight": (shape, gain / math.sqrt(fan_in))}
    width = shape[1] if ".block.1.conv" in name and "decoder." in name else shape[0]
    return plan | ({f"{name}.bias": ((width,), _BIAS)} if bias else {})


def _decoder_stack(prefix: str, stack: Stack) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {f"{prefix}.norm.weight": ((stack.hidden,), "norm")}
    for i in range(stack.layers):
        layer = f"{prefix}.layers.{i}"
        plan |= _attention(f"{layer}.self_attn", stack) | _swiglu(f"{layer}.mlp", stack)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plan[f"{layer}.{norm}.weight"] = ((stack.hidden,), "norm")
        for norm in ("q_norm", "k_norm"):
            plan[f"{layer}.self_attn.{norm}.weight"] = ((stack.head_dim,), "sharp_norm")
    return plan


def _attention(name: str, stack: Stack) -> dict[str, _Plan]:
    queries, keys = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
    plan = _linear(f"{name}.q_proj", queries, stack.hidden)
    plan |= _linear(f"{name}.k_proj", keys, stack.hidden)
    plan |= _linear(f"{name}.v_proj", keys, stack.hidden, gain=1.5)
    return plan | _linear(f"{name}.o_proj", stack.hidden, queries, gain=1.5)


def _swiglu(name: str, stack: Stack) -> dict[str, _Plan]:
    plan = _linear(f"{name}.gate_proj", stack.ffn, stack.hidden, gain=1.5)
    plan |= _linear(f"{name}.up_proj", stack.ffn, stack.hidden, gain=1.5)
    return plan | _linear(f"{name}.down_proj", stack.hidden, stack.ffn, gain=1.5)


def _predictor(case: Case) -> dict[str, _Plan]:
    prefix, stack = "talker.code_predictor", case.predictor
    plan = _decoder_stack(f"{prefix}.model", stack)
    for i in range(case.code_groups - 1):
        embedding = (case.codebook_size, case.talker.hidden)
        plan[f"{prefix}.model.codec_embedding.{i}.weight"] = (embedding, 1.0)
        plan |= _linear(
            f"{prefix}.lm_head.{i}", case.codebook_size, stack.hidden, gain=case.head_gain
        )
    if stack.hidden != case.talker.hidden:
        plan |= _linear(
            f"{prefix}.small_to_mtp_projection", stack.hidden, case.talker.hidden, bias=True
        )
    return plan


def _speaker_encoder(case: Case) -> dict[str, _Plan]:
    first, inner = case.speaker_channels, case.speaker_inner
    part, last = first // 8, 3 * first  # the last takes the three inner blocks side by side
    plan = _conv("speaker_encoder.blocks.0.conv", (first, 128, 5), 128 * 5, gain=0.3)
    for i in range(1, 4):
        name = f"speaker_encoder.blocks.{i}"
        plan |= _conv(f"{name}.tdnn1.conv", (first, first, 1), first)
        plan |= _conv(f"{name}.tdnn2.conv", (first, first, 1), first)
        plan |= _conv(f"{name}.se_block.conv1", (inner, first, 1), first)
        plan |= _conv(f"{name}.se_block.conv2", (first, inner, 1), inner)
        for j in range(7):
            plan |= _conv(f"{name}.res2net_block.blocks.{j}.conv", (part, part, 3), 3 * part)
    plan |= _conv("speaker_encoder.mfa.conv", (last, last, 1), last)
    plan |= _conv("speaker_encoder.asp.tdnn.conv", (inner, last * 3, 1), last * 3)
    plan |= _conv("speaker_encoder.asp.conv", (last, inner, 1), inner)
    return plan | _conv("speaker_encoder.fc", (case.talker.hidden, last * 2, 1), last * 2)


def _codec_quantizer(case: Case) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {}
    dim, width = case.codec.codebook_dim, case.codec.codebook_dim // 2
    for side, count in (("rvq_first", 1), ("rvq_rest", case.code_groups - 1)):
        name = f"decoder.quantizer.{side}"
        plan |= _conv(f"{name}.input_proj", (width, dim, 1), dim, bias=False)
        plan |= _conv(f"{name}.output_proj", (dim, width, 1), width, bias=False)
        for i in range(count):
            codebook = f"{name}.vq.layers.{i}._codebook"
            plan[f"{codebook}.cluster_usage"] = ((case.codebook_size,), "usage")
            plan[f"{codebook}.embedding_sum"] = ((case.codebook_size, width), 1.0)
    return plan


def _codec_transformer(codec: Codec) -> dict[str, _Plan]:
    stack, prefix = codec.transformer, "decoder.pre_transformer"
    plan = _conv(
        "decoder.pre_conv.conv", (codec.latent_dim, codec.codebook_dim, 3), codec.codebook_dim * 3
    )
    plan |= _linear(f"{prefix}.input_proj", stack.hidden, codec.latent_dim, bias=True)
    plan |= _linear(f"{prefix}.output_proj", codec.latent_dim, stack.hidden, bias=True)
    plan[f"{prefix}.norm.weight"] = ((stack.hidden,), "norm")
    for i in range(stack.layers):
        layer = f"{prefix}.layers.{i}"
        plan |= _attention(f"{layer}.self_attn", stack) | _swiglu(f"{layer}.mlp", stack)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plan[f"{layer}.{norm}.weight"] = ((stack.hidden,), "norm")
        for scale in ("self_attn_layer_scale", "mlp_layer_scale"):
            plan[f"{layer}.{scale}.scale"] = ((stack.hidden,), "layer_scale")
    return plan


def _codec_upsample(codec: Codec) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {}
    width = codec.latent_dim
    for i, ratio in enumerate(codec.upsampling_ratios):
        name = f"decoder.upsample.{i}"
        plan |= _conv(f"{name}.0.conv", (width, width, ratio), width)
        plan |= _conv(f"{name}.1.dwconv.conv", (width, 1, 7), 7)
        plan |= _linear(f"{name}.1.pwconv1", 4 * width, width, bias=True)
        plan |= _linear(f"{name}.1.pwconv2", width, 4 * width, bias=True)
        plan[f"{name}.1.norm.weight"] = ((width,), "norm")
        plan[f"{name}.1.norm.bias"] = ((width,), _BIAS)
        plan[f"{name}.1.gamma"] = ((width,), "layer_scale")
    return plan


def _codec_wave(codec: Codec) -> dict[str, _Plan]:
    width = codec.decoder_dim
    plan = _conv("decoder.decoder.0.conv", (width, codec.latent_dim, 7), codec.latent_dim * 7)
    for i, rate in enumerate(codec.upsample_rates):
        block, out = f"decoder.decoder.{i + 1}.block", width // 2
        plan |= _snake(f"{block}.0", width)
        # Two taps of the transposed kernel meet in every output sample.
        plan |= _conv(f"{block}.1.conv", (width, out, 2 * rate), width * 2)
        for j in range(2, 5):
            plan |= _snake(f"{block}.{j}.act1", out) | _snake(f"{block}.{j}.act2", out)
            plan |= _conv(f"{block}.{j}.conv1.conv", (out, out, 7), out * 7, gain=0.7)
            plan |= _conv(f"{block}.{j}.conv2.conv", (out, out, 1), out, gain=0.7)
        width = out
    last = len(codec.upsample_rates) + 1
    plan |= _snake(f"decoder.decoder.{last}", width)
    final = _conv(
        f"decoder.decoder.{last + 1}.conv", (1, width, 7), width * 7, gain=codec.output_gain
    )
    return plan | final


def _snake(name: str, width: int) -> dict[str, _Plan]:
    return {f"{name}.alpha": ((width,), 0.3), f"{name}.beta": ((width,), 0.3)}


def _encoder_convs(codec: Codec) -> dict[str, _Plan]:
    width, index = codec.encoder_filters, 1
    plan = _conv("encoder.encoder.layers.0.conv", (width, 1, 7), 7)
    for ratio in reversed(codec.encoder_ratios):
        name = f"encoder.encoder.layers.{index}.block"
        plan |= _conv(f"{name}.1.conv", (width // 2, width, 3), width * 3)
        plan |= _conv(f"{name}.3.conv", (width, width // 2, 1), width // 2)
        down = f"encoder.encoder.layers.{index + 2}.conv"
        plan |= _conv(down, (2 * width, width, 2 * ratio), width * 2 * ratio)
        width, index = 2 * width, index + 3
    last = f"encoder.encoder.layers.{index + 1}.conv"
    return plan | _conv(last, (codec.encoder_hidden, width, 3), width * 3)


def _encoder_rest(case: Case) -> dict[str, _Plan]:
    hidden = case.codec.encoder_hidden
    plan = _conv("encoder.downsample.conv", (hidden, hidden, 4), hidden * 4, bias=False)
    inner = case.codec.encoder_inner
    for i in range(case.codec.encoder_layers):
        layer = f"encoder.encoder_transformer.layers.{i}"
        for projection in "qkvo":
            plan |= _linear(f"{layer}.self_attn.{projection}_proj", hidden, hidden)
        plan |= _linear(f"{layer}.mlp.fc1", inner, hidden)
        plan |= _linear(f"{layer}.mlp.fc2", hidden, inner)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plan[f"{layer}.{norm}.weight"] = ((hidden,), "norm")
            plan[f"{layer}.{norm}.bias"] = ((hidden,), _BIAS)
        for scale in ("self_attn_layer_scale", "mlp_layer_scale"):
            plan[f"{layer}.{scale}.scale"] = ((hidden,), "layer_scale")
    return plan | _encoder_quantizer(case)


def _encoder_quantizer(case: Case) -> dict[str, _Plan]:
    plan: dict[str, _Plan] = {}
    hidden, width = case.codec.encoder_hidden, case.codec.codebook_dim // 2
    acoustic = case.code_groups - 1 + case.codec.encoder_extra_quantizers
    for side, count in (("semantic", 1), ("acoustic", acoustic)):
        name = f"encoder.quantizer.{side}_residual_vector_quantizer"
        plan |= _conv(f"{name}.input_proj", (width, hidden, 1), hidden, bias=False)
        plan |= _conv(f"{name}.output_proj", (hidden, width, 1), width, bias=False)
        for i in range(count):
            codebook = f"{name}.layers.{i}.codebook"
            plan[f"{codebook}.cluster_usage"] = ((case.codebook_size,), "usage")
            plan[f"{codebook}.embed_sum"] = ((case.codebook_size, width), 1.0)
            plan[f"{codebook}.initialized"] = ((1,), "ones")
    return plan


def _draw(plan: dict[str, _Plan], seed: int) -> dict[str, Array]:
    random = np.random.RandomState(seed)
    return {name: _values(random, *plan[name]) for name in sorted(plan)}


def _values(random: np.random.RandomState, shape: tuple[int, ...], how: float | str) -> Array:
    noise = random.standard_normal(shape)
    if isinstance(how, float):
        return (noise * how).astype(np.float32)
    drawn = {
        "norm": 1.0 + 0.1 * noise,
        "sharp_norm": 1.5 + 0.1 * noise,
        "layer_scale": 0.3 + 0.1 * noise,
        "usage": np.exp(noise),
        "ones": np.ones(shape),
    }
    return drawn[how].astype(np.float32)


def _scale_codebooks(weights: dict[str, Array]) -> None:
    # Sums are stored, so a vector is sum / usage; the last entry of each codebook was never used.
    for name, usage in weights.items():
        if not name.endswith(".cluster_usage"):
            continue
        total = "embed_sum" if name.startswith("encoder.") else "embedding_sum"
        weights[name.replace("cluster_usage", total)] *= usage[:, None]
        usage[-1] = 0.0
        weights[name.replace("cluster_usage", total)][-1] = 0.0


# Vocabulary


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes, by byte value."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in keep else chr(next(spare)) for byte in range(256)]


def vocabulary(case: Case) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens by id (bytes, merged words, then `SPECIAL_TOKENS`) and the merges by rank."""
    words = (("assistant",) if case.single_token_role else ()) + MERGED_WORDS
    symbols = byte_symbols()
    tokens, merges = list(symbols), []
    for word in words:
        for left, right in _fold([symbols[byte] for byte in word.encode()]):
            if left + right not in tokens:
                merges.append((left, right))
                tokens.append(left + right)
    return [*tokens, *SPECIAL_TOKENS], merges


def _fold(symbols: list[str]) -> Iterator[tuple[str, str]]:
    left = symbols[0]
    for right in symbols[1:]:
        yield left, right
        left += right


def _write_tokenizer(out: Path, tokens: list[str], merges: list[tuple[str, str]]) -> None:
    first_special = len(tokens) - len(SPECIAL_TOKENS)
    _write_json(out / "vocab.json", {token: i for i, token in enumerate(tokens[:first_special])})
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (out / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    added = {
        str(first_special + i): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for i, token in enumerate(SPECIAL_TOKENS)
    }
    _write_json(out / "tokenizer_config.json", _TOKENIZER | {"added_tokens_decoder": added})


# Configs


_TOKENIZER: dict[str, Any] = {
    "add_prefix_space": False,
    "bos_token": None,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 131072,
    "pad_token": "<|endoftext|>",
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}
_GENERATION: dict[str, Any] = {
    "do_sample": True,
    "max_new_tokens": 2048,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
}
_PREPROCESSOR: dict[str, Any] = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24000,
}


def _talker_config(case: Case, tokens: list[str]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": case.size,
        "tts_model_type": case.task,
        "im_start_token_id": tokens.index("<|im_start|>"),
        "im_end_token_id": tokens.index("<|im_end|>"),
        "tts_pad_token_id": tokens.index("<tts_pad>"),
        "tts_bos_token_id": tokens.index("<tts_text_bos>"),
        "tts_eos_token_id": tokens.index("<tts_text_eod>"),
        # Written for every task, as published: only the tensors say whether there is an encoder.
        "speaker_encoder_config": _speaker_encoder_config(case),
        "talker_config": _talker_section(case, len(tokens)),
    }


def _speaker_encoder_config(case: Case) -> dict[str, Any]:
    first = case.speaker_channels
    return {
        "enc_dim": case.talker.hidden,
        "sample_rate": 24000,
        "enc_channels": [first, first, first, first, 3 * first],
        "enc_attention_channels": case.speaker_inner,
        "enc_se_channels": case.speaker_inner,
    }


def _talker_section(case: Case, tokens: int) -> dict[str, Any]:
    named = case.speakers if case.task == "custom_voice" else ()
    half = case.talker.head_dim // 2
    quarter = half // 4
    return _stack_config(case.talker) | {
        "model_type": "qwen3_tts_talker",
        "code_predictor_config": _predictor_section(case),
        "codec_language_id": _reserved(case, LANGUAGES),
        "spk_id": _reserved(case, {name: SPEAKERS[name] for name in named}),
        "spk_is_dialect": {name: DIALECTS.get(name, False) for name in named},
        "num_code_groups": case.code_groups,
        "position_id_per_seconds": 13,
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": [half - 2 * quarter, quarter, quarter],
            "rope_type": "default",
            "type": "default",
        },
        "text_hidden_size": case.text_hidden,
        "text_vocab_size": tokens + 6,
        "vocab_size": case.vocab,
        **_reserved(case, CONTROL),
    }


def _predictor_section(case: Case) -> dict[str, Any]:
    return _stack_config(case.predictor) | {
        "model_type": "qwen3_tts_talker_code_predictor",
        "num_code_groups": case.code_groups,
        "vocab_size": case.codebook_size,
    }


def _stack_config(stack: Stack) -> dict[str, Any]:
    return {
        "attention_bias": False,
        "head_dim": stack.head_dim,
        "hidden_act": "silu",
        "hidden_size": stack.hidden,
        "intermediate_size": stack.ffn,
        "max_position_embeddings": 32768,
        "num_attention_heads": stack.heads,
        "num_hidden_layers": stack.layers,
        "num_key_value_heads": stack.kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000,
        "use_sliding_window": False,
    }


def _reserved(case: Case, offsets: dict[str, int]) -> dict[str, int]:
    return {name: case.codebook_size + offset for name, offset in offsets.items()}


def _codec_config(case: Case) -> dict[str, Any]:
    per_frame = case.codec.samples_per_frame
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": per_frame,
        "encode_downsample_rate": 2 * math.prod(case.codec.encoder_ratios),
        "encoder_valid_num_quantizers": case.code_groups,
        "decoder_config": _codec_decoder_section(case),
        "encoder_config": _codec_encoder_section(case),
    }


def _codec_decoder_section(case: Case) -> dict[str, Any]:
    codec, stack = case.codec, case.codec.transformer
    return _stack_config(stack) | {
        "codebook_dim": codec.codebook_dim,
        "codebook_size": case.codebook_size,
        "decoder_dim": codec.decoder_dim,
        "latent_dim": codec.latent_dim,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "num_quantizers": case.code_groups,
        "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000,
        "semantic_codebook_size": case.codebook_size,
        "sliding_window": codec.window,
        "upsample_rates": list(codec.upsample_rates),
        "upsampling_ratios": list(codec.upsampling_ratios),
        "vector_quantization_hidden_dimension": codec.codebook_dim,
    }


def _codec_encoder_section(case: Case) -> dict[str, Any]:
    codec, hidden = case.codec, case.codec.encoder_hidden
    return {
        "model_type": "mimi",
        "codebook_dim": codec.codebook_dim // 2,
        "codebook_size": case.codebook_size,
        "compress": 2,
        "dilation_growth_rate": 2,
        "frame_rate": 12.5,
        "head_dim": hidden // codec.encoder_heads,
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": codec.encoder_inner,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "norm_eps": 1e-05,
        "num_attention_heads": codec.encoder_heads,
        "num_filters": codec.encoder_filters,
        "num_hidden_layers": codec.encoder_layers,
        "num_key_value_heads": codec.encoder_heads,
        "num_quantizers": case.code_groups + codec.encoder_extra_quantizers,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "residual_kernel_size": 3,
        "rope_theta": 10000.0,
        "sampling_rate": 24000,
        "sliding_window": 250,
        "upsample_groups": hidden,
        "upsampling_ratios": list(codec.encoder_ratios),
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "vector_quantization_hidden_dimension": codec.codebook_dim // 2,
    }


# Files


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _write_weights(out: Path, weights: dict[str, Array], dtype: DType, shards: int) -> None:
    if shards == 1:
        _write_safetensors(out / "model.safetensors", weights, dtype)
        return
    names, where = sorted(weights), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: weights[name] for name in names[shard::shards]}
        _write_safetensors(out / file, part, dtype)
        where |= dict.fromkeys(part, file)
    size = sum(array.size for array in weights.values()) * (4 if dtype == "F32" else 2)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    _write_json(out / "model.safetensors.index.json", index)


def _write_safetensors(path: Path, weights: dict[str, Array], dtype: DType) -> None:
    # By hand: numpy has no bfloat16, and the package's writer changed its signature.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs, end = [], 0
    for name, array in weights.items():
        blobs.append(array.astype("<f4").tobytes() if dtype == "F32" else to_bf16(array))
        start, end = end, end + len(blobs[-1])
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(blobs))


def to_bf16(array: Array) -> bytes:
    """The values rounded to the nearest bfloat16, ties to even, as little-endian bytes."""
    bits = array.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


__all__ = ["SPECIAL_TOKENS", "TINY", "Case", "Codec", "Stack", "make_checkpoint", "vocabulary"]
