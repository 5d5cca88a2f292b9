"""Voices out of clips: what is encoded when, what is kept, and what is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.codec.encoder import CodecEncoder
from engine.errors import InvalidRequest, ModelFileError, UnsupportedMode
from engine.gguf.spec import read_model_spec
from engine.models.speaker_encoder import SpeakerEncoder
from engine.tts.voices import VoiceEncoder


@pytest.fixture(scope="module")
def spec(base):
    return read_model_spec(base.talker, base.codec)


@pytest.fixture
def encoder(spec):
    return VoiceEncoder(spec)


@pytest.fixture
def runs(monkeypatch):
    """Names of the encoders, one per run."""
    ran = []
    for module in (SpeakerEncoder, CodecEncoder):
        forward = module.forward

        def counted(self, x, forward=forward):
            ran.append(type(self).__name__)
            return forward(self, x)

        monkeypatch.setattr(module, "forward", counted)
    return ran


def clip(samples=24000, seed=0):
    return (np.random.RandomState(seed).standard_normal(samples) * 0.1).astype("f4")


def test_a_clip_becomes_a_vector_of_the_talkers_width_and_codes_of_its_frames(spec, encoder):
    voice = encoder.encode(clip(24001))
    assert voice.vector.shape == (spec.talker.talker.hidden,)
    assert voice.vector.dtype == np.float32
    assert voice.codes.shape == (spec.talker.code_groups, 13)
    assert voice.codes.dtype == np.int64


def test_a_vector_alone_needs_no_codec_encoder(encoder, runs):
    assert encoder.encode(clip(), codes=False).codes is None
    assert runs == ["SpeakerEncoder"]
    assert encoder._codec is None


def test_nothing_is_loaded_before_it_is_needed(encoder):
    assert (encoder.can_encode, encoder._speaker, encoder._codec) == (True, None, None)


def test_the_silence_is_appended_for_the_codes_and_leaves_the_vector(encoder):
    plain, padded = encoder.encode(clip()), encoder.encode(clip(), tail_silence_s=0.5)
    by_hand = encoder.encode(np.concatenate((clip(), np.zeros(12000, np.float32))))
    assert padded.codes.shape[1] == 19
    assert padded.codes.tolist() == by_hand.codes.tolist()
    np.testing.assert_array_equal(padded.vector, plain.vector)


def test_the_same_clip_is_encoded_once(encoder, runs):
    voices = [encoder.encode(clip()) for _ in range(20)]
    assert sorted(runs) == ["CodecEncoder", "SpeakerEncoder"]
    assert all(voice.vector is voices[0].vector for voice in voices)


def test_other_samples_or_another_silence_are_encoded_anew(encoder, runs):
    encoder.encode(clip(seed=0))
    encoder.encode(clip(seed=1))
    encoder.encode(clip(seed=0), tail_silence_s=0.25)
    assert runs.count("SpeakerEncoder") == 2
    assert runs.count("CodecEncoder") == 3


def test_equal_requests_at_once_are_computed_once(encoder, runs, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    vector = encoder._vector

    def slow(heard):
        entered.set()
        assert go_on.wait(10)
        return vector(heard)

    monkeypatch.setattr(encoder, "_vector", slow)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(encoder.encode, clip()) for _ in range(4)]
        assert entered.wait(10)
        go_on.set()
        voices = [each.result(10) for each in asked]
    assert sorted(runs) == ["CodecEncoder", "SpeakerEncoder"]
    assert all(voice.codes is voices[0].codes for voice in voices)


def test_a_failure_reaches_everyone_who_waited_and_is_not_remembered(encoder, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()

    def failing(_):
        entered.set()
        assert go_on.wait(10)
        raise RuntimeError("out of memory")

    with monkeypatch.context() as broken, ThreadPoolExecutor(2) as pool:
        broken.setattr(encoder, "_vector", failing)
        first = pool.submit(encoder.encode, clip())
        assert entered.wait(10)
        second = pool.submit(encoder.encode, clip())
        go_on.set()
        for each in (first, second):
            assert isinstance(each.exception(10), RuntimeError)
    assert encoder.encode(clip()).vector.any()


def test_what_is_kept_is_bounded_in_bytes_and_the_oldest_goes_first(spec, runs):
    room = spec.talker.talker.hidden * 4 * 2
    encoder = VoiceEncoder(spec, cache_bytes=room)
    for seed in (0, 1, 0, 2, 0, 1):
        encoder.encode(clip(seed=seed), codes=False)
        assert encoder._results._bytes <= room
    assert len(runs) == 4  # 0 is used again and stays, 1 went for 2


def test_forgetting_frees_all_results(encoder, runs):
    encoder.encode(clip(), codes=False)
    encoder.forget()
    assert (encoder._results._bytes, len(encoder._results._kept)) == (0, 0)
    encoder.encode(clip(), codes=False)
    assert len(runs) == 2


def test_results_are_shared_and_cannot_be_written(encoder):
    voice = encoder.encode(clip())
    for array in (voice.vector, voice.codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_clip_is_left_alone(encoder):
    mine = clip()
    encoder.encode(mine, tail_silence_s=0.1)
    np.testing.assert_array_equal(mine, clip())
    mine[0] = 0.5
    assert mine.flags.writeable


def test_encoders_stay_in_f32(encoder):
    encoder.encode(clip())
    parameters = [*encoder._speaker.parameters(), *encoder._codec.parameters()]
    assert {each.dtype for each in parameters} == {torch.float32}
    assert not any(each.requires_grad for each in parameters)


def test_convolutions_are_not_rounded_to_tf32_meanwhile(encoder, monkeypatch):
    seen = []
    for module in (SpeakerEncoder, CodecEncoder):
        forward = module.forward

        def watched(self, x, forward=forward):
            seen.append(torch.backends.cudnn.allow_tf32)
            return forward(self, x)

        monkeypatch.setattr(module, "forward", watched)
    before = torch.backends.cudnn.allow_tf32
    encoder.encode(clip())
    assert seen == [False, False]
    assert torch.backends.cudnn.allow_tf32 == before


def test_a_model_without_a_speaker_encoder_says_what_is_needed(custom_voice):
    encoder = VoiceEncoder(read_model_spec(custom_voice.talker, custom_voice.codec))
    assert not encoder.can_encode
    with pytest.raises(UnsupportedMode, match="use a Base model") as caught:
        encoder.encode(clip())
    assert caught.value.field == "ref_audio"


def test_a_codec_without_an_encoder_still_gives_vectors(spec):
    encoder = VoiceEncoder(replace(spec, codec=replace(spec.codec, encoder=None)))
    with pytest.raises(UnsupportedMode, match="`x_vector_only_mode`"):
        encoder.encode(clip())
    assert encoder.encode(clip(), codes=False).vector.any()


def test_a_vector_of_another_width_than_the_talkers_is_the_files_fault(spec):
    narrow = replace(spec.talker.speaker_encoder, width=16)
    encoder = VoiceEncoder(replace(spec, talker=replace(spec.talker, speaker_encoder=narrow)))
    with pytest.raises(ModelFileError, match="makes 16 values, the talker takes 64"):
        encoder.encode(clip())


@pytest.mark.parametrize("pcm", [clip(2399), clip().reshape(2, -1)], ids=["short", "stereo"])
def test_a_clip_too_short_or_of_two_channels_is_refused(encoder, pcm):
    with pytest.raises(InvalidRequest, match=r"mono and at least 0\.1 s"):
        encoder.encode(pcm)


def test_the_shortest_clip_allowed_is_encoded(encoder):
    assert np.isfinite(encoder.encode(clip(2400)).vector).all()


def test_a_clip_too_loud_for_numbers_is_refused(encoder):
    with pytest.raises(InvalidRequest, match="too loud"):
        encoder.encode(clip() * np.float32(1e30))


@pytest.mark.parametrize("silence", [-0.1, 2.5, np.nan])
def test_a_silence_out_of_range_is_refused_with_the_range(encoder, silence):
    with pytest.raises(InvalidRequest, match="from 0 to 2 s") as caught:
        encoder.encode(clip(), tail_silence_s=silence)
    assert caught.value.field == "ref_tail_silence"
