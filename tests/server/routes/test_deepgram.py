import io

import av
import pytest
import soundfile

from tests.fakes import Script, pcm16

pytestmark = pytest.mark.anyio
SPEAK = "/v1/speak"
HELLO = {"text": "Hello there."}


async def test_a_text_alone_gives_an_mp3_in_the_default_voice(connect, fake):
    async with connect() as client:
        reply = await client.post(SPEAK, json=HELLO)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "audio/mpeg")
    assert reply.headers["dg-request-id"] == reply.headers["x-request-id"]
    assert reply.headers["dg-model-name"] == "fake-voice"
    assert reply.headers["dg-char-count"] == "12"
    assert fake.requests[0].voice is None
    with av.open(io.BytesIO(reply.content)) as container:
        assert container.streams.audio[0].rate == 22_050
        assert container.streams.audio[0].bit_rate == 48_000


@pytest.mark.parametrize(
    ("query", "subtype", "rate"),
    [
        ("encoding=linear16", "PCM_16", 24_000),
        ("encoding=linear16&sample_rate=16000&container=wav", "PCM_16", 16_000),
        ("encoding=mulaw", "ULAW", 8_000), ("encoding=ALAW&sample_rate=16000", "ALAW", 16_000),
        ("encoding=opus&container=ogg&bit_rate=24000", "OPUS", 48_000),
        ("encoding=flac&sample_rate=48000", "PCM_16", 48_000),
        ("encoding=mp3&bit_rate=32000", "MPEG_LAYER_III", 22_050),
    ],
)  # fmt: skip
async def test_encodings_and_containers(connect, query, subtype, rate):
    async with connect() as client:
        reply = await client.post(f"{SPEAK}?{query}", json=HELLO)
    with soundfile.SoundFile(io.BytesIO(reply.content)) as file:
        assert (file.subtype, file.samplerate) == (subtype, rate)


async def test_aac_is_made_too(connect):
    async with connect() as client:
        reply = await client.post(f"{SPEAK}?encoding=aac", json=HELLO)
    with av.open(io.BytesIO(reply.content)) as container:
        assert container.streams.audio[0].rate == 22_050


async def test_no_container_is_bare_samples_sent_while_they_are_made(fake, http):
    fake.script = Script(frames=4, at_once=1)
    with http.stream("POST", f"{SPEAK}?encoding=linear16&container=none", json=HELLO) as reply:
        assert reply.headers["content-type"] == "audio/pcm;rate=24000;channels=1"
        chunks = reply.iter_raw()
        first = next(chunks)
        fake.advance(9)
        assert first + b"".join(chunks) == pcm16(4)


@pytest.mark.parametrize(
    ("model", "voice", "warned"),
    [
        ("vivian", "vivian", False), ("Shimmer", "ryan", False), ("fake-voice", None, False),
        ("aura-2-ryan-en", "ryan", False), ("aura-asteria-en", None, True),
    ],
)  # fmt: skip
async def test_model_means_a_voice_of_ours_or_theirs_or_a_model(
    connect, fake, model, voice, warned
):
    async with connect(voice_aliases={"shimmer": "ryan"}) as client:
        reply = await client.post(f"{SPEAK}?model={model}", json=HELLO)
    assert reply.status_code == 200
    assert fake.requests[0].voice == voice
    assert ("x-framecast-warning" in reply.headers) is warned


async def test_speed_is_followed(connect):
    query = "encoding=linear16&container=none&speed=2"
    async with connect() as client:
        reply = await client.post(f"{SPEAK}?{query}", json=HELLO)
    assert len(reply.content) == len(pcm16(5)) // 2


@pytest.mark.parametrize(
    ("query", "body", "param"),
    [
        ("", {}, "text"), ("", {"text": ""}, "text"), ("encoding=mp4", HELLO, "encoding"),
        ("encoding=mp3&container=wav", HELLO, "container"), ("model=zz", HELLO, "model"),
        ("encoding=mp3&sample_rate=8000", HELLO, "sample_rate"),
        ("encoding=linear16&sample_rate=x", HELLO, "sample_rate"),
        ("encoding=linear16&sample_rate=8000.5", HELLO, "sample_rate"),
        ("encoding=linear16&sample_rate=nan", HELLO, "sample_rate"),
        ("encoding=linear16&bit_rate=8000", HELLO, "bit_rate"),
        ("encoding=mp3&bit_rate=1e30", HELLO, "bit_rate"),
        ("encoding=mp3&bit_rate=1000", HELLO, "bit_rate"), ("speed=9", HELLO, "speed"),
        ("callback=http://x", HELLO, "callback"),
    ],
)  # fmt: skip
async def test_errors_have_the_shape_their_clients_read_and_the_names_they_sent(
    connect, fake, query, body, param
):
    async with connect() as client:
        reply = await client.post(f"{SPEAK}?{query}", json=body)
    told = reply.json()
    assert reply.status_code == 400
    assert told["error"]["param"] == param
    assert told["err_msg"] == told["error"]["message"]
    assert told["err_code"] and told["request_id"] == reply.headers["x-request-id"]


async def test_a_token_opens_the_route_and_nothing_else_does(connect):
    async with connect(api_keys="secret") as client:
        refused = await client.post(SPEAK, json=HELLO)
        spoken = await client.post(SPEAK, json=HELLO, headers={"authorization": "Token secret"})
    assert (refused.status_code, refused.json()["err_code"]) == (401, "INVALID_API_KEY")
    assert spoken.status_code == 200


async def test_another_method_is_refused_in_their_shape(connect):
    async with connect() as client:
        reply = await client.get(SPEAK)
    assert (reply.status_code, reply.json()["err_code"]) == (405, "METHOD_NOT_ALLOWED")
