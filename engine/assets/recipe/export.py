"""Step 6, export: the official checkpoint layout, then the two GGUF files.

The codec has no encoder: nothing in a named-speaker model listens, and its codes are read off the
teacher's timing, not off sound. The layout's encoder section is written with small widths and no
tensors, which the converter accepts and the official package fills at random, unused.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from codec import Voice
from safetensors.torch import save_file
from talker import Model
from torch import Tensor
from vocabulary import MARKERS, load

from engine import convert_checkpoint
from engine.config import CodecSpec, DecoderSpec, ModelFiles, TalkerSpec
from engine.gguf import names

GENERATION = {
    "do_sample": True,
    "max_new_tokens": 2048,
    "repetition_penalty": 1.0,
    "temperature": 0.4,
    "top_k": 20,
    "top_p": 1.0,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.2,
    "subtalker_top_k": 20,
    "subtalker_top_p": 1.0,
}
NAME = "framecast-voice"


def official(name: str, rows: dict[str, str]) -> list[str]:
    """The checkpoint names a GGUF name may come from."""
    found = []
    for source, target in rows.items():
        pattern = re.escape(target).replace(r"\#", r"(\d+)") + r"((?:\.weight|\.bias)?)"
        if match := re.fullmatch(pattern, name):
            *numbers, suffix = match.groups()
            found.append(source.replace("#", "{}").format(*numbers) + suffix)
    return found


def talker_tensors(model: Model) -> dict[str, Tensor]:
    parts = {"talker": model.talker, "code_pred": model.predictor}
    out = {}
    for prefix, part in parts.items():
        for name, value in part.state_dict().items():
            (source,) = official(f"{prefix}.{name}", names._TALKER)
            out[source] = value.contiguous()
    return out


def codec_tensors(voice: Voice) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    final = f".{len(voice.decoder.spec.upsample_rates) + 1}."
    for name, value in voice.decoder.state_dict().items():
        if match := re.fullmatch(r"(vq_\w+)\.(\d+)\.codebook", name):
            book = f"decoder.quantizer.r{match[1]}.vq.layers.{match[2]}._codebook"
            out[f"{book}.embedding_sum"] = value.contiguous()
            out[f"{book}.cluster_usage"] = torch.ones(len(value))
            continue
        sources = official(f"tok_dec.{name}", names._CODEC)
        # The last activation stands alone, those before belong to a block.
        wanted = [s for s in sources if len(sources) == 1 or (".block." in s) != (final in s)]
        out[wanted[0]] = value.contiguous()
    return out


def _stack(spec: DecoderSpec) -> dict[str, Any]:
    return {
        "attention_bias": False,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "hidden_size": spec.hidden,
        "intermediate_size": spec.ffn,
        "max_position_embeddings": spec.context,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_theta,
        "use_sliding_window": False,
    }


def talker_config(spec: TalkerSpec) -> dict[str, Any]:
    half = spec.talker.head_dim // 2
    quarter = half // 4
    control = {f"codec_{k}_id": getattr(spec.codec_tokens, k) for k in spec.codec_tokens.__slots__}
    control["codec_eos_token_id"] = control.pop("codec_eos_id")
    predictor = {
        "model_type": "qwen3_tts_talker_code_predictor",
        "num_code_groups": spec.code_groups,
        "vocab_size": spec.predictor_vocab,
    }
    section = (
        _stack(spec.talker)
        | control
        | {
            "model_type": "qwen3_tts_talker",
            "code_predictor_config": _stack(spec.predictor) | predictor,
            "codec_language_id": dict(spec.languages),
            "spk_id": {s.name: s.id for s in spec.speakers},
            "spk_is_dialect": {s.name: False for s in spec.speakers},
            "num_code_groups": spec.code_groups,
            "position_id_per_seconds": 13,
            "rope_scaling": {
                "interleaved": True,
                "mrope_section": [half - 2 * quarter, quarter, quarter],
                "rope_type": "default",
                "type": "default",
            },
            "text_hidden_size": spec.text_hidden,
            "text_vocab_size": spec.text_vocab,
            "vocab_size": spec.vocab,
        }
    )
    text = spec.text_tokens
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": spec.size,
        "tts_model_type": spec.task,
        **{f"{name}_token_id": getattr(text, name) for name in text.__slots__},
        "talker_config": section,
    }


def codec_config(spec: CodecSpec) -> dict[str, Any]:
    shared = {
        "codebook_size": spec.codebook_size,
        "num_semantic_quantizers": spec.semantic_quantizers,
        "layer_scale_initial_scale": 0.01,
    }
    decoder = (
        _stack(spec.transformer)
        | shared
        | {
            "codebook_dim": spec.codebook_dim,
            "decoder_dim": spec.decoder_dim,
            "latent_dim": spec.latent_dim,
            "max_position_embeddings": 8000,
            "num_quantizers": spec.quantizers,
            "semantic_codebook_size": spec.codebook_size,
            "sliding_window": spec.window,
            "upsample_rates": list(spec.upsample_rates),
            "upsampling_ratios": list(spec.upsampling_ratios),
            "vector_quantization_hidden_dimension": spec.codebook_dim,
        }
    )
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "input_sample_rate": spec.sample_rate,
        "output_sample_rate": spec.sample_rate,
        "decode_upsample_rate": spec.samples_per_frame,
        "encode_downsample_rate": spec.samples_per_frame,
        "encoder_valid_num_quantizers": spec.quantizers,
        "decoder_config": decoder,
        # The official class insists on a power of two, for the encoder that is not there too.
        "encoder_config": _encoder(spec) | shared | {"codebook_size": 1024},
    }


def _encoder(spec: CodecSpec) -> dict[str, Any]:
    width = 32
    return {
        "model_type": "mimi",
        "codebook_dim": spec.codebook_width,
        "compress": 2,
        "dilation_growth_rate": 2,
        "frame_rate": spec.frame_rate,
        "head_dim": 16,
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "max_position_embeddings": 8000,
        "norm_eps": 1e-5,
        "num_attention_heads": 2,
        "num_filters": 4,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "num_quantizers": spec.quantizers,
        "num_residual_layers": 1,
        "residual_kernel_size": 3,
        "rope_theta": 10000.0,
        "sampling_rate": spec.sample_rate,
        "sliding_window": 250,
        "upsample_groups": width,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "vector_quantization_hidden_dimension": spec.codebook_width,
    }


def tokenizer_config(first: int) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {
        str(first + i): {"content": marker, "special": True, **flags}
        for i, marker in enumerate(MARKERS)
    }
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
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


def checkpoint(work: Path) -> Path:
    """Write the official layout to `checkpoint/`."""
    out = work / "checkpoint"
    speech = out / "speech_tokenizer"
    speech.mkdir(parents=True, exist_ok=True)
    _, spec = load(work)
    model, voice = Model(spec), Voice()
    model.load_state_dict(torch.load(work / "talker.pt")["model"], strict=False)
    voice.load_state_dict(torch.load(work / "codec.pt")["voice"])
    voice.finished()
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(work / "vocabulary" / name, out / name)
    files = {
        out / "config.json": talker_config(spec),
        out / "generation_config.json": GENERATION,
        out / "tokenizer_config.json": tokenizer_config(spec.text_tokens.im_start - 1),
        speech / "config.json": codec_config(voice.decoder.spec),
        speech / "preprocessor_config.json": {
            "feature_extractor_type": "EncodecFeatureExtractor",
            "feature_size": 1,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
            "sampling_rate": 24000,
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    save_file(talker_tensors(model), str(out / "model.safetensors"), {"format": "pt"})
    save_file(codec_tensors(voice), str(speech / "model.safetensors"), {"format": "pt"})
    return out


def export(work: Path, kind: str) -> ModelFiles:
    return convert_checkpoint(checkpoint(work), work / "gguf", kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--type", default="q8_0")
    args = parser.parse_args()
    files = export(args.work, args.type)
    for path in (files.talker, files.codec):
        print(path, f"{path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
