"""Both encoders against the official package, on tiny random checkpoints (see README.md)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import soundfile

import engine
from engine.audio.decode import decode_audio
from engine.gguf.spec import read_model_spec
from engine.pieces import run_through
from engine.tts.kept import Keeper
from engine.tts.voices import VoiceEncoder
from engine.voice import Clip
from tests.checkpoints import make_checkpoint
from tests.parity.voice_cases import CASES, LENGTHS, OTHER_RATES, RATE, clip, reference_path

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Heard:
    """A case's encoders, and what the official package heard in the same clips."""

    encoder: VoiceEncoder
    official: dict[str, np.ndarray]

    def check(self, key: int, pcm: np.ndarray) -> None:
        voice = run_through(self.encoder.steps(Clip.of(pcm), 0.0))
        assert np.abs(voice.vector - self.official[f"{key}.vector"]).max() < TOLERANCE
        assert voice.codes.tolist() == self.official[f"{key}.codes"].tolist()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def heard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Heard]:
    with np.load(reference_path(request.param)) as file:
        official = dict(file)
    case = replace(request.param, seed=int(official["seed"]))
    root = tmp_path_factory.mktemp(case.name)
    files = engine.convert_checkpoint(
        make_checkpoint(case, root / "checkpoint"), root / "gguf", "f32"
    )
    encoder = VoiceEncoder(read_model_spec(files.talker, files.codec), Keeper(1 << 24))
    yield Heard(encoder, official)


@pytest.mark.parametrize("samples", LENGTHS)
def test_vector_and_codes_of_a_clip_are_the_official_ones(heard: Heard, samples: int) -> None:
    heard.check(samples, clip(samples))


@pytest.mark.parametrize(("rate", "samples"), OTHER_RATES)
def test_clips_at_other_rates_are_resampled_as_officially(
    heard: Heard, rate: int, samples: int
) -> None:
    file = io.BytesIO()
    soundfile.write(file, clip(samples, rate), rate, format="WAV", subtype="FLOAT")
    heard.check(rate, decode_audio(file.getvalue()))


def test_no_reference_choice_is_a_near_tie(heard: Heard) -> None:
    assert heard.official["margin"] > 2e-5


def test_the_reference_clips_tell_voices_apart(heard: Heard) -> None:
    vectors = [heard.official[f"{samples}.vector"] for samples in LENGTHS]
    for one, other in itertools.pairwise(vectors):
        assert np.abs(one - other).max() > 10 * TOLERANCE


def test_there_are_as_many_frames_as_the_clip_starts(heard: Heard) -> None:
    for samples in LENGTHS:
        assert heard.official[f"{samples}.codes"].shape[1] == -(-samples // 1920)
    assert RATE / 1920 == 12.5
