import io
import json
import socket
import wave

import av
import pytest

import engine
from server.schemas.speech import SpeechBody
from tests.fakes import FakeEngine, Script, model_info, pcm16
from tests.server.conftest import SPEECH, Live

pytestmark = pytest.mark.anyio
HELLO = {"model": "tts-1", "input": "Hello there.", "voice": "alloy"}
TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000;channels=1",
}


async def test_model_input_and_voice_alone_give_an_mp3(connect, fake):
    async with connect() as client:
        reply = await client.post(SPEECH, json=HELLO)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "audio/mpeg"
    assert int(reply.headers["content-length"]) == len(reply.content)
    with av.open(io.BytesIO(reply.content)) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) >= 5 * 1_920
    assert fake.requests[0].voice == "aiden" and fake.requests[0].model == "fake-voice"


@pytest.mark.parametrize("name", TYPES)
async def test_every_format_has_its_content_type_and_decodes(connect, name):
    async with connect() as client:
        reply = await client.post(SPEECH, json={**HELLO, "response_format": f" {name.upper()} "})
    assert reply.headers["content-type"] == TYPES[name]
    if name == "pcm":
        assert reply.content == pcm16(5)
    else:
        with av.open(io.BytesIO(reply.content)) as container:
            assert sum(frame.samples for frame in container.decode(audio=0)) > 0


async def test_a_buffered_reply_says_how_it_went(connect, fake):
    fake.script = Script(reason=engine.FinishReason.LENGTH, warnings=("no effect: é",))
    async with connect() as client:
        reply = await client.post(
            SPEECH, json={**HELLO, "response_format": "wav", "stream": False, "seed": 42}
        )
    headers = reply.headers
    assert headers["x-framecast-finish-reason"] == "length"
    assert (headers["x-framecast-seed"], headers["x-framecast-frames"]) == ("42", "5")
    assert headers["x-framecast-queue-ms"] == "1.0"
    assert headers["x-framecast-first-audio-ms"] == "100.0"
    assert headers["x-framecast-total-ms"] == "200.0"
    assert headers["x-framecast-warning"] == r"no effect: \xe9"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    with wave.open(io.BytesIO(reply.content)) as file:
        assert file.getnframes() == 5 * 1_920


async def test_a_streamed_clip_that_is_already_complete_has_exact_sizes(connect):
    async with connect() as client:
        reply = await client.post(SPEECH, json={**HELLO, "response_format": "wav"})
    assert int(reply.headers["content-length"]) == len(reply.content) == 44 + 2 * 5 * 1_920
    with wave.open(io.BytesIO(reply.content)) as file:
        assert file.readframes(5 * 1_920) == pcm16(5)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"), ({"input": "   "}, "input"), ({"input": "\n"}, "input"),
        ({"voice": ""}, "voice"), ({"voice": "zz"}, "voice"),
        ({"voice": "Google UK English Female"}, "voice"), ({"response_format": "mpeg"},
        "response_format"), ({"instructions": 5}, "instructions"), ({"stream": "maybe"}, "stream"),
        ({"language": "klingon"}, "language"), ({"speed": 0}, "speed"), ({"speed": 4.5}, "speed"),
        ({"ref_text": "Hi"}, "ref_text"), ({"task_type": "x"}, "task_type"),
        ({"voice": "zz", "response_format": "pcm", "stream": True}, "voice"),
    ],
)  # fmt: skip
async def test_a_bad_request_is_a_400_naming_the_field(connect, fake, fields, param):
    async with connect() as client:
        reply = await client.post(SPEECH, json={**HELLO, **fields})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert fake.active == 0


async def test_a_body_the_schema_refuses_never_reaches_the_engine(connect, fake):
    async with connect() as client:
        for fields in ({"input": ""}, {"voice": ""}, {"instructions": 5}, {"stream": "maybe"}):
            await client.post(SPEECH, json={**HELLO, **fields})
    assert fake.requests == []


async def test_an_unknown_voice_lists_speakers_and_aliases(connect):
    async with connect() as client:
        reply = await client.post(SPEECH, json={**HELLO, "voice": "zz"})
    message = reply.json()["error"]["message"]
    assert "vivian" in message and "alloy" in message
    assert reply.json()["error"]["code"] == "voice_not_found"


@pytest.mark.parametrize(("strict", "status"), [(True, 404), (False, 200)])
async def test_an_unknown_model_is_a_404_in_strict_mode_only(connect, strict, status):
    async with connect(strict_models=strict) as client:
        reply = await client.post(SPEECH, json={**HELLO, "model": "other"})
    assert reply.status_code == status
    assert not strict or reply.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("streamed", [True, False])
async def test_no_audio_is_an_error_and_never_an_empty_200(connect, fake, streamed):
    fake.script = Script(frames=0)
    async with connect() as client:
        reply = await client.post(
            SPEECH, json={**HELLO, "response_format": "wav", "stream": streamed}
        )
    assert reply.status_code == 500
    assert reply.json()["error"]["message"] == "the model produced no audio"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_failure_before_the_first_audio_is_a_json_error(connect, fake, streamed):
    fake.script = Script(frames=0, fail=engine.DeadlineExceeded("too late"))
    async with connect() as client:
        reply = await client.post(
            SPEECH, json={**HELLO, "response_format": "pcm", "stream": streamed}
        )
    assert (reply.status_code, reply.json()["error"]["message"]) == (504, "too late")


async def test_a_buffered_reply_that_fails_halfway_is_a_json_error(connect, fake):
    fake.script = Script(frames=3, fail=engine.GenerationFailed("the logits are not numbers"))
    async with connect() as client:
        reply = await client.post(SPEECH, json=HELLO)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "generation_failed")


async def test_a_full_queue_is_a_429_with_a_time(connect, fake):
    fake.script = Script(refuse=engine.Overloaded("the queue is full", 1.5, 64))
    async with connect() as client:
        reply = await client.post(SPEECH, json=HELLO)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "2")


async def test_a_body_over_the_limit_is_a_413(connect, fake):
    async def chunks():
        for _ in range(3):
            yield b" " * 512

    async with connect(max_body_bytes=1024) as client:
        declared = await client.post(SPEECH, json={**HELLO, "input": "a" * 2000})
        undeclared = await client.post(
            SPEECH, content=chunks(), headers={"content-type": "application/json"}
        )
    for reply in (declared, undeclared):
        assert reply.status_code == 413
        assert "1024" in reply.json()["error"]["message"]
    assert fake.requests == []


async def test_a_vector_of_2048_numbers_fits_the_default_limit(connect, fake):
    vector = [0.12345678901234567] * 2048
    async with connect() as client:
        reply = await client.post(SPEECH, json={**HELLO, "speaker_embedding": vector})
    assert reply.status_code == 200
    assert fake.requests[0].speaker_embedding.shape == (2048,)


async def test_the_length_of_a_text_is_a_setting(connect):
    async with connect(max_input_chars=10) as client:
        reply = await client.post(SPEECH, json=HELLO)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input")


async def test_a_missing_encoder_is_a_400_naming_what_works(connect, fake, monkeypatch):
    monkeypatch.setattr("server.app.available_formats", lambda: ("wav", "pcm"))
    async with connect() as client:
        reply = await client.post(SPEECH, json=HELLO)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "response_format")
    assert "wav, pcm" in reply.json()["error"]["message"]
    assert fake.requests == []


async def test_a_description_set_for_an_openai_voice_speaks_on_a_design_model(connect, fake):
    fake.models = (model_info(task="voice_design", speakers=(), default_voice=None),)
    async with connect(voice_aliases={"alloy": "A calm old man."}) as client:
        await client.post(SPEECH, json={**HELLO, "instructions": "Whisper."})
    assert fake.requests[0].instructions == "A calm old man.\nWhisper."
    assert fake.requests[0].voice is None


async def test_an_openai_voice_beside_a_vector_only_fills_its_field(connect, fake):
    fake.models = (model_info(task="base", speakers=(), default_voice=None),)
    async with connect() as client:
        vector = await client.post(SPEECH, json={**HELLO, "speaker_embedding": [0.5]})
        without = await client.post(SPEECH, json=HELLO)
    assert (vector.status_code, without.status_code) == (200, 400)
    assert fake.requests[0].voice is None


@pytest.mark.parametrize(
    "path", ["/audio/speech", "/v1/audio/speech/", "//v1//audio/speech//", "/v1/v1/audio/speech"]
)
async def test_only_forgivable_paths_reach_the_route_and_none_redirects(connect, path):
    async with connect() as client:
        reply = await client.post(path, json=HELLO)
    assert reply.status_code == (404 if "v1/v1" in path else 200)


async def test_an_empty_bearer_and_other_keys_are_no_hindrance(connect):
    async with connect() as client:
        for headers in ({"authorization": "Bearer "}, {"api-key": "x"}):
            assert (await client.post(SPEECH, json=HELLO, headers=headers)).status_code == 200


async def test_the_schema_can_be_read_and_describes_every_field(connect):
    async with connect() as client:
        reply = await client.get("/openapi.json")
    assert reply.status_code == 200
    operation = reply.json()["paths"]["/v1/audio/speech"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(SpeechBody.model_fields)


def test_http_1_0_gets_a_whole_reply_with_its_length(live: Live, fake: FakeEngine) -> None:
    body = json.dumps({"input": "Hello.", "response_format": "pcm"}).encode()
    head = f"POST {SPEECH} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: "
    with socket.create_connection(live.socket.getsockname()[:2], timeout=20) as client:
        client.sendall(head.encode() + str(len(body)).encode() + b"\r\n\r\n" + body)
        reply = b""
        while piece := client.recv(65536):
            reply += piece
    headers, _, sound = reply.partition(b"\r\n\r\n")
    assert f"content-length: {len(pcm16(5))}".encode() in headers.lower()
    assert b"chunked" not in headers.lower()
    assert sound == pcm16(5)
