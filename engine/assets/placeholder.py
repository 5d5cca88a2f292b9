"""The placeholder voice: a tiny model pair with weights by recipe, not by training.

It makes sound, not words. It exists so that every part of Framecast can be run, tested and
measured before a trained voice is at hand, and it behaves like one where that matters: speakers
differ, longer texts take longer, every utterance ends by itself. See PLACEHOLDER.md for how.

The files have the layout of converted ones (qwentts.cpp's `convert.py`). All numbers come from
one seeded generator whose stream NumPy keeps stable, so the files are the same everywhere.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.gguf_writer import GGUFWriter
from tokenizers import pre_tokenizers

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

NOTICE = (
    "this is the placeholder voice: it makes sound, not words; for speech name real weights with"
    " `--talker TALKER.gguf --codec CODEC.gguf` (`framecast convert` makes them from a checkpoint)"
)
NAME = "framecast-placeholder"

SEED = 2026
CODES = 64
GROUPS = 16
HIDDEN = 64
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
FFN = 128
LAYERS = 2
LATENT, CHANNELS = 32, 64
CODEBOOK = 16
RATIOS, RATES = (2, 2), (8, 5, 4, 3)

# How fast the text is used up: 1.6 makes about 1.4 frames per text id.
PACE = 1.6
# How sharply the wish to end rises once the text is used up, and where it starts.
END_GAIN, END_LEVEL = 80.0, 4.0
# Measured: brings the codec's output to -20 dBFS.
LOUDNESS = 0.018

# Channels of the residual stream with a meaning; all others carry random content.
ONE, SPEAKER, COUNT, MEAN = 0, 1, 2, 3
FIRST_CONTENT = 4

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
FIRST_SPEAKER = 200
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


def build(folder: Path) -> tuple[Path, Path]:
    """Write `talker.gguf` and `codec.gguf` into `folder`, which must exist; returns both paths."""
    random = np.random.RandomState(SEED)
    talker, codec = folder / "talker.gguf", folder / "codec.gguf"
    _write_talker(talker, random)
    _write_codec(codec, random)
    return talker, codec


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


def _write(path: Path, architecture: str, metadata: dict[str, object], tensors: Tensors) -> None:
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        full = key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, list | tuple):
            writer.add_array(full, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_talker(path: Path, random: np.random.RandomState) -> None:
    tokens, merges = vocabulary()
    ids = {token: len(tokens) + index for index, token in enumerate(SPECIAL)}
    size = len(tokens) + len(SPECIAL)
    metadata: dict[str, object] = {
        "general.name": NAME,
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "model_size": "1b7",
        "model_type": "custom_voice",
        "num_code_groups": GROUPS,
        **_stack("talker", LAYERS, CODES + 1024),
        "talker.text_vocab_size": size,
        "talker.text_hidden_size": HIDDEN,
        "talker.position_id_per_seconds": 13,
        **_stack("code_pred", 1, CODES),
        **{f"codec.{name}_id": CODES + place for name, place in CONTROL.items()},
        "codec.language_names": list(LANGUAGES),
        "codec.language_ids": [CODES + place for place in LANGUAGES.values()],
        "codec.speaker_names": list(SPEAKERS),
        "codec.speaker_ids": list(_speaker_rows()),
        "codec.speaker_dialects": list(SPEAKERS.values()),
        "text.im_start_id": ids["<|im_start|>"],
        "text.im_end_id": ids["<|im_end|>"],
        "text.tts_pad_id": ids["<tts_pad>"],
        "text.tts_bos_id": ids["<tts_bos>"],
        "text.tts_eos_id": ids["<tts_eos>"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*tokens, *SPECIAL],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [4] * len(SPECIAL),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": ids["<|endoftext|>"],
    }
    tensors = _text_side(random, size, ids["<tts_pad>"]) | _talker(random) | _predictor(random)
    _write(path, "qwen3-tts", metadata, tensors)


def _speaker_rows() -> range:
    return range(CODES + FIRST_SPEAKER, CODES + FIRST_SPEAKER + len(SPEAKERS))


def _stack(part: str, layers: int, vocab: int) -> dict[str, object]:
    return {
        f"{part}.embedding_length": HIDDEN,
        f"{part}.feed_forward_length": FFN,
        f"{part}.block_count": layers,
        f"{part}.attention.head_count": HEADS,
        f"{part}.attention.head_count_kv": KV_HEADS,
        f"{part}.attention.key_length": HEAD_DIM,
        f"{part}.vocab_size": vocab,
        f"{part}.context_length": 32768,
        f"{part}.rope.freq_base": 1e6,
        f"{part}.attention.layer_norm_rms_epsilon": 1e-6,
    }


def _text_side(random: np.random.RandomState, vocab: int, tts_pad: int) -> Tensors:
    """Text id -> content and the constant ONE; tts_pad alone counts down."""
    embedding = _normal(random, vocab, HIDDEN)
    embedding[:, 0] = 0.0
    embedding[tts_pad, 0] = 6.0
    first = _normal(random, HIDDEN, HIDDEN) / np.sqrt(HIDDEN)
    first[:, 0] = first[0] = 0.0
    first[0, 0] = 1.0
    second = _content(_normal(random, HIDDEN, HIDDEN) / np.sqrt(HIDDEN))
    second[:, 0] = 0.0
    second[COUNT, 0] = -(1.0 + PACE) / 6.0
    bias = np.zeros(HIDDEN, np.float32)
    bias[ONE] = 1.0
    return {
        "talker.text_embd.weight": embedding,
        "talker.text_proj.fc1.weight": first,
        "talker.text_proj.fc1.bias": np.zeros(HIDDEN, np.float32),
        "talker.text_proj.fc2.weight": second,
        "talker.text_proj.fc2.bias": bias,
    }


def _talker(random: np.random.RandomState) -> Tensors:
    rows = CODES + 1024
    embedding = _content(_normal(random, rows, HIDDEN).T * 0.6).T
    # Text ids and frames count up by one, tts_pad down: control rows stand beside it and make
    # up for that. So the mean over all positions falls through zero when the text is used up.
    embedding[:CODES, COUNT] = 1.0
    embedding[CODES:, COUNT] = 1.0 + PACE
    embedding[CODES + CONTROL["pad"]] = 0.0
    embedding[CODES + CONTROL["pad"], COUNT] = 1.0
    embedding[_speaker_rows(), SPEAKER] = 1.0
    head = np.zeros((rows, HIDDEN), np.float32)
    head[:CODES, FIRST_CONTENT:] = _normal(random, CODES, HIDDEN - FIRST_CONTENT) * 0.5
    head[CODES + CONTROL["eos"], MEAN] = -END_GAIN
    head[CODES + CONTROL["eos"], ONE] = END_LEVEL
    tensors = {
        "talker.codec_embd.weight": embedding,
        "talker.codec_head.weight": head,
        "talker.output_norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(LAYERS):
        tensors |= _layer(random, f"talker.blk.{layer}")
    return tensors | _listening_layer(tensors, "talker.blk.0")


def _listening_layer(tensors: Tensors, name: str) -> Tensors:
    """Give two heads of a layer a task: head 0 finds the speaker, head 1 averages COUNT.

    Head 0 asks for the SPEAKER mark through the head channel that RoPE turns slowest, so it finds
    it at any distance. Head 1 asks nothing and so attends evenly.
    """
    last, slow = HEAD_DIM - 1, HEAD_DIM // 2 - 1
    query, key, value, output = (
        tensors[f"{name}.attn_{part}.weight"].copy() for part in ("q", "k", "v", "output")
    )
    query[: 2 * HEAD_DIM] = key[:HEAD_DIM] = 0.0
    query[slow, ONE] = key[slow, SPEAKER] = 1.0
    value[last] = 0.0
    value[last, COUNT] = 1.0
    output[:, :HEAD_DIM] *= 5.0
    output[:, last] = output[:, HEAD_DIM : 2 * HEAD_DIM] = 0.0
    output[MEAN, HEAD_DIM + last] = 1.0
    norm = np.ones(HEAD_DIM, np.float32)
    norm[slow] = 1.6
    return {
        f"{name}.attn_q.weight": query,
        f"{name}.attn_k.weight": key,
        f"{name}.attn_v.weight": value,
        f"{name}.attn_output.weight": output,
        f"{name}.attn_q_norm.weight": norm,
        f"{name}.attn_k_norm.weight": norm,
    }


def _predictor(random: np.random.RandomState) -> Tensors:
    tensors = _layer(random, "code_pred.blk.0")
    tensors["code_pred.output_norm.weight"] = np.ones(HIDDEN, np.float32)
    for index in range(GROUPS - 1):
        embedding = _content(_normal(random, CODES, HIDDEN).T * 0.15).T
        tensors[f"code_pred.codec_embd.{index}.weight"] = embedding
        tensors[f"code_pred.lm_head.{index}.weight"] = _normal(random, CODES, HIDDEN) * 0.35
    return tensors


def _layer(random: np.random.RandomState, name: str) -> Tensors:
    """A random decoder layer that reads all channels and writes content only."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Array:
        return _normal(random, rows, columns) * np.float32(scale / np.sqrt(columns))

    return {
        f"{name}.attn_norm.weight": np.ones(HIDDEN, np.float32),
        f"{name}.attn_q.weight": matrix(queries, HIDDEN),
        f"{name}.attn_k.weight": matrix(keys, HIDDEN),
        f"{name}.attn_v.weight": matrix(keys, HIDDEN),
        f"{name}.attn_q_norm.weight": np.ones(HEAD_DIM, np.float32),
        f"{name}.attn_k_norm.weight": np.ones(HEAD_DIM, np.float32),
        f"{name}.attn_output.weight": _content(matrix(HIDDEN, queries)),
        f"{name}.ffn_norm.weight": np.ones(HIDDEN, np.float32),
        f"{name}.ffn_gate.weight": matrix(FFN, HIDDEN),
        f"{name}.ffn_up.weight": matrix(FFN, HIDDEN),
        f"{name}.ffn_down.weight": _content(matrix(HIDDEN, FFN, 0.7)),
    }


def _write_codec(path: Path, random: np.random.RandomState) -> None:
    metadata: dict[str, object] = {
        "general.name": f"{NAME}-codec",
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
        "encoder_valid_num_quantizers": GROUPS,
        "decoder.latent_dim": LATENT,
        "decoder.codebook_dim": LATENT,
        "decoder.codebook_size": CODES,
        "decoder.decoder_dim": CHANNELS,
        "decoder.hidden_size": LATENT,
        "decoder.intermediate_size": 2 * LATENT,
        "decoder.head_dim": HEAD_DIM,
        "decoder.num_attention_heads": 2,
        "decoder.num_key_value_heads": 2,
        "decoder.num_hidden_layers": 1,
        "decoder.num_quantizers": GROUPS,
        "decoder.num_semantic_quantizers": 1,
        "decoder.rms_norm_eps": 1e-5,
        "decoder.rope_theta": 10000.0,
        "decoder.sliding_window": 72,
        "decoder.layer_scale_initial_scale": 0.01,
        "decoder.upsample_rates": list(RATES),
        "decoder.upsampling_ratios": list(RATIOS),
        "decoder.vector_quantization_hidden_dim": LATENT,
        "decoder.codebook_dim_internal": CODEBOOK,
    }
    tensors = _quantizers(random) | _codec_transformer(random)
    for stage in range(len(RATIOS)):
        tensors |= _hold(random, f"upsample.{stage}", RATIOS[stage])
    tensors |= _dac(random)
    named = {f"tok_dec.{name}": tensor for name, tensor in tensors.items()}
    _write(path, "qwen3-tts-tokenizer", metadata, named)


def _quantizers(random: np.random.RandomState) -> Tensors:
    books = {"vq_first.0.codebook": _normal(random, CODES, CODEBOOK)}
    for index in range(GROUPS - 1):
        books[f"vq_rest.{index}.codebook"] = _normal(random, CODES, CODEBOOK) * 0.2
    for side in ("vq_first", "vq_rest"):
        projection = _normal(random, LATENT, CODEBOOK, 1) / np.sqrt(CODEBOOK)
        books[f"{side}.output_proj.weight"] = projection
    return books


def _codec_transformer(random: np.random.RandomState) -> Tensors:
    def matrix(rows: int, columns: int) -> Array:
        return _normal(random, rows, columns) / np.float32(np.sqrt(columns))

    block = {
        f"pre_tfm.blk.0.{name}.weight": matrix(rows, columns)
        for name, rows, columns in (
            ("attn_q", LATENT, LATENT),
            ("attn_k", LATENT, LATENT),
            ("attn_v", LATENT, LATENT),
            ("attn_output", LATENT, LATENT),
            ("ffn_gate", 2 * LATENT, LATENT),
            ("ffn_up", 2 * LATENT, LATENT),
            ("ffn_down", LATENT, 2 * LATENT),
        )
    }
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "norm"):
        block[f"pre_tfm.{name}.weight"] = np.ones(LATENT, np.float32)
    for name in ("attn_scale", "ffn_scale"):
        block[f"pre_tfm.blk.0.{name}"] = np.full(LATENT, 0.3, np.float32)
    for name in ("input_proj", "output_proj"):
        block[f"pre_tfm.{name}.weight"] = np.eye(LATENT, dtype=np.float32)
        block[f"pre_tfm.{name}.bias"] = np.zeros(LATENT, np.float32)
    pre_conv = _normal(random, LATENT, LATENT, 3) / np.float32(np.sqrt(LATENT))
    pre_conv[:, :, :2] *= 0.3
    return block | _conv("pre_conv", pre_conv)


def _hold(random: np.random.RandomState, name: str, ratio: int) -> Tensors:
    """An upsampling that repeats each frame, with a little ConvNeXt beside it."""
    hold = np.repeat(np.eye(LATENT, dtype=np.float32)[:, :, None], ratio, axis=2)
    expand = _normal(random, 4 * LATENT, LATENT) / np.float32(np.sqrt(LATENT))
    shrink = _normal(random, LATENT, 4 * LATENT) / np.float32(np.sqrt(4 * LATENT))
    return {
        **_conv(f"{name}.conv", hold),
        **_conv(f"{name}.dwconv", _normal(random, LATENT, 1, 7) / np.float32(np.sqrt(7))),
        f"{name}.norm.weight": np.ones(LATENT, np.float32),
        f"{name}.norm.bias": np.zeros(LATENT, np.float32),
        **_conv(f"{name}.pwconv1", expand, len(expand)),
        **_conv(f"{name}.pwconv2", shrink),
        f"{name}.gamma": np.full(LATENT, 0.2, np.float32),
    }


def _dac(random: np.random.RandomState) -> Tensors:
    first = _normal(random, CHANNELS, LATENT, 7) / np.float32(np.sqrt(LATENT))
    first[:, :, :6] *= 0.2
    tensors = _conv("dec.0.conv", first)
    width = CHANNELS
    for stage, rate in enumerate(RATES, start=1):
        tensors |= _up_block(random, f"dec.{stage}", width, rate, smooth=stage > 2)
        width //= 2
    last = len(RATES) + 1
    tensors |= _snake(f"dec.{last}.snake", width)
    # Taps that sum to zero pass no constant, so the sound has no offset.
    taps = np.array([-1, -2, -1, 0, 1, 2, 1], np.float32)
    signs = np.resize(np.array([1, -1], np.float32), width)
    final = (signs[:, None] * taps * np.float32(LOUDNESS))[None]
    return tensors | _conv(f"dec.{last + 1}.conv", final)


def _up_block(
    random: np.random.RandomState, name: str, width: int, rate: int, smooth: bool
) -> Tensors:
    half = width // 2
    window = np.hanning(2 * rate + 2)[1:-1].astype(np.float32)
    taps = 1 if smooth else 2 * rate
    rise = _normal(random, width, half, taps) * window / np.float32(np.sqrt(width))
    tensors = _snake(f"{name}.snake", width) | _conv(f"{name}.conv_t", rise, half)
    for unit in range(3):
        inner = _normal(random, half, half, 7) / np.float32(np.sqrt(7 * half))
        outer = _normal(random, half, half, 1) * np.float32(0.2 / np.sqrt(half))
        tensors |= _snake(f"{name}.res.{unit}.act1", half)
        tensors |= _conv(f"{name}.res.{unit}.conv1", inner)
        tensors |= _snake(f"{name}.res.{unit}.act2", half)
        tensors |= _conv(f"{name}.res.{unit}.conv2", outer)
    return tensors


def _snake(name: str, width: int) -> Tensors:
    # A large beta keeps the layer near linear, so that codes and not offsets make the timbre.
    return {
        f"{name}.alpha": np.zeros(width, np.float32),
        f"{name}.beta": np.full(width, 1.5, np.float32),
    }


def _conv(name: str, weight: Array, outputs: int | None = None) -> Tensors:
    """A weight and its zero bias; `outputs` where it is not the first dimension."""
    bias = np.zeros(outputs or len(weight), np.float32)
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _normal(random: np.random.RandomState, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def _content(weight: Array) -> Array:
    """`weight` [hidden, ...] without outputs into the channels that have a meaning."""
    kept = weight.astype(np.float32)
    kept[:FIRST_CONTENT] = 0.0
    return kept


__all__ = ["NAME", "NOTICE", "build", "vocabulary"]
