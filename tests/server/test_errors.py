import json
import logging
import re
from pathlib import Path

import pytest

import engine
from server.errors import (
    ANSWERS,
    CODES,
    ConsentNotFound,
    InvalidApiKey,
    RateLimited,
    SlowRequest,
    StoreFull,
    StoreUnwritable,
    VoiceExists,
    VoiceNotFound,
    answer_for,
    error_response,
)
from tests.server.conftest import SPEECH

README = Path(__file__).parents[2] / "server" / "README.md"


def every_engine_error():
    found, todo = [], [engine.EngineError]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += [each for each in cls.__subclasses__() if each.__module__ == "engine.errors"]
    return found


def test_every_engine_error_stands_in_the_table():
    classes = every_engine_error()
    assert len(classes) >= 13
    own = {InvalidApiKey, RateLimited, SlowRequest}
    own |= {VoiceNotFound, ConsentNotFound, VoiceExists, StoreFull, StoreUnwritable}
    assert {*classes, *own} == set(ANSWERS)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (engine.InvalidRequest("no", "input"), 400),
        (engine.UnsupportedMode("no", "task"), 400),
        (engine.UnknownVoice("zz", ["vivian"]), 400),
        (engine.ModelNotFound("no"), 404),
        (engine.PayloadTooLarge("no"), 413),
        (InvalidApiKey("who?"), 401),
        (SlowRequest("late"), 408),
        (RateLimited("enough", 2, {}), 429),
        (VoiceNotFound("no", "voice"), 404),
        (ConsentNotFound("no", "consent"), 404),
        (VoiceExists("twice", "name"), 409),
        (StoreFull("too many"), 409),
        (engine.DeadlineExceeded("late"), 504),
        (engine.EngineUnavailable("draining"), 503),
        (engine.GenerationFailed("nothing"), 500),
    ],
)
def test_an_error_has_its_status_and_the_four_keys(error, status):
    reply = error_response(error)
    body = json.loads(reply.body)
    assert reply.status_code == status
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] == str(error)


def test_the_param_is_what_the_wire_calls_the_field():
    param = {
        field: json.loads(error_response(engine.InvalidRequest("no", field)).body)["error"]["param"]
        for field in ("text", "task", "voice", None)
    }
    assert param == {"text": "input", "task": "task_type", "voice": "voice", None: None}


def test_overload_tells_the_length_of_the_queue_and_the_place_in_it():
    reply = error_response(engine.Overloaded("full", 2.2, 64, 9))
    error = json.loads(reply.body)["error"]
    assert reply.status_code == 429
    assert (error["queue_depth"], error["position"]) == (64, 9)
    assert error["message"] == "full" and error["param"] is None


@pytest.mark.parametrize(("wait", "header"), [(0.0, "1"), (0.2, "1"), (2.2, "3"), (60, "60")])
def test_overload_says_when_to_come_back_in_whole_seconds(wait, header):
    reply = error_response(engine.Overloaded("full", wait, 3))
    assert reply.headers["retry-after"] == header
    assert reply.headers["x-should-retry"] == "true"


def test_unavailable_says_when_to_come_back_and_a_missed_deadline_not_to():
    assert int(error_response(engine.EngineUnavailable("x")).headers["retry-after"]) >= 1
    assert error_response(engine.DeadlineExceeded("x")).headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), engine.EngineError("secret"), engine.ModelFileError("secret")],
)
def test_an_error_of_ours_leaks_nothing(error):
    reply = error_response(error)
    assert reply.status_code == 500 and b"secret" not in reply.body


def test_a_subclass_unknown_to_the_table_is_answered_like_its_parent():
    class Odd(engine.UnknownVoice):
        pass

    assert answer_for(Odd("a", [])) is ANSWERS[engine.UnknownVoice]


def test_the_readme_says_what_each_error_means():
    text = README.read_text(encoding="utf-8")
    table = re.search(r"<!-- errors -->\n(.*?)<!-- /errors -->", text, re.DOTALL)[1]
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", table, re.MULTILINE)
    told = {(int(status), code) for status, codes in rows for code in re.findall("`(.+?)`", codes)}
    answers = {(each.status, each.code) for each in ANSWERS.values() if each.code}
    assert answers | {(status, code) for status, code in CODES.items()} <= told


@pytest.mark.anyio
async def test_a_crash_is_a_bare_500_and_is_logged_with_the_request_id(connect, fake, caplog):
    fake.script = type(fake.script)(refuse=ZeroDivisionError("secret"))
    with caplog.at_level(logging.ERROR):
        async with connect() as client:
            reply = await client.post(
                SPEECH, json={"input": "Hi."}, headers={"x-request-id": "abc"}
            )
    assert reply.status_code == 500
    assert "secret" not in reply.text and reply.json()["error"]["type"] == "server_error"
    assert reply.headers["x-request-id"] == "abc"
    assert "request abc failed" in caplog.text and "secret" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404), ("GET", "/v1/readyz", 404), ("POST", "/v1/audio/nope", 404),
        ("GET", "/nothing", 404), ("GET", SPEECH, 405), ("DELETE", "/v1/models", 405),
    ],
)  # fmt: skip
async def test_unknown_paths_and_methods_have_the_same_body(connect, method, path, status):
    async with connect() as client:
        reply = await client.request(method, path)
    assert reply.status_code == status
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    assert f"`{path}`" in reply.json()["error"]["message"]
