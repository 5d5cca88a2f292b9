import numpy as np
import pytest

from server.audio.formats import FORMATS
from server.audio.stretch import Stretcher
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
    whole,
)

SPEEDS = (0.25, 0.5, 0.8, 1.1, 1.3, 2.0, 3.0, 4.0)


def stretch(speed: float, pcm: np.ndarray, chunk: int = FRAME) -> np.ndarray:
    stretcher = Stretcher(speed, RATE)
    parts = [stretcher.write(piece) for piece in pieces(pcm, chunk)]
    return np.concatenate([*parts, stretcher.finish()])


@pytest.mark.parametrize("samples", [FRAME, 5 * FRAME, 40 * FRAME + 17])
@pytest.mark.parametrize("speed", SPEEDS)
def test_the_length_is_that_of_the_sound_divided_by_the_speed(speed, samples):
    assert len(stretch(speed, tone(samples))) == round(samples / speed)


@pytest.mark.parametrize("hertz", [110.0, 440.0, 3_000.0])
@pytest.mark.parametrize("speed", SPEEDS)
def test_the_pitch_stays(speed, hertz):
    assert pitch(stretch(speed, tone(72_000, hertz)), RATE) == pytest.approx(hertz, rel=0.01)


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_sound_is_heard_from_its_beginning_to_its_end_and_no_louder(speed):
    made = stretch(speed, tone(72_000))
    loudness = np.sqrt(np.mean(made[: len(made) // 50 * 50].reshape(50, -1) ** 2, axis=1))
    assert np.all(loudness > 0.15) and np.max(np.abs(made)) < 0.35


def test_the_result_does_not_depend_on_the_pieces():
    pcm = tone(30_000)
    assert np.array_equal(stretch(1.3, pcm), stretch(1.3, pcm, chunk=701))


def test_sound_comes_out_while_more_goes_in():
    stretcher = Stretcher(0.5, RATE)
    parts = [stretcher.write(piece) for piece in pieces(tone(10 * FRAME))]
    assert sum(part.size > 0 for part in parts) >= 8


def test_nothing_in_is_nothing_out():
    stretcher = Stretcher(2.0, RATE)
    assert stretcher.write(np.zeros(0, np.float32)).size == 0
    assert stretcher.finish().size == 0


@pytest.mark.parametrize("speed", [0.5, 2.0])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_duration_and_the_pitch(name, speed):
    shape, pcm = shaped(name, speed=speed), tone(72_000)
    raw = shape if name in RAW else None
    for body in (whole(shape, pcm), b"".join(streamed(shape, pcm))):
        decoded, rate = decode(body, raw)
        assert len(decoded) / rate == pytest.approx(3.0 / speed, rel=0.03)
        assert pitch(decoded, rate) == pytest.approx(440.0, rel=0.01)


@pytest.mark.parametrize("name", FORMATS)
def test_a_speed_of_1_changes_no_byte(name):
    pcm = tone(20_000)
    assert streamed(shaped(name, speed=1.0), pcm) == streamed(shaped(name), pcm)
    assert not shaped("pcm", speed=1.0).stages(RATE)


def test_an_odd_speed_and_opus_still_give_a_legal_rate():
    decoded, rate = decode(b"".join(streamed(shaped("opus", speed=1.3), tone(72_000))))
    assert rate == 48_000
    assert len(decoded) / rate == pytest.approx(3.0 / 1.3, rel=0.03)
