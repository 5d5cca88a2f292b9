import json
import logging

import pytest

import engine
from server.dependencies import RequestRecord
from server.errors import BodyAborted
from server.logs import JsonFormatter, TextFormatter, request_fields, set_up_logging
from server.playout import Playout


def record(**extra):
    made = logging.LogRecord("server.requests", logging.INFO, "x.py", 1, "POST %s", ("/v1",), None)
    made.__dict__.update(extra)
    return made


def test_text_lines_end_with_the_fields():
    line = TextFormatter().format(record(fields={"id": "abc", "status": 200, "detail": "a b\nc"}))
    assert line.endswith(r'INFO server.requests: POST /v1 id=abc status=200 detail="a b\nc"')
    assert "\n" not in line


def test_json_lines_are_one_object_each():
    entry = json.loads(JsonFormatter().format(record(fields={"id": "abc", "frames": 5})))
    assert entry["message"] == "POST /v1" and entry["level"] == "info"
    assert (entry["id"], entry["frames"]) == ("abc", 5)
    assert entry["time"].endswith("Z")


def test_json_lines_carry_tracebacks():
    try:
        raise ValueError("broken")
    except ValueError as error:
        made = record(exc_info=(ValueError, error, error.__traceback__))
    assert "ValueError: broken" in json.loads(JsonFormatter().format(made))["exception"]


@pytest.mark.usefixtures("logging_restored")
def test_logs_go_to_stderr_and_bodies_cut_on_purpose_make_no_traceback(capsys):
    set_up_logging("info", as_json=False)
    log = logging.getLogger("uvicorn.error")
    for error in (BodyAborted("cut"), ValueError("broken")):
        try:
            raise error
        except Exception as caught:
            log.error("oops", exc_info=caught)
    out, err = capsys.readouterr()
    assert out == "" and "ValueError" in err and "BodyAborted" not in err


def test_the_line_about_a_request_says_the_same_as_text_and_as_json():
    served = RequestRecord(
        "abc", status=200, key="alice", model="fake-voice", frames=5, first_audio_s=0.25,
        stats=engine.Stats(frames=5, seed=7, queue_s=0.5, redraws=1), playout=Playout(),
        real_time_factor=0.5, reason="stop",
    )  # fmt: skip
    fields = request_fields(served)
    wanted = {
        "key": "alice", "queue_ms": 500.0, "first_audio_ms": 250.0, "frames": 5,
        "real_time_factor": 0.5, "underruns": 0, "redraws": 1, "reason": "stop",
    }  # fmt: skip
    assert fields.items() >= wanted.items()
    entry = json.loads(JsonFormatter().format(record(fields=fields)))
    assert entry.items() >= wanted.items()
    line = TextFormatter().format(record(fields=fields))
    assert all(f" {name}={value}" in line for name, value in wanted.items())


def test_what_is_not_known_of_a_request_is_left_out():
    assert request_fields(RequestRecord("abc", status=404)).keys() == {
        "id", "status", "duration_ms",
    }  # fmt: skip
