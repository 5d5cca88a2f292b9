"""Voices and the C++ peer: its encoders hear the same, and its files travel both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qwentts_cpp_cpu", reason="the C++ peer is not installed")
pytestmark = [pytest.mark.peer, pytest.mark.slow]

import engine  # noqa: E402
from tests.checkpoints import make_checkpoint  # noqa: E402
from tests.parity.adapter import Ours  # noqa: E402
from tests.parity.peer import CLONE_CASE, Peer, loaded_peer  # noqa: E402
from tests.parity.test_peer import first_difference  # noqa: E402
from tests.parity.voice_cases import clip  # noqa: E402

FRAMES = 8
WORDS = "What the clip says."
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> engine.ModelFiles:
    root = tmp_path_factory.mktemp("peer")
    return engine.convert_checkpoint(
        make_checkpoint(CLONE_CASE, root / "checkpoint"), root / "gguf", "f32"
    )


@pytest.fixture(scope="module")
def peer(files: engine.ModelFiles) -> Iterator[Peer]:
    with loaded_peer(files, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def ours(files: engine.ModelFiles) -> Iterator[Ours]:
    loaded = Ours(files, ramp=(FRAMES,), kernels="plain")
    yield loaded
    loaded.close()


# Its encoder takes whole frames only.
@pytest.mark.parametrize("samples", [1920 * 25, 1920 * 70])
def test_the_peer_hears_the_same_in_a_clip(
    samples: int, ours: Ours, peer: Peer, tmp_path: Path
) -> None:
    spk, rvq = tmp_path / "voice.spk", tmp_path / "voice.rvq"
    peer.save_voice(clip(samples), spk, rvq)
    vector = engine.unpack_spk(spk.read_bytes(), CLONE_CASE.talker.hidden)
    codes = engine.unpack_rvq(rvq.read_bytes())
    voice = ours.engine.extract_voice(
        engine.Clip.of(clip(samples)), transcript=WORDS * (samples // 48_000), ref_tail_silence=0.0
    ).result(PATIENCE_S)
    assert voice.embedding is not None
    assert voice.codes is not None
    assert cosine(voice.embedding, vector) > 0.999
    assert codes.shape == voice.codes.shape
    # It convolves in F16: a code that was a near-tie changes all those after it in its frame.
    agreement = np.mean(codes == voice.codes)
    assert agreement >= 0.98, f"{agreement:.3f} of the codes agree"


def test_the_peer_speaks_with_our_files_and_we_with_its(
    ours: Ours, peer: Peer, tmp_path: Path
) -> None:
    spk, rvq = tmp_path / "voice.spk", tmp_path / "voice.rvq"
    voice = ours.engine.extract_voice(
        engine.Clip.of(clip(1920 * 20)), transcript=WORDS, ref_tail_silence=0.0
    ).result(PATIENCE_S)
    assert voice.embedding is not None
    assert voice.codes is not None
    spk.write_bytes(engine.pack_spk(voice.embedding))
    rvq.write_bytes(engine.pack_rvq(voice.codes))
    theirs = peer.cloned_codes(
        tmp_path, spk=spk, rvq=rvq, words=WORDS, text="Hello there.", seed=7, frames=FRAMES
    )
    assert first_difference(spoken(ours, voice), theirs) is None

    peer.save_voice(clip(1920 * 20), tmp_path / "own.spk", tmp_path / "own.rvq")
    own = engine.Voice(
        engine.unpack_spk((tmp_path / "own.spk").read_bytes()),
        engine.unpack_rvq((tmp_path / "own.rvq").read_bytes()),
        WORDS,
    )
    theirs = peer.cloned_codes(
        tmp_path,
        spk=tmp_path / "own.spk",
        rvq=tmp_path / "own.rvq",
        words=WORDS,
        text="Hello there.",
        seed=9,
        frames=FRAMES,
    )
    assert first_difference(spoken(ours, own, seed=9), theirs) is None


def spoken(ours: Ours, voice: engine.Voice, seed: int = 7) -> np.ndarray:
    sampling = engine.Sampling(seed=seed, min_new_tokens=0, max_new_tokens=FRAMES)
    request = engine.SpeechRequest(
        "Hello there.", voice=voice, language="english", sampling=sampling
    )
    return ours.speak(request).codes


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
