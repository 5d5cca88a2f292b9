import io
import struct
import wave

from server.audio.wav import wav_header


def test_a_header_with_a_known_size_reads_as_mono_16_bit_pcm():
    header = wav_header(24_000, 4_000)
    with wave.open(io.BytesIO(header + bytes(4_000))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.getnframes() == 2_000
    assert len(header) == 44
    assert struct.unpack_from("<I", header, 4) == (4_036,)


def test_a_stream_has_both_sizes_at_the_maximum():
    header = wav_header(24_000, None)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"


def test_a_clip_beyond_32_bits_is_headed_like_a_stream():
    assert wav_header(24_000, 2**32) == wav_header(24_000, None)
