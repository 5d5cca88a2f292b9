import anyio
import pytest

from tests.fakes import FakeEngine

pytestmark = pytest.mark.anyio


async def ask_until(client, expected):
    """Poll `/ready` until its answer holds `expected`."""
    with anyio.fail_after(10):
        while expected not in (reply := await client.get("/ready")).text:  # noqa: ASYNC110
            await anyio.sleep(0.005)
    return reply


async def test_health_answers_during_the_warm_up_while_ready_does_not(connect, fake):
    fake.warm.clear()
    async with connect() as client:
        assert (await client.get("/health")).json()["status"] == "ok"
        reply = await client.get("/ready")
        assert reply.status_code == 503 and int(reply.headers["retry-after"]) >= 1
        fake.warm.set()
        reply = await ask_until(client, '"status":"ready"')
    assert reply.status_code == 200


async def test_a_failed_warm_up_is_told_by_ready(connect, fake):
    fake.warm_up_error = RuntimeError("secret")
    async with connect() as client:
        reply = await ask_until(client, "warm-up failed")
    assert reply.status_code == 503 and "secret" not in reply.text


async def test_a_dead_worker_fails_both_probes(connect, fake):
    async with connect() as client:
        fake.alive = False
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/ready")).status_code == 503


async def test_health_is_json_and_never_the_bare_word_ok(connect):
    async with connect() as client:
        reply = await client.get("/health")
    assert reply.headers["content-type"] == "application/json"
    assert reply.text.strip() != "OK"


@pytest.mark.parametrize("path", ["/v1/", "/v1", "/"])
async def test_the_root_is_harmless(connect, path):
    async with connect() as client:
        assert (await client.get(path)).json()["name"] == "framecast"


async def test_wyoming_openai_recognises_a_voice_list(connect):
    async with connect() as client:
        assert (await client.get("/v1/test")).json() == {"status": "ok"}
        assert (await client.get("/v1/readyz")).status_code == 404


async def test_metrics_show_requests_sound_and_the_engine(connect, fake: FakeEngine):
    async with connect() as client:
        await client.post("/v1/audio/speech", json={"input": "Hi."})
        await client.get("/v1/no-such-path-1")
        await client.get("/v1/no-such-path-2")
        text = (await client.get("/metrics")).text
    for line in (
        'framecast_requests_total{route="/audio/speech",status="200"} 1.0',
        'framecast_requests_total{route="other",status="404"} 2.0',
        "framecast_first_audio_seconds_count 1.0",
        "framecast_audio_seconds_total 0.4",
        "framecast_frames_total 5.0",
        'framecast_finished_total{reason="stop"} 1.0',
        "framecast_queue_depth 3.0",
        "framecast_active_slots 0.0",
        "framecast_frames_per_second 37.5",
    ):
        assert line in text
