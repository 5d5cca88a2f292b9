"""Codes without their clip: their length, and whether a text can be what they say."""

import numpy as np
import pytest

import engine
from server.voices.latents import doubts


def codes(seconds):
    return np.zeros((16, round(seconds / 0.08)), np.int64)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "Hi."), (2, "What the clip says."), (10, "Words with a long pause after them, say " * 2),
     (62, "These are the words. " * 40)],
)  # fmt: skip
def test_words_that_fit_are_taken_without_a_doubt(seconds, said):
    assert doubts(codes(seconds), said, 0.08) == ()


@pytest.mark.parametrize(
    ("seconds", "said"), [(2, "What a lot of words. " * 5), (16, "Some words only. " * 3)]
)
def test_words_that_hardly_fit_are_doubted(seconds, said):
    (told,) = doubts(codes(seconds), said, 0.08)
    assert "`ref_text` may not be all of what the codes say" in told


@pytest.mark.parametrize(("seconds", "said"), [(2, "words " * 100), (60, "Hi."), (60, "...")])
def test_words_that_cannot_fit_are_refused(seconds, said):
    with pytest.raises(engine.InvalidRequest, match="cannot be what the codes say") as caught:
        doubts(codes(seconds), said, 0.08)
    assert caught.value.field == "ref_text"


def test_codes_longer_than_a_clip_and_its_silence_are_refused():
    with pytest.raises(engine.InvalidRequest, match=r"4000 frames, 320\.0 s of sound") as caught:
        doubts(np.zeros((16, 4000), np.int64), "Words.", 0.08)
    assert caught.value.field == "rvq"
