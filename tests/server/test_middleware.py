import logging

import pytest

from tests.fakes import Script
from tests.server.conftest import SPEECH

pytestmark = pytest.mark.anyio


def request_lines(caplog):
    return [record for record in caplog.records if record.name == "server.requests"]


@pytest.mark.parametrize("given", ["abc-123", "a" * 128])
async def test_a_sane_request_id_is_echoed(connect, given):
    async with connect() as client:
        reply = await client.get("/health", headers={"x-request-id": given})
    assert reply.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "a\tb", "é"])
async def test_another_request_id_is_replaced(connect, given):
    async with connect() as client:
        reply = await client.get("/health", headers={"x-request-id": given.encode()})
    assert reply.headers["x-request-id"].startswith("req_")


async def test_errors_have_a_request_id_too(connect):
    async with connect() as client:
        assert (await client.get("/nope")).headers["x-request-id"]


async def test_a_request_is_one_log_line_that_says_how_it_went(connect, caplog):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            body = {"input": "Hi.", "voice": "vivian", "response_format": "pcm"}
            await client.post(SPEECH, json=body, headers={"x-request-id": "abc"})
    [line] = request_lines(caplog)
    fields = line.fields
    assert (fields["id"], fields["status"], fields["voice"]) == ("abc", 200, "vivian")
    assert (fields["frames"], fields["seed"], fields["reason"]) == (5, 1234, "stop")
    assert fields["real_time_factor"] > 0 and fields["first_audio_ms"] >= 0
    assert (fields["model"], fields["queue_ms"], fields["redraws"]) == ("fake-voice", 1.0, 0)


async def test_the_queue_is_no_part_of_the_real_time_factor(connect, fake, caplog):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            await client.post(SPEECH, json={"input": "Hi.", "response_format": "pcm"})
            text = (await client.get("/metrics")).text
    [line] = request_lines(caplog)
    # The fake worked (0.2 - 0.001) s for 0.4 s of sound.
    assert line.fields["real_time_factor"] == pytest.approx(0.4975, abs=0.001)
    assert "framecast_real_time_factor_sum 0.497" in text


async def test_a_refusal_is_logged_with_its_reason(connect, fake, caplog):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            await client.post(SPEECH, json={"input": "Hi.", "voice": "zz"})
    fields = request_lines(caplog)[-1].fields
    assert (fields["status"], fields["reason"]) == (400, "voice_not_found")
    assert "'zz'" in fields["detail"]


async def test_probes_are_logged_for_debugging_only(connect, caplog):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            await client.get("/health")
    assert not request_lines(caplog)


async def test_a_path_cannot_forge_a_log_line(connect, caplog):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            await client.get("/a%0Ab")
    assert request_lines(caplog)[-1].getMessage() == r"GET /a\nb"


@pytest.mark.parametrize("headers", ["authorization", "x-stainless-lang, authorization"])
async def test_a_preflight_passes(connect, headers):
    async with connect(cors_origins="https://a.example, https://b.example") as client:
        reply = await client.options(
            SPEECH,
            headers={
                "origin": "https://b.example",
                "access-control-request-method": "POST",
                "access-control-request-headers": headers,
            },
        )
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "https://b.example"
    assert headers in reply.headers["access-control-allow-headers"]


async def test_an_origin_not_listed_gets_no_permission(connect):
    async with connect(cors_origins="https://a.example") as client:
        reply = await client.get("/v1/models", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in reply.headers


async def test_browsers_may_read_errors_and_our_headers(connect, fake):
    fake.script = Script(refuse=ZeroDivisionError())
    async with connect() as client:
        reply = await client.post(
            SPEECH, json={"input": "Hi."}, headers={"origin": "https://a.example"}
        )
    assert reply.status_code == 500
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "x-request-id" in reply.headers["access-control-expose-headers"]


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/audio/voices"])
async def test_head_is_answered_like_get(connect, path):
    async with connect() as client:
        head, get = await client.head(path), await client.get(path)
    assert head.status_code == get.status_code == 200
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_head_is_counted_under_its_route_and_logged_as_head(connect, caplog):
    with caplog.at_level(logging.DEBUG, "server.requests"):
        async with connect() as client:
            await client.head("/v1/models")
            text = (await client.get("/metrics")).text
    assert 'route="/models",status="200"' in text
    assert request_lines(caplog)[0].getMessage() == "HEAD /v1/models"


async def test_what_a_path_allows_is_said(connect):
    async with connect() as client:
        wrong, head = await client.post("/health"), await client.head(SPEECH)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("field", ["voice", "language", "response_format", "task_type"])
async def test_a_huge_value_comes_back_and_is_logged_shortened(connect, caplog, field):
    with caplog.at_level(logging.INFO, "server.requests"):
        async with connect() as client:
            reply = await client.post(SPEECH, json={"input": "Hi.", field: "z" * 500_000})
            missing = await client.get("/" + "y" * 50_000)
    assert reply.status_code == 400 and len(reply.content) < 3000
    assert reply.json()["error"]["param"] == field
    assert missing.status_code == 404 and len(missing.content) < 3000
    for line in request_lines(caplog):
        assert len(f"{line.getMessage()} {line.fields}") < 3000
