"""From two files to a runner and its intake."""

from __future__ import annotations

import torch
from torch import nn

from engine.catalog import Catalog
from engine.codec.decoder import CodecDecoder
from engine.config import EngineConfig, ModelSpec
from engine.errors import InvalidRequest
from engine.gguf.tensors import TensorFile, load_module
from engine.models.code_predictor import CodePredictor
from engine.models.talker import Talker
from engine.tts.generator import Generator
from engine.tts.intake import Intake
from engine.tts.runner import Runner
from engine.tts.tokenizer import Tokenizer
from engine.tts.vocoder import Vocoder

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def resolve_device(config: EngineConfig) -> torch.device:
    """The device to run on; "auto" prefers CUDA, then MPS.

    Raises:
        InvalidRequest: the device asked for is not there.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if config.device == "auto":
        return torch.device(next(name for name, found in there.items() if found))
    if not there[config.device]:
        found = ", ".join(name for name, is_there in there.items() if is_there)
        raise InvalidRequest(
            f"device {config.device!r} is not available; available: auto, {found}", "device"
        )
    return torch.device(config.device)


def resolve_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """The weights' and activations' dtype; "auto" is BF16 on CUDA and F32 elsewhere."""
    if config.reference:
        return torch.float32
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[config.dtype]


def load_runner(spec: ModelSpec, config: EngineConfig) -> Runner:
    """Read the weights of a model and build its runner.

    Raises:
        ModelFileError: a tensor is missing or has another shape.
    """
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    with torch.device("meta"):
        talker, predictor = Talker(spec.talker), CodePredictor(spec.talker)
        decoder = CodecDecoder(spec.codec)
    parts: list[tuple[nn.Module, str]] = [(talker, "talker."), (predictor, "code_pred.")]
    with TensorFile(spec.talker_path) as file:
        for module, prefix in parts:
            load_module(module, file, prefix, device=device, dtype=dtype)
    with TensorFile(spec.codec_path) as file:
        load_module(decoder, file, "tok_dec.", device=device, dtype=dtype)
    for module in (talker, predictor, decoder):
        module.eval()
    generator = Generator(spec.talker, talker, predictor, config)
    return Runner(spec, generator, Vocoder(decoder, config), config)


def load_intake(spec: ModelSpec, catalog: Catalog, config: EngineConfig) -> Intake:
    """Read the tokenizer of a model and build its intake."""
    with TensorFile(spec.talker_path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, spec.talker.text_tokens)
    return Intake(spec, tokenizer, catalog, config)


__all__ = ["load_intake", "load_runner", "resolve_device", "resolve_dtype"]
