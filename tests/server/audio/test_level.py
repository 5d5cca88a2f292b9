from fractions import Fraction

import av
import numpy as np
import pytest

from server.audio.level import Leveller
from tests.server.audio.sounds import FRAME, RATE, pieces


def speech(seconds: float, level: float) -> np.ndarray:
    """F32: harmonics with the rhythm and the pauses of speech."""
    t = np.arange(round(seconds * RATE)) / RATE
    rhythm = (np.sin(2 * np.pi * 2 * t) > -0.3) * (0.5 + 0.5 * np.sin(2 * np.pi * 3.1 * t) ** 2)
    voice = sum(np.sin(2 * np.pi * 150 * k * t) / k for k in range(1, 20))
    return (level * rhythm * voice).astype(np.float32)


def levelled(pcm: np.ndarray, target: float = -18.0, chunk: int = FRAME) -> np.ndarray:
    leveller = Leveller(target, RATE)
    parts = [leveller.write(piece) for piece in pieces(pcm, chunk)]
    return np.concatenate([*parts, leveller.finish()])


def lufs(pcm: np.ndarray) -> float:
    """Integrated loudness as ffmpeg measures it."""
    graph = av.filter.Graph()
    source = graph.add_abuffer(
        sample_rate=RATE, format="flt", layout="mono", time_base=Fraction(1, RATE)
    )
    graph.link_nodes(source, graph.add("ebur128", "metadata=1"), graph.add("abuffersink"))
    graph.configure()
    measured = ""
    for index, piece in enumerate(pieces(pcm, 2_400)):
        frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, index * 2_400, Fraction(1, RATE)
        graph.push(frame)
        try:
            while True:
                measured = graph.pull().metadata["lavfi.r128.I"]
        except av.BlockingIOError:
            pass
    return float(measured)


@pytest.mark.parametrize("target", [-30.0, -23.0, -18.0])
@pytest.mark.parametrize("level", [0.05, 0.1, 0.3])
def test_speech_reaches_its_target(level, target):
    settled = levelled(speech(10, level), target)[2 * RATE :]
    assert lufs(settled) == pytest.approx(target, abs=1.0)


def test_the_gain_is_bounded_so_that_noise_is_not_blown_up():
    quiet = speech(6, 0.004)
    settled = levelled(quiet)[3 * RATE :]
    assert lufs(settled) - lufs(quiet[3 * RATE :]) == pytest.approx(15.0, abs=0.1)


def test_silence_stays_silence_and_moves_no_gain():
    pcm = np.concatenate([np.zeros(3 * RATE, np.float32), speech(1, 0.1)])
    made = levelled(pcm)
    assert not made[: 3 * RATE].any()
    assert np.allclose(made[3 * RATE : 3 * RATE + 480], pcm[3 * RATE : 3 * RATE + 480], atol=1e-3)


def test_no_peak_clips():
    pcm = np.concatenate([speech(4, 0.02), speech(4, 0.5)])
    assert np.max(np.abs(levelled(pcm, -10.0))) <= max(0.9, np.max(np.abs(pcm)))


def test_the_result_does_not_depend_on_the_pieces_and_has_the_same_length():
    pcm = speech(2.003, 0.1)
    one = levelled(pcm)
    assert len(one) == len(pcm)
    assert np.array_equal(one, levelled(pcm, chunk=1_001))


def test_whole_hops_come_out_at_once():
    leveller = Leveller(-18.0, RATE)
    assert leveller.write(speech(0.08, 0.1)).size == FRAME
