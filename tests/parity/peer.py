"""The C++ peer on a pair of files: what codes it draws. Needs `realtimetts-qwen-native-cpu`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import engine
from tests.checkpoints import Case, Codec, Stack

# As small as the peer takes it: its DAC chain has the published widths and strides wired in, as
# are 16 code groups and 1,920 samples per frame. All else it reads from the file.
CASE = Case(
    name="peer",
    talker=Stack(hidden=64, ffn=96, layers=2, heads=4, kv_heads=2, head_dim=16),
    predictor=Stack(hidden=48, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=16),
    codec=Codec(decoder_dim=1536),
    code_groups=16,
    codebook_size=2048,
)

# The same for clones: its encoders have the published widths wired in, too.
CLONE_CASE = replace(
    CASE,
    name="peer_clone",
    task="base",
    codec=replace(
        CASE.codec,
        codebook_dim=512,
        encoder_hidden=512,
        encoder_filters=64,
        encoder_layers=8,
        encoder_heads=8,
        encoder_ffn=2048,
        encoder_extra_quantizers=16,
    ),
    speaker_channels=512,
    speaker_inner=128,
)


class Peer:
    """The peer with one pair loaded."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def codes(
        self, folder: Path, *, text: str, speaker: str, language: str, seed: int, frames: int
    ) -> npt.NDArray[np.int64]:
        """Draw at the peer's default sampling: int64[frames, 16]. `folder` takes its dumps."""
        self._model.synthesize(
            text=text,
            speaker=speaker,
            lang=language,
            seed=seed,
            max_new_tokens=frames,
            dump_dir=folder,
        )
        return read_dump(folder / "codes-full.bin").astype(np.int64)

    def cloned_codes(
        self, folder: Path, *, spk: Path, rvq: Path, words: str, text: str, seed: int, frames: int
    ) -> npt.NDArray[np.int64]:
        """Like `codes`, in the voice of two files and what they say."""
        voice = self._model.load_voice_ref(spk, rvq)
        self._model.synthesize(
            text=text,
            lang="english",
            ref_spk_emb=voice.ref_spk_emb,
            ref_codes=voice.ref_codes,
            ref_text=words,
            seed=seed,
            max_new_tokens=frames,
            dump_dir=folder,
        )
        return read_dump(folder / "codes-full.bin").astype(np.int64)

    def save_voice(self, pcm: npt.NDArray[np.float32], spk: Path, rvq: Path) -> None:
        """Extract a voice and write its two files."""
        self._model.save_voice_ref(pcm, spk, rvq)


@contextmanager
def loaded_peer(files: engine.ModelFiles, threads: int = 2) -> Iterator[Peer]:
    """Load a pair into the peer."""
    from qwentts_cpp_cpu import QwenTTS

    model = QwenTTS(files.talker, files.codec, cpu_threads=threads)
    try:
        yield Peer(model)
    finally:
        model.close()


def read_dump(path: Path) -> npt.NDArray[np.float32]:
    """A tensor the peer dumped: rank, shape (int32 each), then F32 values."""
    raw = path.read_bytes()
    rank = int(np.frombuffer(raw, "<i4", 1)[0])
    shape = np.frombuffer(raw, "<i4", rank, offset=4)
    return np.frombuffer(raw, "<f4", offset=4 * (1 + rank)).reshape(shape)
