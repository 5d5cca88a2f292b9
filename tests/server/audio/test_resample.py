import numpy as np
import pytest

from server.audio.formats import FORMATS
from server.audio.resample import Resampler
from tests.server.audio.sounds import (
    FRAME,
    RATE,
    RAW,
    decode,
    pieces,
    pitch,
    shaped,
    streamed,
    tone,
)


def resample(to_rate: int, pcm: np.ndarray, chunk: int = FRAME) -> np.ndarray:
    resampler = Resampler(RATE, to_rate)
    parts = [resampler.write(piece) for piece in pieces(pcm, chunk)]
    return np.concatenate([*parts, resampler.finish()])


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000])
def test_length_and_pitch_stay(rate):
    made = resample(rate, tone(48_123))
    assert abs(len(made) - 48_123 * rate / RATE) <= 1
    assert pitch(made, rate) == pytest.approx(440.0, rel=0.001)


def test_the_result_does_not_depend_on_the_pieces():
    pcm = tone(20_000)
    assert np.array_equal(resample(44_100, pcm), resample(44_100, pcm, chunk=777))


def test_what_the_new_rate_cannot_hold_is_filtered_out():
    made = resample(8_000, tone(48_000, hertz=6_000))
    assert np.sqrt(np.mean(made[800:-800] ** 2)) < 1e-3


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_rate_asked_for_or_the_next_one_up(name, rate):
    shape = shaped(name, sample_rate=rate)
    decoded, decoded_rate = decode(
        b"".join(streamed(shape, tone(48_000))), shape if name in RAW else None
    )
    # Opus always plays at 48 kHz.
    assert decoded_rate == (48_000 if name == "opus" else rate)
    assert pitch(decoded, decoded_rate) == pytest.approx(440.0, rel=0.01)
    # Delay of the codec: two frames of AAC at the lowest rate.
    assert 2.0 <= len(decoded) / decoded_rate <= 2.0 + 2 * 1_024 / rate + 0.04
