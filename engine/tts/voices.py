"""What makes a cloned voice: a speaker vector and, for in-context clones, the clip's codes.

`VoiceEncoder` holds both encoders of a model, loads each when it is first needed, and remembers
results by what was heard. It works on the caller's thread and may be called from several.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.codec.encoder import CodecEncoder
from engine.codec.mel import SAMPLE_RATE, log_mel
from engine.config import ModelSpec
from engine.errors import InvalidRequest, ModelFileError, UnsupportedMode
from engine.gguf.tensors import TensorFile, load_module
from engine.models.speaker_encoder import SpeakerEncoder

Array = npt.NDArray[Any]
M = TypeVar("M", bound=nn.Module)

CACHE_BYTES = 16 * 1024 * 1024
MOST_SILENCE_S = 2.0
LEAST_S = 0.1  # below this the speaker encoder's reflections reach past the clip


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """A voice taken from a clip; the arrays are shared and cannot be written.

    vector is F32[talker hidden]; codes, where asked for, are int64[groups, frames].
    """

    vector: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64] | None


class VoiceEncoder:
    """Turns clips into voices for one model, each clip once.

    Args:
        spec: the model; `can_encode` tells whether it has the encoders.
        device: where the encoders run, always in F32.
        cache_bytes: results kept, the least recently used go first.
    """

    def __init__(
        self,
        spec: ModelSpec,
        device: torch.device | str = "cpu",
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._spec = spec
        self._device = torch.device(device)
        self._results = _Results(cache_bytes)
        self._loading = threading.Lock()
        self._speaker: SpeakerEncoder | None = None
        self._codec: CodecEncoder | None = None

    @property
    def can_encode(self) -> bool:
        """Whether clips can become vectors at all."""
        return self._spec.talker.speaker_encoder is not None

    def encode(
        self, pcm: npt.NDArray[np.float32], *, tail_silence_s: float = 0.0, codes: bool = True
    ) -> Voice:
        """Encode a clip F32[n], mono at 24 kHz, as `engine.audio.decode.decode_audio` returns it.

        The silence is appended for the codes only; the vector is the clip's alone.

        Raises:
            UnsupportedMode: the model's files have no such encoder.
            InvalidRequest: the clip is shorter than 0.1 s, or nothing finite came of it; a silence
                outside 0 to 2 s.
            ModelFileError: the encoder's tensors cannot be used.
        """
        self._check(codes)
        if not 0 <= tail_silence_s <= MOST_SILENCE_S:
            raise InvalidRequest(
                f"`ref_tail_silence` must be from 0 to {MOST_SILENCE_S:g} s, got {tail_silence_s}",
                "ref_tail_silence",
            )
        if pcm.ndim != 1 or len(pcm) < LEAST_S * SAMPLE_RATE:
            _refuse(f"must be mono and at least {LEAST_S:g} s long, got shape {list(pcm.shape)}")
        clip = np.ascontiguousarray(pcm, np.float32)
        heard = hashlib.sha256(clip.tobytes()).hexdigest()
        vector = self._results.get((heard, "vector"), lambda: self._vector(clip))
        if not codes:
            return Voice(vector, None)
        silence = round(tail_silence_s * SAMPLE_RATE)
        return Voice(
            vector, self._results.get((heard, silence), lambda: self._codes(clip, silence))
        )

    def forget(self) -> None:
        """Drop every remembered result."""
        self._results.clear()

    def _check(self, codes: bool) -> None:
        talker, codec = self._spec.talker, self._spec.codec
        if talker.speaker_encoder is None:
            raise UnsupportedMode(
                f"the model `{talker.name}` cannot take a voice from sound: its file has no"
                " speaker encoder; use a Base model",
                "ref_audio",
            )
        if talker.speaker_encoder.width != talker.talker.hidden:
            raise ModelFileError(
                f"`{self._spec.talker_path}`: the speaker encoder makes"
                f" {talker.speaker_encoder.width} values, the talker takes {talker.talker.hidden}"
            )
        if codes and codec.encoder is None:
            raise UnsupportedMode(
                f"the codec of the model `{talker.name}` has no encoder, so the words of a"
                " reference cannot be used; set `x_vector_only_mode`",
                "ref_audio",
            )

    @torch.inference_mode()
    def _vector(self, clip: npt.NDArray[np.float32]) -> Array:
        encoder = self._speaker_encoder()
        with _full_precision():
            mel = log_mel(self._tensor(clip), encoder.conv0.in_channels)
            vector: Array = encoder(mel[None])[0].cpu().numpy()
        if not np.isfinite(vector).all():
            _refuse("is too loud or not finite: no voice could be taken from it")
        return vector

    @torch.inference_mode()
    def _codes(self, clip: npt.NDArray[np.float32], silence: int) -> Array:
        encoder = self._codec_encoder()
        with _full_precision():
            codes: Array = encoder(self._tensor(np.pad(clip, (0, silence)))).cpu().numpy()
        return codes

    def _tensor(self, clip: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(clip.copy()).to(self._device)

    def _speaker_encoder(self) -> SpeakerEncoder:
        with self._loading:
            if self._speaker is None:
                assert self._spec.talker.speaker_encoder is not None
                with torch.device("meta"):
                    empty = SpeakerEncoder(self._spec.talker.speaker_encoder)
                self._speaker = self._filled(empty, "talker", "spk_enc.")
            return self._speaker

    def _codec_encoder(self) -> CodecEncoder:
        with self._loading:
            if self._codec is None:
                assert self._spec.codec.encoder is not None
                with torch.device("meta"):
                    empty = CodecEncoder(self._spec.codec.encoder)
                self._codec = self._filled(empty, "codec", "tok_enc.")
            return self._codec

    def _filled(self, module: M, role: str, prefix: str) -> M:
        path = self._spec.talker_path if role == "talker" else self._spec.codec_path
        with TensorFile(path) as file:
            load_module(module, file, prefix, device=self._device, dtype=torch.float32)
        return module.eval()


class _Results:
    """Arrays by key, bounded in bytes; a key asked for twice at once is computed once."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Array] = OrderedDict()
        self._bytes = 0
        self._pending: dict[Any, Future[Array]] = {}

    def get(self, key: Any, compute: Callable[[], Array]) -> Array:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            pending = self._pending.get(key)
            mine = self._pending[key] = Future() if pending is None else pending
        return self._computed(key, mine, compute) if pending is None else pending.result()

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _computed(self, key: Any, mine: Future[Array], compute: Callable[[], Array]) -> Array:
        try:
            array = compute()
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            mine.set_exception(error)
            raise
        array.flags.writeable = False
        with self._lock:
            del self._pending[key]
            self._keep(key, array)
        mine.set_result(array)
        return array

    def _keep(self, key: Any, array: Array) -> None:
        self._kept[key] = array
        self._bytes += array.nbytes
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes


@contextmanager
def _full_precision() -> Iterator[None]:
    # On CUDA convolutions of F32 are rounded to TF32 by default, which moves codes.
    cudnn = torch.backends.cudnn
    before, cudnn.allow_tf32 = cudnn.allow_tf32, False
    try:
        yield
    finally:
        cudnn.allow_tf32 = before


def _refuse(problem: str) -> NoReturn:
    raise InvalidRequest(f"`ref_audio` {problem}", "ref_audio")


__all__ = ["CACHE_BYTES", "Voice", "VoiceEncoder"]
