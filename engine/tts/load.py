"""From two files to a runner and its intake."""

from __future__ import annotations

import logging
import math
import os
import time
from typing import TYPE_CHECKING

import torch

from engine.catalog import Catalog
from engine.codec.choice import Way, choose_way
from engine.codec.decoder import CodecDecoder, Decodes
from engine.codec.packed import Native, PackedDecoder, choose_dtype
from engine.config import EngineConfig, ModelSpec
from engine.errors import InvalidRequest
from engine.gguf.tensors import TensorFile, load_module
from engine.machine import usable_cores
from engine.models.code_predictor import CodePredictor
from engine.models.graphs import Calls, CudaGraphs, Recorder, SideStream
from engine.models.kernels import WHOLE_TYPES, Plan, choose
from engine.models.packing import load_packed
from engine.models.talker import Talker
from engine.native import usable
from engine.tts.captured import CapturedGenerator
from engine.tts.generator import Generator
from engine.tts.intake import Intake
from engine.tts.runner import Runner
from engine.tts.tokenizer import Tokenizer
from engine.tts.vocoder import Vocoder

if TYPE_CHECKING:
    from engine.native.team import Team

log = logging.getLogger("framecast.engine")

WORTH_COMPILING = 50_000_000  # quantised weights

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_CODEC_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


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


def uses_packed(config: EngineConfig, device: torch.device) -> bool:
    """Weights are kept packed: on CPUs, unless asked for otherwise."""
    asked = config.kernels == "auto" and config.dtype == "auto" and not config.reference
    return asked and device.type == "cpu"


def set_up_cuda() -> None:
    """Set the process up: no attention of cuDNN, which plans anew, for tenths of a second, whenever
    a shape is new to a thread; and F32 is to be F32."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.allow_tf32 = False


def captures(config: EngineConfig, device: torch.device) -> bool:
    """Frames are recorded whole: on CUDA, unless asked for otherwise.

    Raises:
        InvalidRequest: asked for on a device without F64.
    """
    asked = config.kernels == "captured"
    if asked and device.type == "mps":
        raise InvalidRequest("`kernels` captured runs on cuda and cpu, not on mps", "kernels")
    return asked or (device.type == "cuda" and config.kernels == "auto" and not config.reference)


def load_runner(spec: ModelSpec, config: EngineConfig) -> Runner:
    """Read the weights of a model and build its runner.

    Raises:
        ModelFileError: a tensor is missing or has another shape.
    """
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(usable_cores())
    if device.type == "cuda":
        set_up_cuda()
    plan, captured = None, captures(config, device)
    with torch.device("meta"):
        talker, predictor = Talker(spec.talker), CodePredictor(spec.talker)
    with TensorFile(spec.talker_path) as file:
        if uses_packed(config, device):
            plan = _plan(spec, config, file)
            load_packed(talker, predictor, spec.talker, file, plan)
        else:
            load_module(talker, file, "talker.", device=device, dtype=dtype)
            load_module(predictor, file, "code_pred.", device=device, dtype=dtype)
    for module in (talker, predictor):
        module.eval()
    decoder = _decoder(spec, config, device, dtype, plan)
    if captured:
        return _captured(spec, talker, predictor, decoder, config)
    generator = Generator(spec.talker, talker, predictor, config)
    return Runner(spec, generator, Vocoder(decoder, config), config)


def _captured(
    spec: ModelSpec,
    talker: Talker,
    predictor: CodePredictor,
    decoder: Decodes,
    config: EngineConfig,
) -> Runner:
    device = talker.device
    on_cuda = device.type == "cuda"
    recorder: Recorder = CudaGraphs(device) if on_cuda else Calls()
    generator = CapturedGenerator(spec.talker, talker, predictor, config, recorder)
    vocoder = Vocoder(decoder, config)
    if on_cuda:
        generator.aside = SideStream(device)
    start = time.perf_counter()
    generator.record()
    vocoder.record(recorder)
    log.info("%s: frames recorded in %.1f s", spec.name, time.perf_counter() - start)
    return Runner(spec, generator, vocoder, config)


def _types(file: TensorFile, prefix: str) -> set[str]:
    return {file.type_of(name) for name in file.shapes if name.startswith(prefix)}


def _plan(spec: ModelSpec, config: EngineConfig, file: TensorFile) -> Plan:
    widths = sorted({1, 2, max(1, config.slots // 2), config.slots})
    decoder = spec.talker.predictor  # whose weights are read most often
    plan = choose(decoder.hidden, 2 * decoder.ffn, widths, _team(file))
    log.info("%s: %s for quantised weights, %s for others", spec.name, plan.quantised, plan.whole)
    return plan


def _team(file: TensorFile) -> Team | None:
    """The threads of compiled kernels, for machines that can run them and models worth it: a small
    one is fast without, and would wait for the compiler when it is first loaded."""
    quantised = (name for name in file.shapes if file.type_of(name) not in WHOLE_TYPES)
    if sum(math.prod(file.shapes[name]) for name in quantised) < WORTH_COMPILING or not usable():
        return None
    try:
        from engine.native.team import Team  # noqa: PLC0415 - compiles at first

        return Team(torch.get_num_threads())
    except Exception as error:  # whatever a compiler may say: there are other kernels
        log.warning("compiled kernels are left out: %s", error)
        return None


def _decoder(
    spec: ModelSpec,
    config: EngineConfig,
    device: torch.device,
    dtype: torch.dtype,
    plan: Plan | None,
) -> Decodes:
    """The codec decoder as asked for, or as is fastest without being heard to be."""

    def read() -> CodecDecoder:
        with torch.device("meta"):
            decoder = CodecDecoder(spec.codec)
        with TensorFile(spec.codec_path) as file:
            load_module(decoder, file, "tok_dec.", device=device, dtype=torch.float32)
        return decoder.eval()

    asked = _CODEC_DTYPES.get(config.codec_dtype)
    if plan is None:
        wanted = [asked] if asked else [dtype, torch.float32]
        return choose_way(read, [_plain(each) for each in dict.fromkeys(wanted)])
    if asked:
        return choose_way(read, [_packed(asked, None)])
    with TensorFile(spec.codec_path) as file:
        native = plan.native(_types(file, "tok_dec."))
    fast = choose_dtype(spec.codec.decoder_dim // 4)
    pairs = [(fast, native), (torch.float32, native), (torch.float32, None)]
    return choose_way(read, [_packed(*pair) for pair in dict.fromkeys(pairs)])


def _plain(dtype: torch.dtype) -> Way:
    return Way(_named(dtype), lambda decoder: decoder.to(dtype))


def _packed(dtype: torch.dtype, native: Native | None) -> Way:
    heavy = ", its heaviest layers in int8" if native else ""
    name = f"{_named(dtype)} in packed kernels{heavy}"
    return Way(name, lambda decoder: PackedDecoder(decoder, dtype, native))


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def load_intake(spec: ModelSpec, catalog: Catalog, config: EngineConfig) -> Intake:
    """Read the tokenizer of a model and build its intake."""
    with TensorFile(spec.talker_path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, spec.talker.text_tokens)
    return Intake(spec, tokenizer, catalog, config)


__all__ = [
    "captures",
    "load_intake",
    "load_runner",
    "resolve_device",
    "resolve_dtype",
    "set_up_cuda",
]
