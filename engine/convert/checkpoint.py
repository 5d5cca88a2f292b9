"""The official safetensors checkpoint turned into a talker and a codec GGUF file.

The layout is qwentts.cpp's (`convert.py`), so the files load in both. Tensors pass through
memory one at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGML_QUANT_VERSION, GGMLQuantizationType
from gguf.gguf_writer import GGUFWriter

from engine.config import ModelFiles
from engine.convert.metadata import (
    codec_writer,
    kept_acoustic_codebooks,
    talker_writer,
)
from engine.convert.quantize import encode, parse_type, stored_size, tensor_type
from engine.convert.weights import Weights
from engine.errors import ModelFileError
from engine.gguf.names import codebook_name, codec_name, is_unused, talker_name

# As in the official codebook: an entry that was never used must not divide by zero.
_SMALLEST_USAGE = 1e-5

Progress = Callable[[str, int, int], None]
_Load = Callable[[], torch.Tensor]


def convert_checkpoint(
    checkpoint_dir: Path,
    out_dir: Path,
    type: str = "q8_0",  # noqa: A002 - the command line's name
    *,
    progress: Progress | None = None,
) -> ModelFiles:
    """Convert a checkpoint directory to `talker.gguf` and `codec.gguf` in `out_dir`.

    Args:
        checkpoint_dir: the official layout: a talker's `config.json`, weights (one file or
            shards with their index) and vocabulary, and its codec under `speech_tokenizer/`.
        out_dir: made if needed; the files appear in it only when both are complete.
        type: `f32`, `bf16`, `f16`, `q8_0`, `q5_0` or `q4_0`; some tensors keep a finer type.
        progress: called after each tensor with its name, the tensors done and their total.

    Raises:
        InvalidRequest: an unknown `type`.
        ModelFileError: a file is missing, damaged or not what it must be, a tensor is unknown or
            missing its other half, or the output cannot be written.
    """
    wanted = parse_type(type)
    speech = checkpoint_dir / "speech_tokenizer"
    for directory in (checkpoint_dir, speech):
        if not directory.is_dir():
            raise ModelFileError(f"`{directory}` is not a directory")
    talker_metadata, codec_metadata = talker_writer(checkpoint_dir), codec_writer(speech)
    with Weights(checkpoint_dir) as talker, Weights(speech) as codec:
        kept = kept_acoustic_codebooks(speech)
        files = [
            _File(out_dir / "talker.gguf", talker_metadata, _talker_plan(talker)),
            _File(out_dir / "codec.gguf", codec_metadata, _codec_plan(codec, kept)),
        ]
        _make_directory(out_dir)
        _write_all(files, wanted, progress)
    return ModelFiles(talker=files[0].path, codec=files[1].path)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A tensor to be written: its GGUF name, row-major shape and how to get its values."""

    name: str
    shape: tuple[int, ...]
    load: _Load


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    writer: GGUFWriter
    tensors: list[_Planned]

    @property
    def partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")


def _talker_plan(weights: Weights) -> list[_Planned]:
    return [_plain(weights, source, talker_name(source)) for source in weights.names]


def _codec_plan(weights: Weights, kept: int) -> list[_Planned]:
    names = [name for name in weights.names if not is_unused(name)]
    plain = [name for name in names if codebook_name(name) is None]
    tensors = [_plain(weights, source, codec_name(source)) for source in plain]
    return tensors + _codebooks(weights, kept)


def _plain(weights: Weights, source: str, name: str | None) -> _Planned:
    if name is None:
        raise ModelFileError(f"`{weights.directory}`: unknown tensor `{source}`")
    return _Planned(name, weights.shape(source), lambda: weights.tensor(source))


def _codebooks(weights: Weights, kept: int) -> list[_Planned]:
    parts: dict[str, dict[str, str]] = {}
    for source in weights.names:
        book = codebook_name(source)
        if book is None or (book.acoustic_encoder and book.index >= kept):
            continue
        parts.setdefault(book.target, {})[book.field] = source
    return [_codebook(weights, target, sources) for target, sources in sorted(parts.items())]


def _codebook(weights: Weights, target: str, sources: dict[str, str]) -> _Planned:
    if "sum" not in sources or "usage" not in sources:
        found = next(iter(sources.values()))
        raise ModelFileError(
            f"`{weights.directory}`: the codebook that `{found}` is part of needs both its"
            " embedding sum and its cluster usage"
        )
    shape, usage_shape = weights.shape(sources["sum"]), weights.shape(sources["usage"])
    if len(shape) != 2 or usage_shape != shape[:1]:
        raise ModelFileError(
            f"`{weights.directory}`: `{sources['sum']}` is {list(shape)} and its cluster usage"
            f" {list(usage_shape)}; they must be [entries, width] and [entries]"
        )

    def load() -> torch.Tensor:
        usage = weights.tensor(sources["usage"]).float().clamp(min=_SMALLEST_USAGE)
        return weights.tensor(sources["sum"]).float() / usage[:, None]

    return _Planned(target, shape, load)


def _write_all(files: list[_File], wanted: GGMLQuantizationType, progress: Progress | None) -> None:
    total, done = sum(len(file.tensors) for file in files), 0
    try:
        for file in files:
            with contextlib.closing(_write(file, wanted)) as written:
                for name in written:
                    done += 1
                    if progress is not None:
                        progress(name, done, total)
        for file in files:
            file.partial.replace(file.path)
    except OSError as error:
        raise _unwritable(error, files[0].path.parent) from None
    finally:
        for file in files:
            file.partial.unlink(missing_ok=True)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(error, path) from None


def _unwritable(error: OSError, path: Path) -> ModelFileError:
    return ModelFileError(f"cannot write `{error.filename or path}`: {error.strerror or error}")


def _write(file: _File, wanted: GGMLQuantizationType) -> Generator[str, None, None]:
    """Write one file under its partial name, yielding each tensor's name once it is written."""
    types = [tensor_type(tensor.name, tensor.shape, wanted) for tensor in file.tensors]
    writer = file.writer
    if any(GGML_QUANT_SIZES[kind][0] > 1 for kind in types):
        writer.add_quantization_version(GGML_QUANT_VERSION)
    for tensor, kind in zip(file.tensors, types, strict=True):
        size = stored_size(tensor.shape, kind)
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size, kind)
    try:
        writer.write_header_to_file(file.partial)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, kind in zip(file.tensors, types, strict=True):
            writer.write_tensor_data(encode(tensor.name, tensor.load(), kind))
            yield tensor.name
    finally:
        writer.close()


__all__ = ["convert_checkpoint"]
