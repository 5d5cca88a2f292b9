"""Clips and voices as data: what is accepted, what they say of themselves, and that they stay."""

import pickle

import numpy as np
import pytest

from engine.errors import InvalidRequest
from engine.voice import Clip, Voice, tail_samples

VECTOR = np.linspace(-1, 1, 8, dtype=np.float32)
CODES = np.arange(12).reshape(4, 3)


def noise(seconds, level=0.1, seed=0):
    samples = round(seconds * 24_000)
    return (np.random.RandomState(seed).standard_normal(samples) * level).astype(np.float32)


def silence(seconds):
    return np.zeros(round(seconds * 24_000), np.float32)


def test_a_clip_keeps_a_copy_that_cannot_be_written():
    mine = noise(1)
    clip = Clip.of(mine)
    mine[0] = 0.5
    assert clip.pcm[0] != np.float32(0.5)
    with pytest.raises(ValueError, match="read-only"):
        clip.pcm[0] = 0


def test_equal_samples_have_equal_digests_and_others_have_not():
    assert Clip.of(noise(1)).digest == Clip.of(noise(1).astype(np.float64)).digest
    changed = noise(1)
    changed[-1] += np.float32(1e-6)
    assert Clip.of(noise(1)).digest != Clip.of(changed).digest


@pytest.mark.parametrize("seconds", [0.3, 60.0])
def test_the_shortest_and_the_longest_clip_are_accepted(seconds):
    assert Clip.of(noise(seconds)).seconds == seconds


@pytest.mark.parametrize(
    ("pcm", "problem"),
    [
        (noise(0.29), "from 0.3 to 60 s"),
        (noise(60.1), "lasts 60.10 s"),
        (noise(1).reshape(2, -1), r"samples \[n\]"),
        ((noise(1) * 1000).astype(np.int16), "float samples"),
        (np.full(24_000, np.nan, np.float32), "finite"),
    ],
    ids=["short", "long", "stereo", "integers", "nan"],
)
def test_a_clip_that_cannot_be_one_is_refused(pcm, problem):
    with pytest.raises(InvalidRequest, match=problem) as caught:
        Clip.of(pcm)
    assert caught.value.field == "ref_audio"


def test_speech_is_measured_without_quiet_ends_and_long_pauses():
    words = np.concatenate((silence(0.7), noise(1), silence(0.2), noise(1), silence(1.5), noise(1)))
    assert Clip.of(words).speech_s == pytest.approx(3.2, abs=0.05)
    assert Clip.of(words * np.float32(0.01)).speech_s == pytest.approx(3.2, abs=0.05)


def test_a_click_does_not_make_speech_quiet():
    pcm = noise(2, level=0.01)
    pcm[24_000] = 1.0
    assert Clip.of(pcm).speech_s == pytest.approx(2, abs=0.05)


def test_a_clip_counts_its_frames_with_the_silence():
    assert Clip.of(noise(1)).frames(1920) == 13
    assert Clip.of(noise(1)).frames(1920, 0.5) == 19


def test_the_silence_has_a_range():
    assert [tail_samples(each) for each in (0, 0.5, 2)] == [0, 12_000, 48_000]
    for seconds in (-0.01, 2.01, float("nan")):
        with pytest.raises(InvalidRequest, match="from 0 to 2 s"):
            tail_samples(seconds)


def test_a_voice_keeps_copies_of_one_type_that_cannot_be_written():
    vector, codes = VECTOR.astype(np.float64), CODES.astype(np.int16)
    voice = Voice(vector, codes, "Words.")
    vector[0], codes[0, 0] = 9, 9
    assert (voice.embedding.dtype, voice.codes.dtype) == (np.float32, np.int64)
    assert (voice.embedding[0], voice.codes[0, 0]) == (-1, 0)
    for array in (voice.embedding, voice.codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_voice_is_in_context_when_it_has_codes():
    voice = Voice(VECTOR, CODES, "Words.", tail_silence_s=0.5, model="m", clip="c")
    assert voice.in_context
    alone = voice.vector_only()
    assert not alone.in_context
    assert (alone.codes, alone.transcript, alone.tail_silence_s) == (None, None, 0.0)
    assert (alone.model, alone.clip) == ("m", "c")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((None,), "speaker_embedding"),
        ((VECTOR.reshape(2, 4),), "speaker_embedding"),
        ((VECTOR * np.inf,), "speaker_embedding"),
        ((np.full(8, 1e300),), "speaker_embedding"),
        ((np.array(["a"]),), "speaker_embedding"),
        ((VECTOR, CODES), "reference_text"),
        ((VECTOR, CODES, "  "), "reference_text"),
        ((VECTOR, None, "Words."), "reference_codes"),
        ((VECTOR, CODES.astype(np.float32), "Words."), "reference_codes"),
        ((VECTOR, CODES - 1, "Words."), "reference_codes"),
        ((VECTOR, CODES[:, :0], "Words."), "reference_codes"),
        ((VECTOR, CODES[0], "Words."), "reference_codes"),
    ],
)
def test_a_voice_that_cannot_be_spoken_with_is_refused_by_name(arguments, field):
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(InvalidRequest, match=r"voice|`\w+`") as caught,
    ):
        Voice(*arguments)
    assert caught.value.field == field


def test_a_voice_of_codes_alone_has_no_vector_to_keep():
    with pytest.raises(InvalidRequest, match="needs a vector"):
        Voice(None, CODES, "Words.").vector_only()


def test_the_key_is_of_what_is_spoken_with():
    keys = {
        voice.key
        for voice in (
            Voice(VECTOR),
            Voice(VECTOR + 1),
            Voice(VECTOR, CODES, "Words."),
            Voice(VECTOR, CODES, "Other words."),
            Voice(VECTOR, CODES.reshape(3, 4), "Words."),
            Voice(None, CODES, "Words."),
        )
    }
    assert len(keys) == 6
    renamed = Voice(VECTOR, CODES, "Words.", model="m", clip="c", warnings=("doubt",))
    assert renamed.key == Voice(VECTOR, CODES.astype(np.int32), "Words.").key


def test_clips_and_voices_travel_between_processes():
    clip, voice = Clip.of(noise(1)), Voice(VECTOR, CODES, "Words.", clip="c")
    copy, twin = pickle.loads(pickle.dumps((clip, voice)))
    assert (copy.digest, twin.key, twin.clip) == (clip.digest, voice.key, "c")
    np.testing.assert_array_equal(copy.pcm, clip.pcm)
