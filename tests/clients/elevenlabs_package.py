"""elevenlabs: speech over HTTP and from text in pieces, and the list of voices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError
from websockets.exceptions import InvalidStatus

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


def _in_pieces(url: str, voice: str, output_format: str) -> Iterator[bytes]:
    client = ElevenLabs(base_url=url, api_key="unused")
    # It would take `wss` whatever the base URL has.
    client.text_to_speech._ws_base_url = url.replace("http", "ws", 1)
    words = (f"{word} " for word in TEXT.split())
    settings = VoiceSettings(stability=0.5, speed=1.1)
    return client.text_to_speech.convert_realtime(
        voice, text=words, output_format=output_format, voice_settings=settings
    )


def check_text_in_pieces_is_spoken(url: str) -> None:
    audible(b"".join(_in_pieces(url, "alloy", "mp3_44100_128")))
    samples(b"".join(_in_pieces(url, "nova", "pcm_16000")), rate=16_000)


def check_text_in_pieces_for_an_unknown_voice_is_refused(url: str) -> None:
    try:
        b"".join(_in_pieces(url, "nobody", "pcm_24000"))
    except InvalidStatus as error:
        assert b"nobody" in error.response.body
    else:
        raise AssertionError("an unknown voice was accepted")
