import threading

import numpy as np
import pytest

import engine
from server.audio.sound import SoundMaker
from tests.server.audio.sounds import CODED, FRAME, RATE, pieces, shaped, streamed, sweep


def test_unchanged_pcm_is_the_engines_own_rounding():
    pcm = sweep(5_000)
    assert b"".join(streamed(shaped("pcm"), pcm)) == engine.to_pcm16(pcm)


@pytest.mark.parametrize(
    ("name", "wanted", "cheap"),
    [
        ("pcm", {}, True), ("wav", {}, True), ("mp3", {}, False), ("ulaw", {}, False),
        ("pcm", {"speed": 1.5}, False), ("wav", {"sample_rate": 16_000}, False),
        ("pcm", {"loudness_lufs": -20.0}, False), ("pcm", {"sample_rate": RATE}, True),
    ],
)  # fmt: skip
def test_only_what_leaves_the_samples_alone_may_run_on_the_event_loop(name, wanted, cheap):
    shape = shaped(name, **wanted)
    assert SoundMaker(shape, RATE).is_cheap is shape.is_cheap(RATE) is cheap
    assert bool(shape.stages(RATE) or shape.format.codec) is not cheap


def test_every_change_at_once_keeps_the_length_and_does_not_depend_on_the_pieces():
    shape = shaped("pcm", speed=0.5, sample_rate=16_000, loudness_lufs=-20.0)
    one = b"".join(streamed(shape, sweep(20_000)))
    assert one == b"".join(streamed(shape, sweep(20_000), chunk=701))
    assert len(one) / 2 == pytest.approx(20_000 * 2 * 16_000 / RATE, abs=2)


@pytest.mark.parametrize("name", CODED)
def test_closing_waits_for_a_write_and_ignores_later_ones(name):
    maker = SoundMaker(shaped(name, speed=0.5), RATE)
    writes = threading.Thread(
        target=lambda: [maker.write(piece) for piece in pieces(sweep(200 * FRAME))]
    )
    writes.start()
    maker.close()
    writes.join(timeout=30)
    assert not writes.is_alive()
    assert maker.write(np.zeros(FRAME, np.float32)) == b""
