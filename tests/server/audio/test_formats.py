import pytest

from server.audio.formats import FORMATS


@pytest.mark.parametrize(
    ("name", "asked", "rate"),
    [
        ("mp3", None, 24_000), ("mp3", 44_100, 44_100), ("mp3", 9_000, 11_025),
        ("opus", None, 24_000), ("opus", 22_050, 24_000), ("opus", 44_100, 48_000),
        ("aac", None, 48_000), ("aac", 16_000, 16_000), ("flac", 12_345, 12_345),
        ("wav", None, 24_000), ("pcm", None, 24_000), ("pcm", 8_000, 8_000),
        ("ulaw", None, 8_000), ("alaw", 16_000, 16_000),
    ],
)  # fmt: skip
def test_the_rate_is_the_one_asked_for_or_the_next_one_the_codec_knows(name, asked, rate):
    assert FORMATS[name].rate_for(asked, 24_000) == rate


def test_pcm_is_24_khz_whatever_the_model_makes():
    assert FORMATS["pcm"].rate_for(None, 16_000) == 24_000
    assert FORMATS["wav"].rate_for(None, 16_000) == 16_000


def test_only_what_has_no_header_states_its_rate_in_the_content_type():
    assert FORMATS["pcm"].content_type(24_000) == "audio/pcm;rate=24000;channels=1"
    assert FORMATS["ulaw"].content_type(8_000) == "audio/PCMU;rate=8000;channels=1"
    assert FORMATS["alaw"].content_type(8_000) == "audio/PCMA;rate=8000;channels=1"
    for name in ("mp3", "opus", "aac", "flac", "wav"):
        assert ";" not in FORMATS[name].content_type(24_000)
