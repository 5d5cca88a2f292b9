"""Clips of any common kind become mono samples at 24 kHz; anything else is refused by name."""

import io

import av
import numpy as np
import pytest
import soundfile

from engine.audio.decode import decode_audio
from engine.errors import InvalidRequest


def tone(seconds=1.0, rate=24000, level=0.5, hz=440.0):
    return (level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype("f4")


def written(pcm, rate=24000, container="WAV", subtype="FLOAT"):
    file = io.BytesIO()
    soundfile.write(file, pcm, rate, format=container, subtype=subtype)
    return file.getvalue()


def encoded(container, codec, pcm, rate=48000):
    """The sound through ffmpeg's muxer and encoder of those names."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(pcm[None], format="fltp", layout="mono")
        frame.rate = rate
        size = stream.codec_context.frame_size or 1024
        resampler = av.AudioResampler(stream.format.name, "mono", rate, frame_size=size)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            out.mux(stream.encode(piece))
        out.mux(stream.encode(None))
    return file.getvalue()


def loudest_hz(pcm):
    return np.abs(np.fft.rfft(pcm)).argmax() * 24000 / len(pcm)


def refusal(data, **options):
    with pytest.raises(InvalidRequest) as caught:
        decode_audio(data, **options)
    assert caught.value.field == "ref_audio"
    return str(caught.value)


@pytest.mark.parametrize(
    ("subtype", "step"),
    [("PCM_U8", 2**-7), ("PCM_16", 2**-15), ("PCM_24", 2**-23), ("PCM_32", 2**-24), ("FLOAT", 0)],
)
def test_a_wav_at_24_khz_comes_back_sample_by_sample(subtype, step):
    decoded = decode_audio(written(tone(), subtype=subtype))
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, tone(), rtol=0, atol=step)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 32000, 44100, 48000])
def test_every_rate_becomes_24_khz(rate):
    decoded = decode_audio(written(tone(rate=rate), rate))
    assert len(decoded) - 24000 in (0, 1)  # rounded up in floating point, as librosa does
    decoded = decoded[:24000]
    # The resampler rings at the ends, where the tone begins and stops at once.
    np.testing.assert_allclose(decoded[2000:-2000], tone()[2000:-2000], rtol=0, atol=2e-3)


def test_an_odd_length_is_rounded_up():
    assert len(decode_audio(written(tone()[:20011], 16000))) == 30017


def test_stereo_is_averaged():
    left, right = tone(level=0.5), tone(level=0.5, hz=1000.0)
    decoded = decode_audio(written(np.stack((left, right), axis=1)))
    np.testing.assert_allclose(decoded, (left + right) / 2, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mp3", "mp3"),
        ("ipod", "aac"),
        ("adts", "aac"),
        ("ogg", "libopus"),
        ("webm", "libopus"),
        ("flac", "flac"),
        ("matroska", "pcm_s24le"),
        ("wav", "pcm_s16le"),
        ("caf", "pcm_s16le"),
    ],
)
def test_containers_are_read(container, codec):
    decoded = decode_audio(encoded(container, codec, tone(rate=48000)))
    assert 24000 <= len(decoded) < 26000  # some say nothing of their encoder's delay
    assert abs(loudest_hz(decoded) - 440) < 2
    assert 0.4 < np.sort(np.abs(decoded))[-2000] < 0.6


def test_vorbis_is_read():
    decoded = decode_audio(written(tone(), container="OGG", subtype="VORBIS"))
    assert abs(loudest_hz(decoded) - 440) < 2


def test_no_bytes_are_said_to_be_none():
    assert refusal(b"") == "`ref_audio` is empty"


@pytest.mark.parametrize(
    "data",
    [
        b"This is text that somebody renamed to clip.wav\n" * 20,
        b"RIFF\x00\x00\x00\x00WAVE",
        bytes(5000),
        np.random.RandomState(0).bytes(20000),
        b"%PDF-1.7\n" + bytes(200),
    ],
    ids=["text", "empty-wav", "zeros", "noise", "pdf"],
)
def test_what_is_no_sound_is_refused_with_the_readable_kinds(data):
    message = refusal(data)
    assert "wav, flac, ogg, opus, mp3, m4a" in message


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile://{}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile {}\n",
    ],
    ids=["hls", "concat"],
)
def test_playlists_cannot_name_other_files(playlist, tmp_path):
    other = tmp_path / "other.wav"
    other.write_bytes(written(tone()))
    assert "cannot be read" in refusal(playlist.format(other).encode())


def test_a_video_without_sound_is_refused():
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    assert refusal(file.getvalue()) == "`ref_audio` has no sound track"


def test_a_clip_shorter_than_the_limit_is_refused_with_both_lengths():
    assert refusal(written(tone(0.25))) == (
        "`ref_audio` has 0.25 s of sound; at least 0.3 s are needed"
    )
    assert len(decode_audio(written(tone(0.3)))) == 7200


def test_a_clip_longer_than_the_limit_is_refused_with_it():
    assert refusal(written(tone(2.1)), most_s=2.0) == (
        "`ref_audio` is longer than 2 s, the most a reference may be"
    )
    assert len(decode_audio(written(tone(2.0)), most_s=2.0)) == 48000


@pytest.mark.parametrize("container", ["flac", "webm"])
def test_a_long_clip_is_given_up_before_it_is_decoded_whole(container, monkeypatch):
    codec = "flac" if container == "flac" else "libopus"
    data = encoded(container, codec, np.tile(tone(rate=48000), 20))
    held = []
    concatenate = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda blocks: held.append(1) or concatenate(blocks))
    assert "longer than 1 s" in refusal(data, most_s=1.0)
    assert not held


@pytest.mark.parametrize("rate", [4000, 400_000])
def test_a_rate_out_of_range_is_refused_with_the_range(rate):
    assert f"{rate} Hz; it must be from 8000 to 192000 Hz" in refusal(written(tone(), rate))


def test_too_many_channels_are_refused():
    assert "40 channels" in refusal(written(np.zeros((24000, 40), np.float32)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_refused(wrong):
    pcm = tone()
    pcm[777] = wrong
    assert "not finite" in refusal(written(pcm))


def test_both_ends_are_trimmed_where_they_are_silent():
    quiet = np.full(12000, 10 ** (-50 / 20), np.float32)
    data = written(np.concatenate((quiet, tone(0.5), quiet, tone(0.5), quiet)))
    decoded = decode_audio(data, trim_silence=True)
    assert len(decoded) == 36000  # the pause between stays
    np.testing.assert_array_equal(decoded[:12000], tone(0.5))
    assert len(decode_audio(data)) == 60000


def test_a_clip_of_silence_alone_is_too_short_once_trimmed():
    data = written(np.zeros(24000, np.float32))
    assert "0.00 s of sound that is not silence" in refusal(data, trim_silence=True)
    assert len(decode_audio(data)) == 24000


@pytest.mark.parametrize(
    ("container", "codec"), [("mp3", "mp3"), ("ipod", "aac"), ("flac", "flac")]
)
def test_damaged_files_are_read_or_refused(container, codec):
    whole = encoded(container, codec, tone(rate=48000))
    random = np.random.RandomState(1)
    refused = 0
    for _ in range(25):
        damaged = bytearray(whole[: random.randint(1, len(whole))])
        for at in random.randint(0, len(damaged), 20):
            damaged[at] = random.randint(256)
        try:
            assert np.isfinite(decode_audio(bytes(damaged))).all()
        except InvalidRequest:
            refused += 1
    assert refused  # the shortest pieces at least
