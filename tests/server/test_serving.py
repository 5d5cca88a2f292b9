import logging
import threading

import httpx
import pytest

import engine
from server.serving import (
    address,
    allow_many_connections,
    cpu_name,
    device_name,
    listen,
    report,
    serve,
)
from server.settings import Settings
from tests.fakes import Script, pcm16
from tests.server.conftest import SPEECH, Live

PCM = {"input": "Hello there.", "response_format": "pcm"}


class Draining:
    """The fake's `drain`, held until the test lets go."""

    def __init__(self, fake):
        self.fake, self.begun, self.done = fake, threading.Event(), threading.Event()
        fake.drain = self

    async def __call__(self, timeout_s):
        import anyio

        self.fake.draining = True
        self.begun.set()
        with anyio.move_on_after(timeout_s):
            await anyio.to_thread.run_sync(self.done.wait)


def test_a_shutdown_lets_the_active_finish_and_refuses_the_rest(fake):
    held = Draining(fake)
    fake.script = Script(frames=3, at_once=1)
    with Live(fake, Settings(drain_timeout_s=10)) as live, httpx.Client(base_url=live.url) as http:
        with http.stream("POST", SPEECH, json=PCM) as reply:
            chunks = reply.iter_raw()
            sound = next(chunks)
            live.server.should_exit = True
            assert held.begun.wait(10)
            assert httpx.get(live.url + "/ready").status_code == 503
            assert httpx.get(live.url + "/health").status_code == 200
            assert httpx.post(live.url + SPEECH, json=PCM).status_code == 503
            fake.advance(10)
            held.done.set()
            assert sound + b"".join(chunks) == pcm16(3)
        live.thread.join(timeout=10)
    assert fake.closed


def test_what_does_not_end_in_time_is_cut_and_cancelled(fake):
    fake.script = Script(frames=50, at_once=1)
    with Live(fake, Settings(drain_timeout_s=0)) as live, httpx.Client(base_url=live.url) as http:
        with http.stream("POST", SPEECH, json=PCM) as reply:
            chunks = reply.iter_raw()
            next(chunks)
            live.server.should_exit = True
            with pytest.raises(httpx.RemoteProtocolError):
                list(chunks)
        live.thread.join(timeout=10)
    assert fake.closed and fake.active == 0


def test_a_whole_reply_that_is_not_ready_in_time_is_refused_in_the_error_shape(fake):
    fake.script = Script(frames=5, at_once=1)
    with Live(fake, Settings(drain_timeout_s=0.2)) as running:
        replies = []

        def ask():
            body = {"input": "Hello.", "stream": False}
            replies.append(httpx.post(f"{running.url}{SPEECH}", json=body, timeout=20))

        client = threading.Thread(target=ask)
        client.start()
        assert fake.wait_for(1)
        running.server.should_exit = True
        client.join(20)
    assert replies[0].status_code == 503
    assert replies[0].json()["error"]["code"] == "unavailable"
    assert "retry-after" in replies[0].headers


def test_an_alias_for_a_speaker_there_is_not_is_refused_before_serving(fake):
    with listen("127.0.0.1", 0) as bound, pytest.raises(engine.InvalidRequest, match="nobody"):
        serve(fake, Settings(voice_aliases={"alloy": "nobody"}), bound)


def test_a_dead_worker_ends_the_process_with_a_failure(fake):
    with Live(fake, Settings(drain_timeout_s=1)) as live:
        fake.alive = False
        live.thread.join(timeout=20)
        assert not live.thread.is_alive()
    assert live.server.worker_died


def test_a_taken_port_is_an_error_before_anything_is_loaded():
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_addresses_are_urls():
    with listen("127.0.0.1", 0) as bound:
        assert address(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_the_start_up_report_says_what_is_served_and_on_what(fake, caplog):
    with caplog.at_level(logging.INFO, "server.serving"):
        report(fake)
    server, model = caplog.records
    assert server.getMessage().startswith("framecast ")
    facts = server.fields
    assert (facts["device"], facts["dtype"], facts["slots"]) == ("cpu", "f32", 8)
    assert (facts["kv_positions"], facts["memory_bytes"]) == (2560, 1 << 20)
    assert facts["threads"] >= 1 and facts["device_name"]
    assert model.getMessage() == "model fake-voice"
    assert model.fields == {
        "task": "custom_voice", "size": "1b7", "speakers": 4, "languages": 3,
    }  # fmt: skip


def test_a_processor_is_called_what_its_maker_calls_it(tmp_path):
    table = tmp_path / "cpuinfo"
    table.write_text("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: other\n")
    assert cpu_name(table) == "Fast CPU @ 3 GHz"


def test_without_a_table_of_processors_there_is_a_name_too(tmp_path):
    assert cpu_name(tmp_path / "none") and device_name("cpu") and device_name("mps")


def test_as_many_files_may_be_open_as_the_system_allows():
    limits = pytest.importorskip("resource", reason="not on Windows")
    kind = limits.RLIMIT_NOFILE
    before = limits.getrlimit(kind)
    try:
        limits.setrlimit(kind, (256, before[1]))
        allow_many_connections()
        assert limits.getrlimit(kind)[0] > 256
    finally:
        limits.setrlimit(kind, before)
