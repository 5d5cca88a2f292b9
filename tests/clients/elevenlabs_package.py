"""elevenlabs: speech over HTTP and the list of voices."""

from __future__ import annotations

import asyncio

from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError

from tests.clients.sounds import TEXT, audible, samples


def check_convert_and_stream(url: str) -> None:
    client = ElevenLabs(base_url=url, api_key="unused")
    voice = client.voices.get_all().voices[0].voice_id
    speech = client.text_to_speech
    audible(b"".join(speech.convert(voice, text=TEXT, model_id="eleven_multilingual_v2")))
    streamed = speech.stream(
        voice,
        text=TEXT,
        output_format="pcm_16000",
        voice_settings=VoiceSettings(stability=0.5, speed=1.1),
    )
    samples(b"".join(streamed), rate=16_000)


def check_every_output_format(url: str) -> None:
    client = ElevenLabs(base_url=url, api_key="unused")
    for name in ("mp3_22050_32", "mp3_44100_192", "opus_48000_64", "wav_24000"):
        audible(b"".join(client.text_to_speech.convert("alloy", text=TEXT, output_format=name)))
    for name in ("pcm_8000", "ulaw_8000", "alaw_8000"):
        assert b"".join(client.text_to_speech.stream("alloy", text=TEXT, output_format=name))


def check_the_async_client(url: str) -> None:
    async def ask() -> bytes:
        client = AsyncElevenLabs(base_url=url, api_key="unused")
        return b"".join([piece async for piece in client.text_to_speech.stream("nova", text=TEXT)])

    audible(asyncio.run(ask()))


def check_an_unknown_voice_is_an_error_with_a_message(url: str) -> None:
    client = ElevenLabs(base_url=url, api_key="unused")
    try:
        b"".join(client.text_to_speech.convert("nobody", text=TEXT))
    except ApiError as error:
        assert error.status_code == 400
        assert error.body["detail"]["status"] == "voice_not_found"
        assert "nobody" in error.body["detail"]["message"]
    else:
        raise AssertionError("an unknown voice was accepted")
