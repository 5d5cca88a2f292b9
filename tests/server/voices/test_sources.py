"""Reference sound inside a request, and the switch for URLs."""

import base64

import pytest

import engine
from server.voices.sources import Sources, decode_inline

pytestmark = pytest.mark.anyio

SOUND = bytes(range(256)) * 3


@pytest.fixture
def anyio_backend():
    return "asyncio"


def wrapped(text):
    return "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))


@pytest.mark.parametrize(
    "value",
    [
        base64.b64encode(SOUND).decode(),
        base64.urlsafe_b64encode(SOUND).decode(),
        base64.b64encode(SOUND).decode().rstrip("="),
        f" {wrapped(base64.b64encode(SOUND).decode())}\n",
        "data:audio/wav;base64," + base64.b64encode(SOUND).decode(),
        "DATA:audio/x-wav;codecs=1;BASE64," + base64.b64encode(SOUND).decode(),
        "data:;base64," + base64.b64encode(SOUND).decode(),
    ],
)
def test_base64_is_read_bare_or_as_a_data_url_in_either_alphabet(value):
    assert decode_inline(value, 10_000, "ref_audio") == SOUND


@pytest.mark.parametrize("length", [0, 1, 2, 3, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_every_length_survives(length):
    sound = bytes(length)
    assert decode_inline(base64.b64encode(sound).decode(), 1 << 21, "ref_audio") == sound


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("data:audio/wav,abc", "must be base64"),
        ("data:audio/wav;base64", "must be base64"),
        ("no base64!", "must be a `data:` URL or base64"),
        ("AAAA\u00e9AAA", "must be a `data:` URL or base64"),
        ("AAAAA", "must be a `data:` URL or base64"),
        ("AA==AAAA", "must be a `data:` URL or base64"),
        ("ftp://a.example/x.wav", "must be a `data:` URL or base64"),
    ],
)
def test_what_is_neither_is_refused(value, told):
    with pytest.raises(engine.InvalidRequest, match=told) as caught:
        decode_inline(value, 10_000, "ref_audio")
    assert caught.value.field == "ref_audio"


def test_too_much_is_refused_before_it_is_decoded(monkeypatch):
    exact = base64.b64encode(bytes(1000)).decode()
    assert len(decode_inline(exact, 1000, "ref_audio")) == 1000
    monkeypatch.setattr("server.voices.sources.binascii", None)
    for length in (1004, 2000, 1_000_000):
        value = base64.b64encode(bytes(length)).decode()
        with pytest.raises(engine.PayloadTooLarge, match="`max_clip_bytes`"):
            decode_inline(value, 1000, "ref_audio")


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("http://127.0.0.1:1/x.wav", "ref_url_hosts"),
        (" HTTPS://a.example/x.wav", "ref_url_hosts"),
        ("file:///etc/passwd", "ref_file_dir"),
    ],
)
async def test_urls_are_refused_unless_allowed_naming_the_setting(url, setting):
    with pytest.raises(engine.InvalidRequest, match=setting) as caught:
        await Sources(1000).read(url, "ref_audio")
    assert caught.value.field == "ref_audio"


async def test_an_allowed_file_and_a_data_url_are_read(tmp_path):
    (tmp_path / "x.wav").write_bytes(b"sound")
    sources = Sources(1000, folder=tmp_path)
    assert await sources.read(f"file://{tmp_path}/x.wav", "ref_audio") == b"sound"
    assert await sources.read("data:;base64,c291bmQ=", "ref_audio") == b"sound"
