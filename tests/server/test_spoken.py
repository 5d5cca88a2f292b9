"""The text front end over HTTP: what reaches the engine, and the text that comes back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from pydantic import ValidationError

import engine
from server.settings import Settings, explain
from server.spoken import MOST_BYTES, text_headers
from tests.server.conftest import SPEECH

BODY = {"input": "It costs $5 – “señor”.", "response_format": "wav"}
SPOKEN = f"{BODY['input']} (as spoken)"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("sse", [True, False])
def test_the_text_as_it_is_spoken_comes_back_on_request(fake, http, stream, sse):
    form = {"stream_format": "sse"} if sse else {}
    reply = http.post(SPEECH, json={**BODY, **form, "stream": stream, "return_text": True})
    assert unquote(reply.headers["x-framecast-text"]) == SPOKEN
    assert reply.headers["x-framecast-text-length"] == str(len(SPOKEN))
    if sse:
        last = json.loads(reply.text.strip().split("\n\n")[-1].removeprefix("data: "))
        assert (last["type"], last["text"]) == ("speech.audio.done", SPOKEN)


def test_nobody_is_told_the_text_unasked(http):
    reply = http.post(SPEECH, json={**BODY, "stream_format": "sse"})
    assert not [name for name in reply.headers if name.startswith("x-framecast-text")]
    assert '"text"' not in reply.text


def test_each_item_of_a_batch_tells_its_text(http):
    items = [{"input": "One 1"}, {"input": "Two 2", "return_text": False}]
    reply = http.post("/v1/audio/speech/batch", json={"items": items, "return_text": True})
    first, second = reply.json()["results"]
    assert first["text"] == "One 1 (as spoken)"
    assert second.get("text") is None
    assert base64.b64decode(first["audio_data"])


def test_a_long_text_is_cut_in_the_header_between_characters_and_its_length_tells():
    text = "日本 語" * 1000
    headers = text_headers(text)
    told = unquote(headers["x-framecast-text"], errors="strict")
    assert len(headers["x-framecast-text"]) <= MOST_BYTES
    assert text.startswith(told) and 0 < len(told) < len(text)
    assert headers["x-framecast-text-length"] == "4000"


@pytest.mark.parametrize("text", ["One.\nTwo.\r\n\tThree\x00", "ä€🎉", "100% + 1"])
def test_any_text_fits_a_header_and_comes_back_whole(text):
    told = text_headers(text)["x-framecast-text"]
    assert told.isascii() and told.isprintable()
    assert unquote(told) == text


@pytest.mark.parametrize(
    ("sent", "meant"),
    [({}, None), ({"normalize": False}, False), ({"normalize": ["numbers"]}, ("numbers",))],
)
def test_the_switch_reaches_the_engine(fake, http, sent, meant):
    assert http.post(SPEECH, json={**BODY, **sent}).status_code == 200
    assert fake.requests[-1].normalize == meant
    assert fake.requests[-1].text == BODY["input"]


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("none", ()), ("", ()), ("numbers", ("numbers",)),
        ("drop_urls, markup", ("markup", "drop_urls")), (["numbers"], ("numbers",)),
    ],
)  # fmt: skip
def test_the_setting_lists_the_steps_of_requests_that_name_none(value, steps):
    assert Settings(normalize=value).engine_config().normalize == steps


def test_by_default_all_steps_are_on_but_those_that_drop_something():
    config = Settings().engine_config()
    assert config.normalize == engine.DEFAULT_TEXT_STEPS
    assert set(engine.TEXT_STEPS) - set(config.normalize) == {"drop_code", "drop_urls"}


def test_the_setting_refuses_unknown_steps_with_those_there_are():
    with pytest.raises(ValidationError) as caught:
        Settings(normalize="nubmers")
    assert "`--normalize` (or `FRAMECAST_NORMALIZE`)" in explain(caught.value)
    assert "one of characters, markup" in explain(caught.value)


def test_the_lexicon_reaches_the_engine(tmp_path):
    assert Settings(lexicon=tmp_path / "words.toml").engine_config().lexicon == Path(
        tmp_path / "words.toml"
    )


@pytest.mark.parametrize(("sent", "meant"), [("off", False), ("on", True), ("auto", None)])
def test_elevenlabs_own_switch_is_followed(fake, http, sent, meant):
    body = {"text": "It costs $5.", "apply_text_normalization": sent}
    reply = http.post("/v1/text-to-speech/alloy", json=body)
    assert reply.status_code == 200
    assert "apply_text_normalization" not in reply.headers.get("x-framecast-warning", "")
    assert fake.requests[-1].normalize is meant
