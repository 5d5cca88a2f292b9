import sys
import threading

import anyio
import httpx
import pytest

from server.app import create_app
from server.settings import Settings
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
        await ask_until(client, '"status":"ready"')
        await client.post("/v1/audio/speech", json={"input": "Hi."})
        await client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "nobody"})
        await client.get("/v1/no-such-path-1")
        await client.get("/v1/no-such-path-2")
        text = (await client.get("/metrics")).text
    for line in (
        'framecast_requests_total{reason="stop",route="/audio/speech",status="200"} 1.0',
        'framecast_requests_total{reason="voice_not_found",route="/audio/speech",status="400"} 1.0',
        'framecast_requests_total{reason="",route="other",status="404"} 2.0',
        "framecast_queue_wait_seconds_count 1.0",
        "framecast_stage_frames_total 5.0",
        "framecast_ready 1.0",
        "framecast_draining 0.0",
        "framecast_first_audio_seconds_count 1.0",
        "framecast_audio_seconds_total 0.4",
        "framecast_frames_total 5.0",
        'framecast_finished_total{reason="stop"} 1.0',
        "framecast_queue_depth 3.0",
        "framecast_active_slots 0.0",
        "framecast_frames_per_second 37.5",
    ):
        assert line in text


async def test_metrics_tell_a_server_that_warms_up_from_one_that_is_ready(connect, fake):
    fake.warm.clear()
    async with connect() as client:
        assert "framecast_ready 0.0" in (await client.get("/metrics")).text
        fake.warm.set()
        await ask_until(client, '"status":"ready"')
        assert "framecast_ready 1.0" in (await client.get("/metrics")).text


async def test_metrics_say_what_is_served_and_on_what(connect, fake):
    async with connect() as client:
        text = (await client.get("/metrics")).text
    [line] = [line for line in text.splitlines() if line.startswith("framecast_build_info{")]
    assert all(part in line for part in ('device="cpu"', 'dtype="f32"', 'model="fake-voice"'))


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
async def test_metrics_show_the_memory_of_the_process(connect):
    async with connect() as client:
        text = (await client.get("/metrics")).text
    [line] = [line for line in text.splitlines() if line.startswith("process_resident_memory_b")]
    assert float(line.split()[1]) > 1e6


async def test_probes_and_metrics_answer_while_the_worker_is_busy(start):
    loaded = start()
    app = create_app(lambda: loaded, Settings())
    busy, release = threading.Event(), threading.Event()

    def work():
        busy.set()
        release.wait(30)

    async with app.router.lifespan_context(app):
        holder = threading.Thread(target=loaded.call, args=(work,))
        holder.start()
        try:
            await anyio.to_thread.run_sync(busy.wait, 30)
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                with anyio.fail_after(10):
                    replies = [await client.get(path) for path in ("/health", "/metrics")]
                assert not release.is_set()
        finally:
            release.set()
            holder.join()
    assert [reply.status_code for reply in replies] == [200, 200]
