import json
import logging

import pytest

from server.errors import BodyAborted
from server.logs import JsonFormatter, TextFormatter, set_up_logging


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
