"""Who may call: keys as they are written down, as clients send them, and the open routes."""

import hashlib
import io
import logging
import sys

import anyio
import pytest
from pydantic import ValidationError

from server import cli
from server.keys import ApiKey, KeyRing, given_keys, key_line, parse_key, read_key_file
from server.settings import Settings, explain
from tests.server.conftest import SPEECH

BODY = {"input": "Hi.", "response_format": "pcm"}
SECRET = "sk-correct-horse"
DIGEST = hashlib.sha256(SECRET.encode()).digest()


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (SECRET, "line-7"),
        (f"alice:{SECRET}", "alice"),
        (f"alice:sha256:{DIGEST.hex()}", "alice"),
        (f"alice:SHA256:{DIGEST.hex().upper()}", "alice"),
        (f"sha256:{DIGEST.hex()}", "line-7"),
    ],
)
def test_a_key_is_written_plain_or_hashed_with_or_without_a_name(line, name):
    assert parse_key(line, "line-7") == ApiKey(name, DIGEST)


def test_a_key_has_limits_and_a_priority_of_its_own():
    words = "requests_per_minute=60 concurrency=4 audio_seconds_per_hour=0.5 priority=-2"
    assert parse_key(f"alice:{SECRET} {words}", "") == ApiKey("alice", DIGEST, 60, 4, 0.5, -2)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("alice:", "visible ASCII"),
        ("al/ice:{}", "a key's name"),
        (":{}", "a key's name"),
        ("{}é", "visible ASCII"),
        ("alice:sha256:{}", "64 hexadecimal digits"),
        ("sha256:{}", "64 hexadecimal digits"),
        ("alice {}", "word 2 is none of"),
        ("alice:{} speed=2", "word 2 is none of"),
        ("alice:{} priority=1 concurrency={}", "`concurrency` must be a whole number"),
        ("alice:{} concurrency=-1", "`concurrency` must be a whole number"),
        ("alice:{} concurrency=1.5", "`concurrency` must be a whole number"),
        ("alice:{} audio_seconds_per_hour=nan", "`audio_seconds_per_hour` must be a number"),
        ("alice:{} audio_seconds_per_hour=inf", "`audio_seconds_per_hour` must be a number"),
        ("alice:{} priority=high", "`priority` must be a whole number"),
        ("alice:{} priority=1 priority=1", "`priority` is given twice"),
    ],
)
def test_a_malformed_line_is_named_and_not_shown(tmp_path, line, told):
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\nbob:other\n{line.replace('{}', SECRET)}\n", encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        read_key_file(file)
    message = str(caught.value)
    assert message.startswith(f"line 4 of `{file}`: ") and told in message
    assert SECRET not in message


def test_a_key_file_may_have_comments_blank_lines_and_any_line_end(tmp_path):
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbf# ours\r\n\r\n  alice:a priority=1 # her key=1\r\nb\r\n#c")
    assert [(key.name, key.priority) for key in read_key_file(file)] == [
        ("alice", 1),
        ("line-4", 0),
    ]


def make_unreadable(file, kind):
    if kind == "empty":
        file.write_text("# nobody\n")
    elif kind == "binary":
        file.write_bytes(b"a\xff\n")
    elif kind == "folder":
        file.mkdir()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("absent", "cannot read"),
        ("folder", "cannot read"),
        ("binary", "not UTF-8"),
        ("empty", "holds no key"),
    ],
)
def test_a_key_file_that_cannot_be_used_ends_the_start_with_2(tmp_path, capsys, kind, told):
    file = tmp_path / "keys"
    make_unreadable(file, kind)
    assert cli.main(["serve", "--port", "0", "--api-keys-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert "`--api-keys-file`" in err and f"`{file}`" in err and told in err
    assert "Traceback" not in err


def test_a_malformed_line_ends_the_start_with_2_and_is_not_shown(tmp_path, capsys):
    file = tmp_path / "keys"
    file.write_text(f"alice:{SECRET} speed=2\n")
    assert cli.main(["serve", "--port", "0", "--api-keys-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert "line 1" in err and SECRET not in err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"api_keys": f"a:b, {SECRET} x"}, "entry 2"),
        ({"api_keys": ""}, "holds no key"),
        ({"api_keys": " , "}, "holds no key"),
        ({"api_keys": f"a:{SECRET},a:c"}, "two API keys are named `a`"),
        ({"api_keys": f"a:{SECRET},b:{SECRET}"}, "`a` and `b` are the same API key"),
        ({"key_concurrency": 1}, "`--key-concurrency` needs `--api-keys`"),
        ({"key_requests_per_minute": 1}, "`--key-requests-per-minute` needs `--api-keys`"),
        ({"key_audio_seconds_per_hour": 1}, "`--key-audio-seconds-per-hour` needs `--api-keys`"),
        ({"protect_lists": True}, "`--protect-lists` needs `--api-keys`"),
        ({"protect_metrics": True}, "`--protect-metrics` needs `--api-keys`"),
    ],
)
def test_settings_of_keys_that_make_no_sense_are_refused_without_showing_a_key(settings, told):
    with pytest.raises(ValidationError) as caught:
        Settings(**settings)
    assert told in explain(caught.value)
    assert SECRET not in explain(caught.value) + str(caught.value)


def test_keys_come_from_the_environment_and_the_file_with_the_default_limits(tmp_path, monkeypatch):
    file = tmp_path / "keys"
    file.write_text("alice:a concurrency=0\n")
    monkeypatch.setenv("FRAMECAST_API_KEYS", "one, bob:two requests_per_minute=9")
    settings = Settings(api_keys_file=file, key_concurrency=3, key_requests_per_minute=5)
    limits = {key.name: (key.requests_per_minute, key.concurrency) for key in settings.all_keys()}
    assert limits == {"env-1": (5, 3), "bob": (9, 3), "alice": (5, 0)}


def test_keys_are_hashed_wherever_they_are_kept():
    settings = Settings(api_keys=[SECRET])
    assert settings.all_keys()[0].digest == DIGEST
    for shown in (
        repr(settings),
        settings.model_dump_json(exclude={"api_keys"}),
        repr(settings.all_keys()),
    ):
        assert SECRET not in shown and DIGEST.hex() not in shown
    assert SECRET not in repr(settings.model_dump())


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {SECRET}"},
        {"authorization": f"bearer  {SECRET} "},
        {"authorization": f"Token {SECRET}"},
        {"authorization": f"Api-Key {SECRET}"},
        {"api-key": SECRET},
        {"x-api-key": SECRET},
        {"xi-api-key": SECRET},
        {"authorization": "Bearer ", "x-api-key": SECRET},
        {"authorization": "Basic eDp5", "api-key": SECRET},
        {"authorization": "Bearer other", "api-key": SECRET},
    ],
)
@pytest.mark.anyio
async def test_a_key_is_found_in_every_spelling(connect, fake, headers):
    async with connect(api_keys=f"other:x,alice:{SECRET}") as client:
        reply = await client.post(SPEECH, json=BODY, headers=headers)
    assert reply.status_code == 200
    assert fake.envelopes[0]["tenant"] == "alice"


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, "needs an API key"),
        ({"authorization": "Bearer "}, "needs an API key"),
        ({"authorization": "Bearer"}, "needs an API key"),
        ({"authorization": f"Basic {SECRET}"}, "needs an API key"),
        ({"authorization": SECRET}, "needs an API key"),
        ({"x-api-key": " "}, "needs an API key"),
        ({"authorization": "Bearer wrong"}, "not one of this server's"),
        ({"authorization": f"Bearer {SECRET}x"}, "not one of this server's"),
        ({"authorization": f"Bearer {SECRET[:-1]}"}, "not one of this server's"),
        ({"authorization": f"Bearer {DIGEST.hex()}"}, "not one of this server's"),
        ({"api-key": "é"}, "not one of this server's"),
    ],
)
@pytest.mark.anyio
async def test_without_a_right_key_the_answer_is_401(connect, fake, headers, told):
    headers = {name: value.encode("latin-1") for name, value in headers.items()}
    async with connect(api_keys=SECRET) as client:
        reply = await client.post(SPEECH, json=BODY, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["x-should-retry"] == "false" and reply.headers["x-request-id"]
    error = reply.json()["error"]
    assert told in error.pop("message")
    assert error == {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    assert fake.requests == []


@pytest.mark.parametrize("headers", [{}, bearer("anything"), {"authorization": "Bearer "}])
@pytest.mark.anyio
async def test_a_server_without_keys_takes_any_or_none(connect, fake, headers):
    async with connect() as client:
        reply = await client.post(SPEECH, json=BODY, headers=headers)
    assert reply.status_code == 200
    assert fake.envelopes[0]["tenant"] == "" and fake.envelopes[0]["priority"] == 0


PROBES = ("/health", "/ready")
LISTS = (
    "/v1", "/", "/v1/models", "/models", "//v1/models/", "/v1/models/fake-voice",
    "/v1/audio/voices", "/v1/audio/voices?legacy=true", "/v1/audio/models", "/v1/test",
    "/docs", "/redoc", "/openapi.json",
)  # fmt: skip
SCRAPED = ("/metrics",)


@pytest.mark.parametrize(
    ("protect", "open_paths", "closed_paths"),
    [
        ({}, (*PROBES, *LISTS, *SCRAPED), ()),
        ({"protect_lists": True}, (*PROBES, *SCRAPED), LISTS),
        ({"protect_metrics": True}, (*PROBES, *LISTS), SCRAPED),
    ],
)
@pytest.mark.anyio
async def test_lists_and_metrics_are_open_unless_protected_and_probes_always(
    connect, protect, open_paths, closed_paths
):
    async with connect(api_keys=SECRET, **protect) as client:
        while (await client.get("/ready")).status_code == 503:  # noqa: ASYNC110
            await anyio.sleep(0.005)  # warming up
        for path in (*open_paths, *closed_paths):
            expected = 200 if path in open_paths else 401
            assert (await client.get(f"http://test{path}")).status_code == expected, path
            assert (
                await client.get(f"http://test{path}", headers=bearer(SECRET))
            ).status_code == 200
        for path in open_paths:  # what is open does not mind a wrong key
            assert (await client.get(f"http://test{path}", headers=bearer("x"))).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/audio/speech"), ("GET", "/v1/later"), ("POST", "/v1/audio/voices"),
     ("DELETE", "/v1/audio/voices/x"), ("POST", "/v1/models"), ("GET", "/v1/v1/models")],
)  # fmt: skip
@pytest.mark.anyio
async def test_whatever_is_not_known_to_be_open_needs_a_key(connect, method, path):
    async with connect(api_keys=SECRET) as client:
        assert (await client.request(method, path, json=BODY)).status_code == 401
        assert (await client.request(method, path, headers=bearer(SECRET))).status_code != 401


@pytest.mark.parametrize("path", [SPEECH, "/v1/models", "/metrics"])
@pytest.mark.anyio
async def test_a_preflight_needs_no_key(connect, path):
    headers = {
        "origin": "https://a.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, x-api-key",
    }
    async with connect(api_keys=SECRET, protect_lists=True, protect_metrics=True) as client:
        reply = await client.options(path, headers=headers)
        assert (await client.options(path)).status_code == 405  # no browser: just no such method
    assert reply.status_code == 200
    assert "x-api-key" in reply.headers["access-control-allow-headers"]


@pytest.mark.anyio
async def test_a_page_can_read_why_it_was_refused(connect):
    async with connect(api_keys=SECRET) as client:
        reply = await client.post(SPEECH, json=BODY, headers={"origin": "https://a.example"})
    assert reply.status_code == 401 and reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.anyio
async def test_the_log_knows_a_key_by_its_name_only(connect, caplog):
    with caplog.at_level(logging.DEBUG):
        async with connect(api_keys=f"alice:{SECRET}") as client:
            await client.post(SPEECH, json=BODY, headers=bearer(SECRET))
            await client.post(SPEECH, json=BODY, headers=bearer("sk-wrong"))
    lines = [record.fields for record in caplog.records if record.name == "server.requests"]
    assert lines[0]["key"] == "alice" and "key" not in lines[1]
    assert (lines[1]["status"], lines[1]["reason"]) == (401, "invalid_api_key")
    shown = caplog.text + repr(lines)
    assert SECRET not in shown and "sk-wrong" not in shown and DIGEST.hex() not in shown


@pytest.mark.anyio
async def test_a_key_has_its_owners_priority(connect, fake):
    async with connect(api_keys=f"alice:{SECRET} priority=5") as client:
        await client.post(SPEECH, json=BODY | {"priority": 9}, headers=bearer(SECRET))
    assert fake.envelopes[0]["priority"] == 5


def test_every_key_is_compared_whether_or_not_one_was_found(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "server.keys.hmac.compare_digest", lambda a, b: compared.append(a) or a == b
    )
    ring = KeyRing([parse_key(f"{name}:{name}", "") for name in ("a", "b", "c")])
    assert ring.find(bearer("a")).name == "a" and len(compared) == 3
    assert ring.find(bearer("x")) is None and len(compared) == 6


def test_no_header_holds_no_key():
    assert given_keys({}) == []


@pytest.mark.parametrize("name", [None, "alice"])
def test_hash_key_prints_a_line_that_lets_the_key_in(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    assert cli.main(["hash-key", *(["--name", name] if name else [])]) == 0
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert parse_key(out, "unnamed") == ApiKey(name or "unnamed", DIGEST)


@pytest.mark.parametrize(
    ("typed", "name", "told"),
    [
        ("", "a", "visible ASCII"),
        ("two words", "a", "visible ASCII"),
        ("two\nlines", "a", "visible ASCII"),
        (SECRET, "no/good", "a key's name"),
        (SECRET, "no good", "a key's name"),
    ],
)
def test_hash_key_refuses_what_no_request_could_carry(monkeypatch, capsys, typed, name, told):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert cli.main(["hash-key", "--name", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and told in err and (not typed or typed not in err)


def test_a_key_with_a_colon_can_be_hashed():
    assert KeyRing([parse_key(key_line("a:b", "alice"), "")]).find(bearer("a:b")).name == "alice"
