import asyncio
import base64
import io

import av
import httpx
import pytest

import engine
from tests.fakes import Script, pcm16
from tests.server.conftest import SPEECH

pytestmark = pytest.mark.anyio
BATCH = f"{SPEECH}/batch"


def sound(result: dict) -> bytes:
    return base64.b64decode(result["audio_data"])


async def test_every_item_is_spoken_with_its_own_fields_over_the_defaults(connect, fake):
    items = [
        {"input": "One."},
        {"input": "Two.", "voice": "vivian", "response_format": "pcm"},
        {"input": "Three.", "speaker": "ryan", "language": None, "speed": 2},
    ]
    body = {"items": items, "voice": "alloy", "language": "english", "seed": 7}
    async with connect() as client:
        reply = await client.post(BATCH, json=body)
    told = reply.json()
    assert reply.status_code == 200
    assert (told["total"], told["succeeded"], told["failed"]) == (3, 3, 0)
    assert told["id"] == reply.headers["x-request-id"]
    assert [result["index"] for result in told["results"]] == [0, 1, 2]
    assert {result["status"] for result in told["results"]} == {"success"}
    asked = {request.text: request for request in fake.requests}
    assert [asked[text].voice for text in ("One.", "Two.", "Three.")] == ["aiden", "vivian", "ryan"]
    assert {request.language for request in fake.requests} == {"english"}
    assert {request.sampling.seed for request in fake.requests} == {7}
    assert sound(told["results"][1]) == pcm16(5)
    with av.open(io.BytesIO(sound(told["results"][2]))) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == 5 * 1_920 // 2


async def test_a_batch_that_does_not_say_gets_wav_with_true_sizes(connect):
    async with connect() as client:
        reply = await client.post(BATCH, json={"items": [{"input": "One."}]})
    [result] = reply.json()["results"]
    assert result["media_type"] == "audio/wav"
    assert sound(result)[44:] == pcm16(5)
    assert result["usage"] == {"input_tokens": 0, "output_tokens": 5, "total_tokens": 5}
    assert (result["finish_reason"], result["error"]) == ("stop", None)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"input": ""}, "input"), ({}, "input"), ({"input": 5}, "input"), ("One.", "items"),
        ({"input": "One.", "voice": "zz"}, "voice"), ({"input": "One.", "speed": 9}, "speed"),
        ({"input": "One.", "response_format": "mpeg"}, "response_format"),
    ],
)  # fmt: skip
async def test_a_bad_item_does_not_fail_the_rest(connect, item, param):
    async with connect() as client:
        reply = await client.post(BATCH, json={"items": [{"input": "One."}, item]})
    told = reply.json()
    assert (reply.status_code, told["succeeded"], told["failed"]) == (200, 1, 1)
    bad = told["results"][1]
    assert (bad["status"], bad["error_param"], bad["audio_data"]) == ("error", param, None)
    assert bad["error"]


async def test_an_item_that_fails_while_it_is_made_says_why(connect, fake):
    fake.script = Script(frames=2, fail=engine.GenerationFailed("the logits are NaN"))
    async with connect() as client:
        reply = await client.post(BATCH, json={"items": [{"input": "One."}]})
    [result] = reply.json()["results"]
    assert (result["error"], result["error_code"]) == ("the logits are NaN", "generation_failed")


async def test_a_server_that_takes_none_of_the_items_says_so_with_its_status(connect, fake):
    fake.script = Script(refuse=engine.Overloaded("the queue is full", 1.5, 64))
    async with connect() as client:
        reply = await client.post(BATCH, json={"items": [{"input": "One."}] * 2})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "items"), ({"items": []}, "items"), ({"items": [{"input": "x"}] * 33}, "items"),
        ({"items": "x"}, "items"), ({"items": [{"input": "x" * 60}] * 2}, "items"),
    ],
)  # fmt: skip
async def test_a_bad_batch_is_a_400(connect, fake, body, param):
    async with connect(max_batch_chars=100) as client:
        reply = await client.post(BATCH, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert fake.requests == []


async def test_all_of_32_items_run_at_the_same_time(connect, fake):
    fake.script = Script(frames=3, at_once=0)
    async with connect() as client:
        asked = asyncio.create_task(
            client.post(BATCH, json={"items": [{"input": f"Text {i}."} for i in range(32)]})
        )
        assert await asyncio.to_thread(fake.wait_for, 32)
        fake.advance(9)
        reply = await asked
    assert reply.json()["succeeded"] == 32
    assert {envelope["streaming"] for envelope in fake.envelopes} == {False}


def test_a_client_that_leaves_cancels_every_item(fake, live):
    fake.script = Script(frames=50, at_once=2)
    with httpx.Client(base_url=live.url, timeout=0.5) as client, pytest.raises(httpx.ReadTimeout):
        client.post(BATCH, json={"items": [{"input": "One."}, {"input": "Two."}]})
    assert fake.wait_for(active=0)
    assert len(fake.cancelled) == 2


async def test_what_the_caller_should_know_of_an_item_is_told_with_it(connect, fake):
    fake.script = Script(warnings=("`ref_text` may not be all of what the clip says",))
    async with connect() as client:
        told = (await client.post(BATCH, json={"items": [{"input": "One."}, {}]})).json()
    spoken, failed = told["results"]
    assert spoken["warnings"] == list(fake.script.warnings)
    assert "warnings" not in failed
