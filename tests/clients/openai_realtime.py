"""openai: reading aloud over the Realtime API, as its package connects and wyoming_openai uses it.

wyoming_openai's handler needs Python 3.12; what it sends, and what it makes of the answers, is
repeated here.
"""

from __future__ import annotations

import base64
from typing import Any

from openai import OpenAI
from openai.resources.realtime.realtime import RealtimeConnection
from openai.types.realtime import RealtimeErrorEvent, SessionCreatedEvent

from tests.clients.sounds import TEXT, samples

INSTRUCTIONS = "Speak the message aloud, word for word.\n\nDelivery style: calm"
PCM = {"type": "audio/pcm", "rate": 24_000}


def _client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def _message(text: str) -> Any:
    return {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
    }  # fmt: skip


def _until_done(connection: RealtimeConnection) -> tuple[bytes, str, Any]:
    """The sound of a response, its transcript, and the response at its end."""
    sound, transcript = b"", ""
    for event in connection:
        assert event.type != "error", event
        if event.type == "response.output_audio.delta":
            sound += base64.b64decode(event.delta)
        elif event.type == "response.output_audio_transcript.delta":
            transcript += event.delta
        elif event.type == "response.done":
            return sound, transcript, event.response
    raise AssertionError("the connection ended before the response")


def check_wyoming_openai_reads_aloud(url: str) -> None:
    # Without waiting for any answer in between.
    with _client(url).realtime.connect(model="gpt-realtime") as connection:
        connection.session.update(
            session={
                "type": "realtime",
                "output_modalities": ["audio"],
                "tool_choice": "none",
                "instructions": INSTRUCTIONS,
                "audio": {"output": {"voice": "alloy", "format": PCM, "speed": 1.1}},
            }
        )
        connection.response.create(
            response={
                "conversation": "none",
                "output_modalities": ["audio"],
                "input": [_message(TEXT)],
            }
        )
        sound, transcript, response = _until_done(connection)
    samples(sound)
    assert transcript == TEXT and response.status == "completed"
    assert response.usage.output_tokens > 0


def check_items_are_spoken_one_after_the_other(url: str) -> None:
    with _client(url).realtime.connect(model="gpt-realtime") as connection:
        assert isinstance(connection.recv(), SessionCreatedEvent)
        for text in (TEXT, "Good night."):
            connection.conversation.item.create(item=_message(text))
            connection.response.create()
            sound, transcript, response = _until_done(connection)
            samples(sound)
            assert transcript == text and response.output[0].status == "completed"


def check_a_response_may_be_cancelled(url: str) -> None:
    with _client(url).realtime.connect(model="gpt-realtime") as connection:
        connection.response.create(response={"input": [_message(TEXT * 20)]})
        for event in connection:
            if event.type == "response.output_audio.delta":
                break
        connection.response.cancel()
        assert _until_done(connection)[2].status == "cancelled"
        connection.response.cancel(event_id="late")
        told = connection.recv()
        assert isinstance(told, RealtimeErrorEvent)
        assert (told.error.code, told.error.event_id) == ("response_cancel_not_active", "late")


def check_transcription_is_refused_in_words(url: str) -> None:
    intent = {"intent": "transcription"}
    with _client(url).realtime.connect(extra_query=intent) as connection:
        told = connection.recv()
        assert isinstance(told, RealtimeErrorEvent) and "transcription" in told.error.message
