"""The encoders of one model: what a clip's voice is, and what its codes are.

`VoiceEncoder` loads each encoder when it is first needed and keeps results by what was heard. Both
work in pieces, on the worker thread, always in F32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.codec.encoder import CodecEncoder
from engine.codec.mel import log_mel_steps
from engine.config import ModelSpec
from engine.errors import InvalidRequest
from engine.gguf.tensors import TensorFile, load_module
from engine.models.speaker_encoder import SpeakerEncoder
from engine.pieces import Steps
from engine.tts.kept import Keeper
from engine.voice import F32, I64, Clip, tail_samples

T = TypeVar("T")


class Heard(NamedTuple):
    """Of one clip: the vector F32[talker hidden] and, where asked for, codes int64[groups, T].

    The arrays are shared and cannot be written.
    """

    vector: F32
    codes: I64 | None


class VoiceEncoder:
    """Turns clips into vectors and codes for one model, each clip once.

    Args:
        spec: a model with the encoders that are asked for (`engine.tts.sources` checks that).
        keeper: where results are kept.
        device: where the encoders run.
    """

    def __init__(self, spec: ModelSpec, keeper: Keeper, device: torch.device | str = "cpu") -> None:
        self.runs = 0  # of either encoder
        self._spec = spec
        self._keeper = keeper
        self._device = torch.device(device)
        self._speaker: SpeakerEncoder | None = None
        self._codec: CodecEncoder | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the encoders loaded so far."""
        loaded = [module for module in (self._speaker, self._codec) if module is not None]
        return sum(tensor.nbytes for module in loaded for tensor in module.parameters())

    def known(self, clip: Clip, tail_s: float | None) -> Heard | None:
        """What `steps` would come to, if all of it is kept."""
        for_vector, for_codes = _keys(clip, tail_s)
        vector = self._keeper.peek(for_vector)
        codes = None if for_codes is None else self._keeper.peek(for_codes)
        if vector is None or (codes is None and for_codes is not None):
            return None
        return Heard(vector, codes)

    def steps(self, clip: Clip, tail_s: float | None) -> Steps[Heard]:
        """Encode a clip: the vector alone (`tail_s` None), or also codes with so much silence
        appended to the clip; the vector is the clip's alone.

        Raises:
            InvalidRequest: nothing finite came of the clip.
            ModelFileError: the encoder's tensors cannot be used.
        """
        for_vector, for_codes = _keys(clip, tail_s)
        vector = self._keeper.get(for_vector)
        if vector is None:
            vector = yield from _precisely(self._vector(clip.pcm))
            self._keep(for_vector, vector, clip)
        if for_codes is None or tail_s is None:
            return Heard(vector, None)
        codes = self._keeper.get(for_codes)
        if codes is None:
            codes = yield from _precisely(self._codes(clip.pcm, tail_samples(tail_s)))
            self._keep(for_codes, codes, clip)
        return Heard(vector, codes)

    def _keep(self, key: Any, array: npt.NDArray[Any], clip: Clip) -> None:
        self.runs += 1
        array.flags.writeable = False
        self._keeper.keep(key, array, array.nbytes, clip.digest)

    def _vector(self, pcm: F32) -> Steps[F32]:
        if self._speaker is None:
            assert self._spec.talker.speaker_encoder is not None
            with torch.device("meta"):
                empty = SpeakerEncoder(self._spec.talker.speaker_encoder)
            self._speaker = yield from _filled(
                empty, self._spec.talker_path, "spk_enc.", self._device
            )
        encoder = self._speaker
        mel = yield from log_mel_steps(self._tensor(pcm), encoder.conv0.in_channels)
        vector: F32 = (yield from encoder.steps(mel[None]))[0].cpu().numpy()
        if not np.isfinite(vector).all():
            raise InvalidRequest(
                "`ref_audio` is too loud: no voice could be taken from it", "ref_audio"
            )
        return vector

    def _codes(self, pcm: F32, silence: int) -> Steps[I64]:
        if self._codec is None:
            assert self._spec.codec.encoder is not None
            with torch.device("meta"):
                empty = CodecEncoder(self._spec.codec.encoder)
            self._codec = yield from _filled(empty, self._spec.codec_path, "tok_enc.", self._device)
        codes: I64 = (
            (yield from self._codec.steps(self._tensor(np.pad(pcm, (0, silence))))).cpu().numpy()
        )
        return codes

    def _tensor(self, pcm: F32) -> Tensor:
        return torch.from_numpy(pcm.copy()).to(self._device)


M = TypeVar("M", bound=nn.Module)


def _keys(clip: Clip, tail_s: float | None) -> tuple[Any, Any]:
    codes = None if tail_s is None else ("codes", clip.digest, tail_samples(tail_s))
    return ("vector", clip.digest), codes


def _filled(module: M, path: Path, prefix: str, device: torch.device) -> Steps[M]:
    with TensorFile(path) as file:
        for part, name in _parts(module, prefix):
            load_module(part, file, name, device=device, dtype=torch.float32)
            yield
    return module.eval()


def _parts(module: nn.Module, prefix: str) -> Iterator[tuple[nn.Module, str]]:
    for name, child in module.named_children():
        inside = f"{prefix}{name}."
        if isinstance(child, nn.ModuleDict | nn.ModuleList):
            yield from _parts(child, inside)
        else:
            yield child, inside


def _precisely(steps: Steps[T]) -> Steps[T]:
    """The same steps without gradients, and with F32 products that are F32."""
    while True:
        with torch.inference_mode(), _full_precision():
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
        yield


@contextmanager
def _full_precision() -> Iterator[None]:
    # On CUDA convolutions of F32 are rounded to TF32 by default, which moves codes.
    cudnn = torch.backends.cudnn
    before, cudnn.allow_tf32 = cudnn.allow_tf32, False
    try:
        yield
    finally:
        cudnn.allow_tf32 = before


__all__ = ["Heard", "VoiceEncoder"]
