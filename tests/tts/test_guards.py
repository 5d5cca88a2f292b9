import numpy as np
import pytest

from engine.tts.guards import LoopGuard, SilenceGuard

RATE = 24_000


def first_hit(guard, items):
    return next((index for index, item in enumerate(items) if guard.push(item)), None)


@pytest.mark.parametrize("period", [1, 2, 5, 16])
def test_a_loop_is_seen_when_a_whole_window_repeats(period):
    codes = [index % period for index in range(200)]
    assert first_hit(LoopGuard(64, 16, 4), codes) == 64 + period - 1


def test_codes_that_never_repeat_are_no_loop():
    assert first_hit(LoopGuard(64, 16, 4), range(500)) is None


def test_a_period_longer_than_the_longest_is_no_loop():
    assert first_hit(LoopGuard(64, 16, 4), [i % 17 for i in range(500)]) is None


def test_a_period_that_does_not_fit_often_enough_is_no_loop():
    codes = [i % 9 for i in range(500)]
    assert first_hit(LoopGuard(32, 16, 4), codes) is None
    assert first_hit(LoopGuard(32, 16, 3), codes) == 32 + 9 - 1


def test_one_other_code_starts_the_window_anew():
    codes = [7] * 60 + [8] + [7] * 100
    assert first_hit(LoopGuard(64, 16, 4), codes) == 61 + 64


def test_a_window_of_zero_turns_the_loop_guard_off():
    assert first_hit(LoopGuard(0, 16, 4), [1] * 1000) is None


def tone(seconds, level=0.1):
    return (level * np.sin(np.arange(int(seconds * RATE)) * 0.1)).astype(np.float32)


def silence(seconds, level=0.0):
    return np.full(int(seconds * RATE), level, np.float32)


def ends_at(sound, chunk, seconds=3.0):
    """The sample up to which `sound` was pushed when the guard spoke, in chunks of `chunk`."""
    guard = SilenceGuard(RATE, seconds, -50.0)
    for start in range(0, len(sound), chunk):
        if guard.push(sound[start : start + chunk]):
            return min(start + chunk, len(sound))
    return None


def test_silence_after_speech_ends_after_the_given_seconds():
    sound = np.concatenate((tone(1.0), silence(5.0)))
    assert ends_at(sound, 480) == 4 * RATE


def test_silence_before_any_speech_is_none_of_its_business():
    assert ends_at(silence(10.0), 1920) is None


def test_speech_in_between_starts_the_count_anew():
    sound = np.concatenate((tone(0.5), silence(2.9), tone(0.1), silence(2.9), tone(0.1)))
    assert ends_at(sound, 1920) is None


def test_noise_below_the_level_is_silence_and_above_it_is_not():
    for level, heard in ((10 ** (-51 / 20), False), (10 ** (-49 / 20), True)):
        sound = np.concatenate((tone(1.0), silence(4.0, level)))
        assert (ends_at(sound, 1920) is None) is heard


def test_zero_seconds_turn_the_silence_guard_off():
    assert ends_at(np.concatenate((tone(1.0), silence(9.0))), 1920, seconds=0) is None


def test_the_verdict_does_not_depend_on_how_the_sound_is_cut():
    random = np.random.default_rng(5)
    levels = random.choice([0.0, 0.001, 0.05], size=60, p=[0.6, 0.2, 0.2])
    sound = np.concatenate([tone(random.uniform(0.01, 0.2), level) for level in levels])
    exact = ends_at(sound, 480, seconds=0.3)
    assert exact is not None
    for chunk in (1, 7, 481, 1920, 15_360, len(sound)):
        assert ends_at(sound, chunk, seconds=0.3) == min(-(-exact // chunk) * chunk, len(sound))
