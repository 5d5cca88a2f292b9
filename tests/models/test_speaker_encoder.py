"""The speaker encoder and its log-mel, without a checkpoint."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.codec import mel as mel_module
from engine.codec.mel import HOP, WINDOW, log_mel, mel_filters
from engine.config import SpeakerEncoderSpec
from engine.errors import ModelFileError
from engine.gguf.spec import read_talker_spec
from engine.gguf.tensors import TensorFile
from engine.models import speaker_encoder as module
from engine.models.speaker_encoder import SpeakerEncoder
from engine.pieces import run_through
from tests.gguf.files import rewrite

SPEC = SpeakerEncoderSpec(
    mels=20,
    channels=24,
    kernel=5,
    blocks=3,
    block_kernel=3,
    scale=4,
    squeezed=6,
    attention=10,
    width=14,
)


def encoder(spec=SPEC):
    torch.manual_seed(0)
    return SpeakerEncoder(spec).eval()


def hz_of_mel(mel):
    # Slaney: 3 mels per 200 Hz up to 1 kHz (15 mels), then 27 mels per factor of 6.4.
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def test_filters_are_triangles_of_unit_area_between_corners_even_in_mels():
    highest = 15 + 27 * np.log(12) / np.log(6.4)
    corners = [hz_of_mel(mel) for mel in np.linspace(0, highest, 130)]
    assert corners[-1] == pytest.approx(12000)
    hz = np.arange(513) * 24000 / 1024
    for row in (0, 17, 60, 127):
        left, top, right = corners[row : row + 3]
        height = 2 / (right - left)
        expected = np.interp(hz, (left, top, right), (0, height, 0))
        np.testing.assert_allclose(mel_filters(128)[row], expected, rtol=1e-9, atol=1e-12)


def test_the_shared_filters_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        mel_filters(128)[0, 0] = 1.0


@pytest.mark.parametrize("samples", [7200, 24000, 24001])
def test_a_frame_of_the_mel_is_the_windowed_spectrum_there(samples):
    pcm = np.random.RandomState(samples).standard_normal(samples) * 0.1
    mel = log_mel(torch.from_numpy(pcm).float(), 40).numpy()
    assert mel.shape == (40, (samples - HOP) // HOP + 1)
    padded = np.pad(pcm, (WINDOW - HOP) // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    for frame in (0, 7, mel.shape[1] - 1):
        spectrum = np.fft.rfft(padded[frame * HOP :][:WINDOW] * window)
        expected = np.log(mel_filters(40) @ np.sqrt(np.abs(spectrum) ** 2 + 1e-9))
        np.testing.assert_allclose(mel[:, frame], expected, rtol=0, atol=1e-4)


def test_silence_lies_on_the_floor_of_the_mel():
    assert log_mel(torch.zeros(9600), 128).numpy() == pytest.approx(np.log(1e-5))


def test_a_tone_is_loudest_in_the_filter_around_it():
    pcm = torch.sin(2 * torch.pi * 3000 * torch.arange(24000) / 24000)
    loudest = int(log_mel(pcm, 128).mean(1).argmax())
    assert loudest == mel_filters(128)[:, 128].argmax()  # bin 128 is 3 kHz


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, blocks=2, channels=16, scale=8, kernel=3)])
def test_a_mel_of_any_length_becomes_one_vector(spec):
    for frames in (6, 27, 300):
        vector = encoder(spec)(torch.randn(1, spec.mels, frames))
        assert vector.shape == (1, spec.width)
        assert torch.isfinite(vector).all()


def test_a_batch_is_its_clips_one_by_one():
    mels = torch.randn(3, SPEC.mels, 40)
    together = encoder()(mels)
    alone = torch.cat([encoder()(mel[None]) for mel in mels])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_a_vector_does_not_depend_on_the_pieces(monkeypatch):
    mel = torch.randn(1, SPEC.mels, 61)
    whole = encoder()(mel)
    monkeypatch.setattr(module, "FRAMES", 7)
    monkeypatch.setattr(module, "CHANNELS", 5)
    torch.testing.assert_close(encoder()(mel), whole, rtol=0, atol=1e-5)
    assert sum(1 for _ in encoder().steps(mel)) > 100


def test_a_mel_does_not_depend_on_the_pieces(monkeypatch):
    pcm = torch.from_numpy(np.random.RandomState(0).standard_normal(30_001) * 0.1).float()
    whole = log_mel(pcm, 40)
    monkeypatch.setattr(mel_module, "FRAMES", 9)
    torch.testing.assert_close(log_mel(pcm, 40), whole, rtol=0, atol=1e-5)


def test_blocks_dilate_by_their_number_and_one():
    dilations = [block.res2net[0].dilation for block in encoder().blk.values()]
    assert dilations == [(2,), (3,), (4,)]


def test_a_voice_that_never_changes_has_a_deviation_of_next_to_nothing():
    pooling = encoder().asp
    constant = torch.randn(1, 72, 1).expand(-1, -1, 50)
    mean, deviation = run_through(pooling.steps(constant)).chunk(2, dim=1)
    torch.testing.assert_close(mean, constant[..., :1], rtol=0, atol=1e-5)
    assert deviation.max() < 1e-5
    assert deviation.min() >= 1e-6 * 0.999  # the root of the variance's floor


def test_every_width_is_read_from_the_tensors(base):
    with TensorFile(base.talker) as file:
        spec = read_talker_spec(file).speaker_encoder
    assert spec == SpeakerEncoderSpec(
        mels=128,
        channels=16,
        kernel=5,
        blocks=3,
        block_kernel=3,
        scale=8,
        squeezed=8,
        attention=8,
        width=64,
    )
    assert spec.reach == 4


def test_a_file_without_the_tensors_has_no_encoder_whatever_its_keys_say(base, tmp_path):
    path = rewrite(base.talker, tmp_path / "plain.gguf", {}, "spk_enc.")
    with TensorFile(path) as file:
        assert "qwen3-tts.spk_enc.embedding_length" in file.metadata
        assert read_talker_spec(file).speaker_encoder is None


@pytest.mark.parametrize(
    "name", ["conv0.weight", "blk.1.tdnn1.weight", "blk.1.res2net.0.weight", "fc.weight"]
)
def test_a_missing_tensor_is_named(name, base, tmp_path):
    path = rewrite(base.talker, tmp_path / "less.gguf", {}, f"spk_enc.{name}")
    with TensorFile(path) as file, pytest.raises(ModelFileError, match=f"no tensor `.*{name}`"):
        read_talker_spec(file)


def test_a_file_that_lacks_a_group_of_channels_is_not_supported(base, tmp_path):
    path = rewrite(base.talker, tmp_path / "groups.gguf", {}, "spk_enc.blk.1.res2net.6")
    with TensorFile(path) as file, pytest.raises(ModelFileError, match="16 channels in 7 groups"):
        read_talker_spec(file)
