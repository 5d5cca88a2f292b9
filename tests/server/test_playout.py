import pytest

from server.playout import Playout


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def play(clock, *writes):
    """`writes` are (time, seconds of sound)."""
    playout = Playout(clock)
    for now, seconds in writes:
        clock.now = now
        playout.write(seconds)
    return playout


def test_writes_ahead_of_the_listener_are_no_underrun(clock):
    playout = play(clock, (100.0, 0.08), (100.08, 0.16), (100.2, 0.32))
    assert (playout.underruns, playout.underrun_s) == (0, 0.0)


def test_a_write_after_the_sound_was_played_is_an_underrun_of_the_silence_it_made(clock):
    playout = play(clock, (100.0, 0.5), (100.75, 0.5))
    assert (playout.underruns, playout.underrun_s) == (1, 0.25)


def test_after_an_underrun_the_listener_plays_on_from_there(clock):
    playout = play(clock, (100.0, 0.5), (100.75, 0.5), (101.25, 0.5), (102.0, 0.5))
    assert (playout.underruns, playout.underrun_s) == (2, 0.5)


def test_sound_sent_early_is_a_reserve(clock):
    playout = play(clock, (100.0, 0.25), (100.0, 2.0), (102.25, 0.25))
    assert playout.underruns == 0


def test_the_largest_gap_is_between_writes_whether_anyone_ran_dry_or_not(clock):
    playout = play(clock, (100.0, 5.0), (100.25, 1.0), (101.25, 1.0), (101.5, 1.0))
    assert (playout.largest_gap_s, playout.underruns) == (1.0, 0)


def test_a_reply_in_one_write_has_no_gap(clock):
    playout = play(clock, (100.0, 1.0))
    assert (playout.largest_gap_s, playout.underruns) == (0.0, 0)
