"""The engine against the C++ peer: the same files and seed give the same codes."""

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
from tests.parity.peer import CASE, Peer, loaded_peer, read_dump  # noqa: E402

FRAMES = 12  # the peer's codec takes its time, whatever the talker's size
SAID = {
    1: ("Hello there.", "ryan", "english"),
    7: ("你好，世界！", "eric", "auto"),
    42: ("Guten Morgen, schöne Welt.", "vivian", "german"),
    2**31 + 5: ("今天 12 点见", "dylan", "chinese"),
    2**40 + 3: ("\nA new line, 3½ cats 🐈.", "ryan", "auto"),
    2**62 + 11: ("こんにちは", "vivian", "japanese"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> engine.ModelFiles:
    root = tmp_path_factory.mktemp("peer")
    return engine.convert_checkpoint(
        make_checkpoint(CASE, root / "checkpoint"), root / "gguf", "f32"
    )


@pytest.fixture(scope="module")
def peer(files: engine.ModelFiles) -> Iterator[Peer]:
    with loaded_peer(files) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def ours(files: engine.ModelFiles) -> Iterator[Ours]:
    loaded = Ours(files, ramp=(FRAMES,))
    yield loaded
    loaded.close()


@pytest.mark.parametrize("seed", SAID)
def test_the_same_seed_draws_the_same_codes_as_the_peer(
    seed: int, ours: Ours, peer: Peer, tmp_path: Path
) -> None:
    text, speaker, language = SAID[seed]
    theirs = peer.codes(
        tmp_path, text=text, speaker=speaker, language=language, seed=seed, frames=FRAMES
    )
    sampling = engine.Sampling(seed=seed, min_new_tokens=0, max_new_tokens=FRAMES)
    request = engine.SpeechRequest(text, voice=speaker, language=language, sampling=sampling)
    prepared, drawn = ours.prepare(request), ours.speak(request)
    assert prepared.ids.tolist() == read_dump(tmp_path / "prompt-ids.bin").tolist()
    embeddings = read_dump(tmp_path / "talker-input-embed.bin")
    np.testing.assert_allclose(prepared.embeddings, embeddings, rtol=0, atol=1e-4)
    assert drawn.codes.shape == (FRAMES, CASE.code_groups)
    assert first_difference(drawn.codes, theirs) is None


def first_difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[int, int] | None:
    """(frame, code group) of the first code that differs."""
    assert ours.shape == theirs.shape
    differing = np.argwhere(ours != theirs)
    return (int(differing[0][0]), int(differing[0][1])) if len(differing) else None
