import io

import av
import pytest
import soundfile

import engine
from server.schemas.elevenlabs import OUTPUTS
from tests.fakes import Script, pcm16

pytestmark = pytest.mark.anyio
SPEAK = "/v1/text-to-speech/vivian"
HELLO = {"text": "Hello there.", "model_id": "eleven_multilingual_v2"}


async def test_a_text_is_spoken_in_the_voice_of_the_path_as_mp3(connect, fake):
    async with connect() as client:
        reply = await client.post(SPEAK, json=HELLO)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "audio/mpeg")
    assert int(reply.headers["content-length"]) == len(reply.content)
    assert fake.requests[0].voice == "vivian"
    with av.open(io.BytesIO(reply.content)) as container:
        assert container.streams.audio[0].rate == 44_100
        assert container.streams.audio[0].bit_rate == 128_000


@pytest.mark.parametrize("name", OUTPUTS)
async def test_every_output_format_has_its_rate(connect, name):
    async with connect() as client:
        reply = await client.post(f"{SPEAK}/stream", params={"output_format": name}, json=HELLO)
    assert reply.status_code == 200
    codec, rate = name.split("_")[:2]
    seconds = {"pcm": 2, "ulaw": 1, "alaw": 1}
    if codec in seconds:
        assert len(reply.content) == pytest.approx(0.4 * int(rate) * seconds[codec], abs=4)
    else:
        with soundfile.SoundFile(io.BytesIO(reply.content)) as file:
            assert file.samplerate == int(rate)


async def test_the_stream_route_sends_sound_while_it_is_made(fake, http):
    fake.script = Script(frames=4, at_once=1)
    with http.stream("POST", f"{SPEAK}/stream?output_format=pcm_24000", json=HELLO) as reply:
        assert "content-length" not in reply.headers
        chunks = reply.iter_raw()
        first = next(chunks)
        fake.advance(9)
        assert first + b"".join(chunks) == pcm16(4)


async def test_speed_seed_and_language_are_followed_and_the_rest_is_told(connect, fake):
    body = {
        **HELLO,
        "voice_settings": {"speed": 2.0, "stability": 0.5, "use_speaker_boost": False},
        "seed": 5,
        "language_code": "en",
        "previous_text": "Before.",
    }
    async with connect() as client:
        reply = await client.post(f"{SPEAK}?output_format=pcm_24000", json=body)
    assert len(reply.content) == len(pcm16(5)) // 2
    assert fake.requests[0].sampling.seed == 5 and fake.requests[0].language == "en"
    warning = reply.headers["x-framecast-warning"]
    assert "voice_settings.stability" in warning and "previous_text" in warning
    assert "speed" not in warning


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (SPEAK, {}, "text"), (SPEAK, {"text": " "}, "text"), (SPEAK, {"text": 5}, "text"),
        (SPEAK, {**HELLO, "language_code": "klingon"}, "language_code"),
        (SPEAK, {**HELLO, "voice_settings": {"speed": 9}}, "speed"),
        (f"{SPEAK}?output_format=mp3_1_1", HELLO, "output_format"),
        ("/v1/text-to-speech/zz", HELLO, "voice"),
    ],
)  # fmt: skip
async def test_errors_have_the_shape_their_clients_read_and_the_names_they_sent(
    connect, path, body, param
):
    async with connect() as client:
        reply = await client.post(path, json=body)
    told = reply.json()
    assert reply.status_code == 400
    assert told["detail"]["param"] == told["error"]["param"] == param
    assert told["detail"]["message"] == told["error"]["message"]
    assert "`input`" not in told["detail"]["message"]


async def test_their_models_stand_for_ours_even_in_strict_mode(connect):
    async with connect(strict_models=True) as client:
        theirs = await client.post(SPEAK, json=HELLO)
        nobodys = await client.post(SPEAK, json={**HELLO, "model_id": "other"})
    assert theirs.status_code == 200
    assert nobodys.status_code == 404
    assert nobodys.json()["detail"]["status"] == "model_not_found"
    assert nobodys.json()["error"]["param"] == "model_id"


async def test_a_full_queue_is_a_429_in_their_shape(connect, fake):
    fake.script = Script(refuse=engine.Overloaded("the queue is full", 1.5, 64))
    async with connect() as client:
        reply = await client.post(SPEAK, json=HELLO)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "2")
    assert reply.json()["detail"]["status"] == "rate_limit_exceeded"


async def test_voices_are_listed_with_ids_without_a_key_and_speaking_needs_one(connect):
    async with connect(api_keys="secret") as client:
        listed = await client.get("/v1/voices")
        refused = await client.post(SPEAK, json=HELLO)
        spoken = await client.post(SPEAK, json=HELLO, headers={"xi-api-key": "secret"})
    voices = {voice["voice_id"]: voice for voice in listed.json()["voices"]}
    assert {"vivian", "alloy"} <= voices.keys()
    assert all(voice["name"] for voice in voices.values())
    assert (refused.status_code, refused.json()["detail"]["status"]) == (401, "invalid_api_key")
    assert spoken.status_code == 200


async def test_an_alias_may_stand_for_one_of_their_voice_ids(connect, fake):
    async with connect(voice_aliases={"21m00Tcm4TlvDq8ikWAM": "ryan"}) as client:
        reply = await client.post("/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM", json=HELLO)
    assert reply.status_code == 200
    assert fake.requests[0].voice == "ryan"
