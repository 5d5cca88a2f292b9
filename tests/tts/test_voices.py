"""The encoders of a model: what is heard when, what is kept, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.codec.encoder import CodecEncoder
from engine.errors import InvalidRequest
from engine.gguf.spec import read_model_spec
from engine.models.speaker_encoder import SpeakerEncoder
from engine.pieces import run_through
from engine.tts.kept import Keeper
from engine.tts.voices import VoiceEncoder
from engine.voice import Clip

ROOM = 1 << 20


@pytest.fixture(scope="module")
def spec(base):
    return read_model_spec(base.talker, base.codec)


@pytest.fixture
def encoder(spec):
    return VoiceEncoder(spec, Keeper(ROOM))


@pytest.fixture
def runs(monkeypatch):
    """Names of the encoders, one per run."""
    ran = []
    for module in (SpeakerEncoder, CodecEncoder):
        steps = module.steps

        def counted(self, x, steps=steps):
            ran.append(type(self).__name__)
            return steps(self, x)

        monkeypatch.setattr(module, "steps", counted)
    return ran


def noise(samples=24000, seed=0, level=0.1):
    return (np.random.RandomState(seed).standard_normal(samples) * level).astype("f4")


def clip(samples=24000, seed=0):
    return Clip.of(noise(samples, seed))


def hear(encoder, heard, tail_s=0.0):
    return run_through(encoder.steps(heard, tail_s))


def test_a_clip_becomes_a_vector_of_the_talkers_width_and_codes_of_its_frames(spec, encoder):
    vector, codes = hear(encoder, clip(24001))
    assert vector.shape == (spec.talker.talker.hidden,)
    assert vector.dtype == np.float32
    assert codes.shape == (spec.talker.code_groups, 13)
    assert codes.dtype == np.int64


def test_a_vector_alone_needs_no_codec_encoder(encoder, runs):
    assert hear(encoder, clip(), None).codes is None
    assert runs == ["SpeakerEncoder"]
    assert encoder._codec is None


def test_encoders_are_loaded_when_they_are_needed_and_counted_as_memory(encoder):
    assert (encoder._speaker, encoder._codec, encoder.nbytes) == (None, None, 0)
    hear(encoder, clip(), None)
    alone = encoder.nbytes
    hear(encoder, clip())
    assert 0 < alone < encoder.nbytes


def test_the_silence_is_appended_for_the_codes_and_leaves_the_vector(encoder):
    plain, padded = hear(encoder, clip()), hear(encoder, clip(), 0.5)
    by_hand = hear(encoder, Clip.of(np.concatenate((noise(), np.zeros(12000, np.float32)))))
    assert padded.codes.shape[1] == 19
    assert padded.codes.tolist() == by_hand.codes.tolist()
    assert padded.vector is plain.vector


def test_the_same_clip_is_heard_once(encoder, runs):
    voices = [hear(encoder, clip()) for _ in range(20)]
    assert sorted(runs) == ["CodecEncoder", "SpeakerEncoder"]
    assert encoder.runs == 2
    assert all(voice.vector is voices[0].vector for voice in voices)


def test_other_samples_or_another_silence_are_heard_anew(encoder, runs):
    hear(encoder, clip(seed=0))
    hear(encoder, clip(seed=1))
    hear(encoder, clip(seed=0), 0.25)
    assert runs.count("SpeakerEncoder") == 2
    assert runs.count("CodecEncoder") == 3


def test_it_knows_what_it_has_heard_whole(encoder):
    assert encoder.known(clip(), None) is None
    hear(encoder, clip(), None)
    assert encoder.known(clip(), None).codes is None
    assert encoder.known(clip(), 0.5) is None
    heard = hear(encoder, clip(), 0.5)
    assert encoder.known(clip(), 0.5).codes is heard.codes
    assert encoder.known(clip(), 0.25) is None


def test_what_is_put_aside_between_pieces_comes_to_the_same(spec, encoder):
    one, other = encoder.steps(clip(48_000, 1), 0.5), encoder.steps(clip(60_000, 2), 0.5)
    for _ in range(12):
        next(one)
        next(other)
    fresh = VoiceEncoder(spec, Keeper(ROOM))
    for steps, seed, samples in ((other, 2, 60_000), (one, 1, 48_000)):
        between, alone = run_through(steps), hear(fresh, clip(samples, seed), 0.5)
        np.testing.assert_array_equal(between.vector, alone.vector)
        np.testing.assert_array_equal(between.codes, alone.codes)


def test_nothing_of_an_encoding_that_was_given_up_is_kept(encoder):
    steps = encoder.steps(clip(), 0.5)
    for _ in range(5):
        next(steps)
    steps.close()
    assert encoder.known(clip(), None) is None
    assert hear(encoder, clip()).codes.any()


def test_results_are_shared_and_cannot_be_written(encoder):
    for array in hear(encoder, clip()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_encoders_stay_in_f32_without_gradients(encoder):
    hear(encoder, clip())
    parameters = [*encoder._speaker.parameters(), *encoder._codec.parameters()]
    assert {each.dtype for each in parameters} == {torch.float32}
    assert not any(each.requires_grad for each in parameters)


def test_convolutions_are_not_rounded_to_tf32_in_a_piece_and_may_be_between(encoder):
    cudnn = torch.backends.cudnn
    before, cudnn.allow_tf32 = cudnn.allow_tf32, True
    seen = []
    convolve = torch.nn.Conv1d.forward
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torch.nn.Conv1d,
                "forward",
                lambda self, x: seen.append(cudnn.allow_tf32) or convolve(self, x),
            )
            between = [cudnn.allow_tf32 for _ in encoder.steps(clip(), 0.0)]
    finally:
        cudnn.allow_tf32 = before
    assert set(seen) == {False}
    assert set(between) == {True}


def test_a_clip_too_loud_for_numbers_is_refused(encoder):
    with pytest.raises(InvalidRequest, match="too loud") as caught:
        hear(encoder, Clip.of(noise() * np.float32(1e30)))
    assert caught.value.field == "ref_audio"


def test_a_file_without_the_tensors_fails_every_time(spec, tmp_path):
    (tmp_path / "gone.gguf").write_bytes(b"")
    encoder = VoiceEncoder(replace(spec, codec_path=tmp_path / "gone.gguf"), Keeper(ROOM))
    for _ in range(2):
        with pytest.raises(Exception, match=r"gone\.gguf"):
            hear(encoder, clip())
    assert hear(encoder, clip(), None).vector.any()
