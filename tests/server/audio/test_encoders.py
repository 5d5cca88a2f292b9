import dataclasses
import io
import wave

import av
import numpy as np
import pytest

from server.audio import encoders
from server.audio.encoders import FORMATS, available_formats, open_encoder

RATE = 24_000
MAGIC = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}
CODED = ("mp3", "opus", "aac", "flac")


def sweep(samples: int) -> np.ndarray:
    """A tone that rises to its end, so that a lost end is a lost pitch."""
    hertz = np.linspace(200, 1_500, samples)
    return 0.3 * np.sin(2 * np.pi * np.cumsum(hertz) / RATE)


def encode(name: str, pcm: np.ndarray, chunk: int = 1_920) -> bytes:
    samples = np.rint(pcm * 32_767).astype("<i2")
    encoder = open_encoder(FORMATS[name], RATE)
    for start in range(0, len(samples), chunk):
        encoder.write(samples[start : start + chunk].tobytes())
    return encoder.finish()


def decode(body: bytes) -> tuple[np.ndarray, int]:
    """Every sample ffmpeg gets out of a file, F32, and the rate; an error is raised."""
    with av.open(io.BytesIO(body)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=None)
        frames = list(container.decode(audio=0))
        rate = frames[0].sample_rate
        parts = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]
    return np.concatenate(parts), rate


def test_this_machine_makes_all_six_formats():
    assert available_formats() == ("mp3", "opus", "aac", "flac", "wav", "pcm")


def test_a_missing_encoder_is_found_at_start(monkeypatch):
    broken = dataclasses.replace(FORMATS["opus"], codec="no_such_codec")
    monkeypatch.setitem(FORMATS, "opus", broken)
    assert available_formats() == ("mp3", "aac", "flac", "wav", "pcm")


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 25])
@pytest.mark.parametrize("name", CODED)
def test_a_decoded_clip_is_at_most_60_ms_longer_and_never_shorter(name, frames):
    pcm = sweep(frames * 1_920)
    decoded, rate = decode(encode(name, pcm))
    assert 0 <= len(decoded) / rate - len(pcm) / RATE <= 0.060


@pytest.mark.parametrize("name", CODED)
def test_the_sound_survives_from_its_first_to_its_last_moment(name):
    pcm = sweep(48_000)
    decoded, rate = decode(encode(name, pcm))
    decoded = decoded[:: rate // RATE]
    for at in (0, len(pcm) - 4_800):
        piece = pcm[at : at + 4_800]
        window = decoded[at : at + 4_800 + 1_440]
        windows = np.lib.stride_tricks.sliding_window_view(window, len(piece))
        norms = np.linalg.norm(windows, axis=1) * np.linalg.norm(piece) + 1e-9
        assert np.max(windows @ piece / norms) > 0.9


def test_flac_holds_exactly_the_samples_of_the_wav():
    pcm = sweep(10_000)
    decoded, rate = decode(encode("flac", pcm))
    with wave.open(io.BytesIO(encode("wav", pcm))) as file:
        samples = np.frombuffer(file.readframes(10_000), "<i2")
    assert rate == RATE
    assert np.array_equal(np.rint(decoded * 32_768).astype("<i2"), samples)


@pytest.mark.parametrize("name", ["opus", "flac", "wav"])
def test_containers_begin_with_their_magic_bytes(name):
    assert encode(name, sweep(5_000)).startswith(MAGIC[name])


def test_mp3_begins_with_a_sound_frame_and_has_neither_id3_nor_xing():
    body = encode("mp3", sweep(48_000))
    assert body[0] == 0xFF and body[1] & 0xE6 == 0xE2  # sync word, layer III
    assert not any(tag in body for tag in (b"ID3", b"TAG", b"Xing", b"Info"))


def test_aac_is_adts():
    body = encode("aac", sweep(48_000))
    assert body[0] == 0xFF and body[1] & 0xF6 == 0xF0


def test_joined_mp3_replies_decode_as_one():
    one = encode("mp3", sweep(19_200))
    decoded, rate = decode(one + one)
    assert len(decoded) == 2 * len(decode(one)[0])
    assert rate == RATE


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_the_bytes_do_not_depend_on_how_the_samples_were_cut(name):
    pcm = sweep(20_000)
    assert encode(name, pcm, chunk=1_920) == encode(name, pcm, chunk=7_001)


def test_only_pcm_states_its_rate_in_the_content_type():
    assert FORMATS["pcm"].content_type(RATE) == "audio/pcm;rate=24000;channels=1"
    assert FORMATS["mp3"].content_type(RATE) == "audio/mpeg"


def test_short_mp3_replies_decode_without_an_error_on_the_last_packet():
    for samples in range(1_920, 1_920 + 24 * 97, 97):
        with av.open(io.BytesIO(encode("mp3", sweep(samples))), format="mp3") as container:
            container.streams.audio[0].codec_context.options = {"err_detect": "explode"}
            decoded = sum(frame.samples for frame in container.decode(audio=0))
        assert decoded >= samples


def test_the_probe_makes_real_files(monkeypatch):
    monkeypatch.setattr(encoders.PcmEncoder, "finish", lambda self: b"")
    assert "pcm" not in available_formats()
