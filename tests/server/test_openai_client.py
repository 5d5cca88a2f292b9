"""The openai package against a real socket, with nothing but the base URL changed."""

import io
import wave

import openai
import pytest

import engine
from tests.fakes import Script, pcm16


@pytest.fixture
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="unused", max_retries=0) as opened:
        yield opened


def test_a_plain_call_returns_a_file(client):
    reply = client.audio.speech.create(model="tts-1", voice="alloy", input="Hello there.")
    assert reply.response.headers["content-type"] == "audio/mpeg"
    assert reply.content[0] == 0xFF


def test_a_streaming_response_gives_sound_while_it_is_made(client, fake, tmp_path):
    fake.script = Script(frames=5, at_once=1)
    speech = client.audio.speech.with_streaming_response
    with speech.create(
        model="gpt-4o-mini-tts",
        voice="coral",
        input="Hello there.",
        instructions="Calm.",
        response_format="wav",
    ) as reply:
        chunks = reply.iter_bytes()
        sound = next(chunks)
        fake.advance(10)
        sound += b"".join(chunks)
    assert sound[44:] == pcm16(5)
    assert fake.requests[-1].instructions == "Calm."


def test_a_streaming_response_can_be_saved(client, tmp_path):
    speech = client.audio.speech.with_streaming_response
    with speech.create(model="tts-1", voice="nova", input="Hello.", response_format="wav") as reply:
        reply.stream_to_file(tmp_path / "hello.wav")
    with wave.open(io.BytesIO((tmp_path / "hello.wav").read_bytes())) as file:
        assert file.getnframes() == 5 * 1_920


def test_an_unknown_voice_is_a_bad_request_with_a_message(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="tts-1", voice="zz", input="Hello.")
    assert caught.value.param == "voice" and "alloy" in caught.value.message


def test_a_full_queue_is_a_rate_limit_error(client, fake):
    fake.script = Script(refuse=engine.Overloaded("the queue is full", 1.0, 64))
    with pytest.raises(openai.RateLimitError) as caught:
        client.audio.speech.create(model="tts-1", voice="alloy", input="Hello.")
    assert caught.value.code == "rate_limit_exceeded"


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["fake-voice"]
    assert client.models.retrieve("tts-1").owned_by == "framecast"
