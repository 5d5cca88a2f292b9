"""Whose voice a request asks for: what is taken, and what is refused with what would be."""

from dataclasses import replace

import numpy as np
import pytest

from engine.errors import InvalidRequest, ModelFileError, UnsupportedMode
from engine.gguf.spec import read_model_spec
from engine.request import SpeechRequest
from engine.text.pace import Fit
from engine.tts.sources import NOBODY, check_clip, check_voice, source, transcript_fit
from engine.voice import Clip, Voice

WIDTH, GROUPS = 64, 4
VECTOR = np.linspace(-1, 1, WIDTH, dtype=np.float32)
CODES = np.arange(GROUPS * 6).reshape(GROUPS, 6)
CLIP = Clip.of(np.random.RandomState(0).standard_normal(48_000).astype(np.float32) * 0.1)
WORDS = "Two seconds of words, more or less."


@pytest.fixture(scope="module")
def spec(base):
    return read_model_spec(base.talker, base.codec)


@pytest.fixture(scope="module", params=["custom_voice", "voice_design"])
def other(request, custom_voice, voice_design):
    files = {"custom_voice": custom_voice, "voice_design": voice_design}[request.param]
    return read_model_spec(files.talker, files.codec)


def asked(**fields):
    return SpeechRequest("Hello there.", **fields)


def test_a_request_without_a_cloned_voice_has_no_source(spec, other):
    assert source(asked(), spec) is NOBODY
    assert source(asked(voice="ryan"), other) is NOBODY


def test_a_voice_gives_what_it_has(spec):
    whole = source(asked(voice=Voice(VECTOR, CODES, "Words.")), spec)
    assert (whole.vector.tolist(), whole.codes.tolist()) == (VECTOR.tolist(), CODES.tolist())
    assert whole.transcript == "Words."
    assert source(asked(voice=Voice(VECTOR)), spec).codes is None
    assert source(asked(voice=Voice(None, CODES, "Words.")), spec).vector is None


def test_a_clip_with_its_words_is_for_its_codes_and_without_for_its_vector(spec):
    whole = source(asked(reference=CLIP, reference_text=WORDS, ref_tail_silence=0.25), spec)
    assert (whole.clip, whole.tail_s, whole.transcript) == (CLIP, 0.25, WORDS)
    vector = source(asked(reference=CLIP), spec)
    assert (vector.clip, vector.tail_s, vector.transcript) == (CLIP, None, None)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"voice": Voice(VECTOR), "reference": CLIP}, "reference"),
        ({"voice": Voice(VECTOR), "speaker_embedding": VECTOR}, "speaker_embedding"),
        ({"reference": CLIP, "speaker_embedding": VECTOR}, "speaker_embedding"),
        ({"reference": CLIP, "reference_codes": CODES, "reference_text": "A."}, "reference_codes"),
    ],
)
def test_a_request_has_one_voice(spec, fields, named):
    with pytest.raises(InvalidRequest, match="exclude each other") as caught:
        source(asked(**fields), spec)
    assert caught.value.field == named


def test_a_transcript_belongs_to_a_sound(spec):
    for fields in ({}, {"voice": Voice(VECTOR)}, {"speaker_embedding": VECTOR}):
        with pytest.raises(InvalidRequest, match="`reference_text` needs") as caught:
            source(asked(reference_text="Words.", **fields), spec)
        assert caught.value.field == "reference_codes"


@pytest.mark.parametrize("silence", [-0.1, 2.5, float("nan")])
def test_a_silence_out_of_range_is_refused_with_the_range(spec, silence):
    with pytest.raises(InvalidRequest, match="from 0 to 2 s") as caught:
        source(asked(reference=CLIP, ref_tail_silence=silence), spec)
    assert caught.value.field == "ref_tail_silence"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"voice": Voice(VECTOR)}, "voice"),
        ({"reference": CLIP}, "reference"),
        ({"speaker_embedding": VECTOR}, "speaker_embedding"),
        ({"reference_codes": CODES, "reference_text": "Words."}, "reference_codes"),
    ],
)
def test_other_models_refuse_a_cloned_voice_and_say_what_it_needs(other, fields, named):
    with pytest.raises(UnsupportedMode, match="needs a Base model") as caught:
        source(asked(**fields), other)
    assert caught.value.field == named


@pytest.mark.parametrize("shape", [(WIDTH - 1,), (WIDTH + 1,), (0,), (1, WIDTH), (2, WIDTH // 2)])
def test_a_vector_of_another_width_is_refused_with_the_right_one(spec, shape):
    with pytest.raises(InvalidRequest, match=f"must have {WIDTH} values") as caught:
        source(asked(speaker_embedding=np.zeros(shape, np.float32)), spec)
    assert caught.value.field == "speaker_embedding"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_vector_with_a_value_that_is_no_number_is_refused(spec, value):
    vector = VECTOR.copy()
    vector[3] = value
    with pytest.raises(InvalidRequest, match="finite") as caught:
        source(asked(speaker_embedding=vector), spec)
    assert caught.value.field == "speaker_embedding"


def test_a_voice_of_another_model_is_refused_with_what_this_one_takes(spec):
    with pytest.raises(UnsupportedMode, match=r"has 32 values; the model .* speaks with 64"):
        check_voice(Voice(VECTOR[:32]), spec)
    with pytest.raises(InvalidRequest, match=r"the codes of `voice` must be \[4, frames\], got"):
        check_voice(Voice(VECTOR, np.zeros((16, 3), int), "Words."), spec)
    with pytest.raises(InvalidRequest, match=r"must lie in 0\.\.63"):
        check_voice(Voice(VECTOR, CODES + 60, "Words."), spec)
    check_voice(Voice(VECTOR, CODES, "Words."), spec)


def test_a_model_without_a_speaker_encoder_says_what_is_needed(spec):
    deaf = replace(spec, talker=replace(spec.talker, speaker_encoder=None))
    with pytest.raises(UnsupportedMode, match="has no speaker encoder") as caught:
        check_clip(deaf, codes=False)
    assert caught.value.field == "ref_audio"


def test_a_codec_without_an_encoder_still_gives_vectors(spec):
    deaf = replace(spec, codec=replace(spec.codec, encoder=None))
    with pytest.raises(UnsupportedMode, match="leave the transcript out"):
        check_clip(deaf, codes=True)
    check_clip(deaf, codes=False)


def test_a_vector_of_another_width_than_the_talkers_is_the_files_fault(spec):
    narrow = replace(spec.talker.speaker_encoder, width=16)
    with pytest.raises(ModelFileError, match="makes 16 values, the talker takes 64"):
        check_clip(replace(spec, talker=replace(spec.talker, speaker_encoder=narrow)), codes=False)


def test_a_transcript_that_may_not_fit_its_clip_is_warned_about(spec):
    assert source(asked(reference=CLIP, reference_text=WORDS), spec).warnings == ()
    for words in ("Half.", WORDS * 5):
        (warning,) = source(asked(reference=CLIP, reference_text=words), spec).warnings
        assert warning.startswith("`ref_text` ")


def test_a_transcript_is_blank_impossible_doubtful_or_sure():
    with pytest.raises(InvalidRequest, match="must say what the clip says") as caught:
        transcript_fit(CLIP, " \n")
    assert caught.value.field == "ref_text"
    found, sentence = transcript_fit(CLIP, WORDS * 5)
    assert found is Fit.IMPOSSIBLE
    assert "175 characters for 2.0 s of speech" in sentence
    assert transcript_fit(CLIP, WORDS)[0] is Fit.SURE
