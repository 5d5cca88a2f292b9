"""Replies as server-sent events, over a real socket."""

import base64
import io
import json

import av
import pytest

import engine
from server import events
from tests.fakes import Script, pcm16
from tests.server.conftest import SPEECH

BODY = {"input": "Hello there.", "stream_format": "sse"}


def parsed(text: str) -> list[dict]:
    """The events of a body; anything but bare `data:` lines fails."""
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def sound(received: list[dict]) -> bytes:
    return b"".join(base64.b64decode(event["audio"]) for event in received[:-1])


def stream(fake, http, **fields) -> tuple[dict, list[dict]]:
    """Headers and events of a reply that leaves while it is made."""
    with http.stream("POST", SPEECH, json={**BODY, **fields}) as reply:
        chunks = reply.iter_text()
        text = next(chunks)
        fake.advance(50)
        return reply.headers, parsed(text + "".join(chunks))


def test_events_are_slices_of_the_sound_then_the_usage(fake, http):
    fake.script = Script(frames=5, at_once=1)
    headers, received = stream(fake, http, response_format="pcm")
    assert headers["content-type"] == "text/event-stream"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "content-length" not in headers
    assert {event["type"] for event in received[:-1]} == {"speech.audio.delta"}
    assert len(received) >= 3
    assert sound(received) == pcm16(5)
    assert received[-1] == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 0, "output_tokens": 5, "total_tokens": 5},
        "finish_reason": "stop",
    }


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw"])
def test_every_format_comes_in_events_as_it_would_without(fake, http, name):
    fake.script = Script(frames=7, at_once=1)
    _, received = stream(fake, http, response_format=name)
    fake.script = Script(frames=7, at_once=1)
    with http.stream(
        "POST", SPEECH, json={"input": "Hello there.", "response_format": name}
    ) as reply:
        chunks = reply.iter_raw()
        plain = next(chunks)
        fake.advance(50)
        plain += b"".join(chunks)
    assert sound(received) == plain


def test_the_first_event_leaves_with_the_first_frame(fake, http):
    fake.script = Script(frames=5, at_once=1)
    with http.stream("POST", SPEECH, json=BODY) as reply:
        chunks = reply.iter_text()
        [event] = parsed(next(chunks))
        assert event["type"] == "speech.audio.delta" and event["audio"]
        assert fake.frames_total == 1
        fake.advance(10)
        list(chunks)


def test_events_of_a_reply_sent_whole_have_a_length_and_a_true_wav_header(fake, http):
    reply = http.post(SPEECH, json={**BODY, "response_format": "wav", "stream": False})
    received = parsed(reply.text)
    assert int(reply.headers["content-length"]) == len(reply.content)
    assert reply.headers["x-framecast-finish-reason"] == "stop"
    with av.open(io.BytesIO(sound(received))) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == 5 * 1_920
    assert sound(received)[40:44] != b"\xff\xff\xff\xff"


def test_a_failure_after_the_first_event_is_an_event_and_never_done(fake, http):
    fake.script = Script(frames=3, at_once=1, fail=engine.GenerationFailed("the logits are NaN"))
    _, received = stream(fake, http, response_format="pcm")
    assert received[-1] == {
        "type": "speech.audio.error",
        "error": {
            "message": "the logits are NaN",
            "type": "server_error",
            "param": None,
            "code": "generation_failed",
        },
    }
    assert "speech.audio.done" not in {event["type"] for event in received}


def test_a_fault_of_ours_is_told_without_its_details(fake, http):
    fake.script = Script(frames=3, at_once=1, fail=engine.EngineError("secret path"))
    _, received = stream(fake, http)
    assert received[-1]["error"]["code"] == "server_error"
    assert "secret" not in received[-1]["error"]["message"]


def test_a_failure_before_the_first_event_is_a_json_error(fake, http):
    fake.script = Script(frames=0, fail=engine.DeadlineExceeded("too late"))
    reply = http.post(SPEECH, json=BODY)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize("reason", list(engine.FinishReason))
def test_the_last_event_says_how_speech_ended(fake, http, reason):
    fake.script = Script(frames=3, at_once=1, reason=reason)
    assert stream(fake, http)[1][-1]["finish_reason"] == reason


def test_long_sound_is_cut_into_events_of_bounded_size():
    received = parsed(events.delta(bytes(100_000)).decode())
    assert [len(base64.b64decode(event["audio"])) for event in received] == [49_152, 49_152, 1_696]


def test_usage_counts_prompt_positions_and_frames():
    stats = engine.Stats(frames=12, seed=1, prompt_positions=30)
    assert events.usage(stats) == {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("setting", "media_type"), [(True, "text/event-stream"), (False, "audio/mpeg")]
)
async def test_stream_alone_means_events_where_the_setting_says_so(connect, setting, media_type):
    async with connect(stream_is_sse=setting) as client:
        reply = await client.post(SPEECH, json={"input": "Hello.", "stream": True})
    assert reply.headers["content-type"] == media_type
