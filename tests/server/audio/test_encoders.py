import dataclasses
import gc
import io
import wave

import av
import numpy as np
import pytest
import soundfile

from server.audio import encoders
from server.audio.encoders import available_formats, open_encoder
from server.audio.formats import FORMATS
from tests.server.audio.sounds import (
    CODED,
    FRAME,
    RATE,
    RAW,
    decode,
    shaped,
    streamed,
    sweep,
    whole,
)

MAGIC = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}
WAYS = [
    pytest.param(lambda shape, pcm: b"".join(streamed(shape, pcm)), id="streamed"),
    pytest.param(whole, id="whole"),
]
# What a decoder may still wait for after a write, less than one step of the engine: frames that
# are not full, an encoder's look-ahead, blocks of the rate converter.
HELD_S = {
    "mp3": 0.065, "opus": 0.028, "aac": 0.070, "flac": 0.024, "ulaw": 0.072, "alaw": 0.072,
}  # fmt: skip


def raw_shape(shape):
    return shape if shape.format.name in RAW else None


def test_this_machine_makes_every_format():
    assert available_formats() == ("mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw")


def test_a_missing_encoder_is_found_at_start(monkeypatch):
    broken = dataclasses.replace(FORMATS["opus"], codec="no_such_codec")
    monkeypatch.setitem(FORMATS, "opus", broken)
    assert available_formats() == ("mp3", "aac", "flac", "wav", "pcm", "ulaw", "alaw")


def test_the_probe_makes_real_files(monkeypatch):
    monkeypatch.setattr(encoders.PcmEncoder, "write", lambda self, pcm16: b"")
    assert "pcm" not in available_formats()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("frames", [1, 2, 3, 7, 25])
@pytest.mark.parametrize("name", FORMATS)
def test_a_decoded_clip_is_at_most_60_ms_longer_and_never_shorter(name, frames, way):
    shape = shaped(name)
    decoded, rate = decode(way(shape, sweep(frames * FRAME)), raw_shape(shape))
    assert 0 <= len(decoded) / rate - frames * FRAME / RATE <= 0.060


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CODED)
def test_the_sound_survives_from_its_first_to_its_last_moment(name, way):
    pcm = sweep(48_000)
    decoded, rate = decode(way(shaped(name), pcm))
    decoded = decoded[:: rate // RATE]
    for at in (0, len(pcm) - 4_800):
        piece = pcm[at : at + 4_800]
        window = decoded[at : at + 4_800 + 1_440]
        windows = np.lib.stride_tricks.sliding_window_view(window, len(piece))
        norms = np.linalg.norm(windows, axis=1) * np.linalg.norm(piece) + 1e-9
        assert np.max(windows @ piece / norms) > 0.9


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("wav", "flac")])
def test_streamed_and_whole_containers_are_the_same_bytes(name):
    pcm = sweep(30_000)
    assert b"".join(streamed(shaped(name), pcm)) == whole(shaped(name), pcm)


@pytest.mark.parametrize("name", ["wav", "flac"])
def test_containers_with_a_length_in_their_head_differ_in_nothing_else(name):
    pcm = sweep(30_000)
    open_end, known = b"".join(streamed(shaped(name), pcm)), whole(shaped(name), pcm)
    assert open_end != known and len(open_end) == len(known)
    assert open_end[44:] == known[44:]


@pytest.mark.parametrize("name", FORMATS)
def test_every_80_ms_of_sound_give_bytes_at_once_the_first_ones_too(name):
    writes = streamed(shaped(name), sweep(10 * FRAME))[:-1]
    assert len(writes) == 10 and all(writes)


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_written_can_be_decoded_before_the_next_80_ms_are_made(name):
    shape, received = shaped(name), b""
    for number, data in enumerate(streamed(shape, sweep(10 * FRAME))[:-1], 1):
        received += data
        if number == 1:
            continue  # ffmpeg wants more than one frame of MP3 to know what it is
        decoded, rate = decode(received, raw_shape(shape))
        assert number * FRAME / RATE - len(decoded) / rate <= HELD_S.get(name, 0.0) + 1e-6


@pytest.mark.parametrize("name", ["wav", "mp3", "opus", "flac"])
def test_libsndfile_reads_what_ffmpeg_reads(name):
    pcm = sweep(30_000)
    known = whole(shaped(name), pcm)
    decoded, _ = decode(known)
    samples, rate = soundfile.read(io.BytesIO(known), dtype="float32")
    # Opus always plays at 48 kHz for ffmpeg.
    assert len(samples) / rate == pytest.approx(len(decoded) / (48_000 if name == "opus" else rate))


@pytest.mark.parametrize("name", ["wav", "mp3", "opus"])  # FLAC: only with a length in its head
def test_libsndfile_reads_a_streamed_reply_too(name):
    pcm = sweep(30_000)
    samples, rate = soundfile.read(io.BytesIO(b"".join(streamed(shaped(name), pcm))))
    assert rate == RATE
    assert 0 <= len(samples) - len(pcm) <= 0.060 * RATE


def test_flac_holds_exactly_the_samples_of_the_wav():
    pcm = sweep(10_000)
    decoded, rate = decode(whole(shaped("flac"), pcm))
    with wave.open(io.BytesIO(whole(shaped("wav"), pcm))) as file:
        samples = np.frombuffer(file.readframes(10_000), "<i2")
    assert rate == RATE
    assert np.array_equal(np.rint(decoded * 32_768).astype("<i2"), samples)


@pytest.mark.parametrize("name", MAGIC)
def test_containers_begin_with_their_magic_bytes_and_do_so_once(name):
    body = b"".join(streamed(shaped(name), sweep(50_000)))
    assert body.startswith(MAGIC[name])
    begun = {"opus": b"OpusHead", "flac": b"fLaC", "wav": b"WAVEfmt "}[name]
    assert body.count(begun) == 1


def test_mp3_begins_with_a_sound_frame_and_has_neither_id3_nor_xing():
    body = b"".join(streamed(shaped("mp3"), sweep(48_000)))
    assert body[0] == 0xFF and body[1] & 0xE6 == 0xE2  # sync word, layer III
    assert not any(tag in body for tag in (b"ID3", b"TAG", b"Xing", b"Info"))


def test_aac_is_adts():
    body = b"".join(streamed(shaped("aac"), sweep(48_000)))
    assert body[0] == 0xFF and body[1] & 0xF6 == 0xF0


def test_joined_mp3_replies_decode_as_one():
    one = b"".join(streamed(shaped("mp3"), sweep(19_200)))
    decoded, rate = decode(one + one)
    assert len(decoded) == 2 * len(decode(one)[0])
    assert rate == RATE


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_do_not_depend_on_how_the_samples_were_cut(name):
    pcm = sweep(20_000)
    pieces = [b"".join(streamed(shaped(name), pcm, chunk)) for chunk in (FRAME, 7_001, 333)]
    assert pieces[0] == pieces[1] == pieces[2]


def test_short_mp3_replies_decode_without_an_error_on_the_last_packet():
    for samples in range(FRAME, FRAME + 24 * 97, 97):
        body = b"".join(streamed(shaped("mp3"), sweep(samples)))
        with av.open(io.BytesIO(body), format="mp3") as container:
            container.streams.audio[0].codec_context.options = {"err_detect": "explode"}
            decoded = sum(frame.samples for frame in container.decode(audio=0))
        assert decoded >= samples


@pytest.mark.parametrize("name", ["ulaw", "alaw"])
def test_telephone_sound_has_one_byte_per_sample_at_8_khz(name):
    body = b"".join(streamed(shaped(name), sweep(48_000)))
    assert len(body) == 16_000
    assert set(body) - {0xFF, 0x7F, 0xD5, 0x55}


@pytest.mark.parametrize(("name", "tag"), [("ulaw", 7), ("alaw", 6)])
def test_telephone_sound_may_have_a_wav_header(name, tag):
    entry = dataclasses.replace(FORMATS[name], wav_tag=tag)
    shape = dataclasses.replace(shaped(name), format=entry)
    for body in (whole(shape, sweep(48_000)), b"".join(streamed(shape, sweep(48_000)))):
        with soundfile.SoundFile(io.BytesIO(body)) as file:
            assert (file.samplerate, file.channels) == (8_000, 1)
            assert file.subtype == name.upper()
        assert len(decode(body)[0]) == 16_000


@pytest.mark.parametrize("name", CODED)
def test_an_encoder_can_be_let_go_of_at_any_time(name):
    entry = FORMATS[name]
    rate = entry.rate_for(None, RATE)
    for writes in range(4):
        encoder = open_encoder(entry, rate)
        for _ in range(writes):
            encoder.write(bytes(2 * FRAME))
        encoder.close()
        encoder.close()
        del encoder
    gc.collect()
