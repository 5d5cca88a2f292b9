"""The parts of the soak. Each takes a running server and returns what it found."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import Served
from tests.e2e.mixed import SPEECH, client, crowd, fetch, leave, mixed, whole
from tests.e2e.talkers import DIALECTS, sockets
from tests.soak.report import Outcome, percentile, slope
from tests.waiting import eventually

SLOTS = 8
FRAMES = (4, 40)
SETTLED_S = 60.0
HEALTH_EVERY_S = 0.02
# Below this the timers of the machine are measured, not the server.
HEALTH_FLOOR_S = 0.01
HEALTH_RATIO = 3.0
WARM_CYCLES = 8
MB_PER_100_REQUESTS = 1.0
BLOCKS_PER_100_REQUESTS = 100.0
# Freed memory lies in pieces, so what is resident moves by steps; it may not keep moving up.
RESIDENT_RATIO = 1.05
REQUEST_TIMEOUT_S = 60.0

HOLDING = re.compile(r"holding (balanced=.*)\n")

FUZZ_OPTIONS = (
    "--no-color",
    "--checks=not_a_server_error,response_schema_conformance,content_type_conformance",
    "--continue-on-failure",
    "--max-examples=100000",
    # With more of them, CPython's parser fails inside hypothesis now and then.
    "--workers=1",
    f"--request-timeout={REQUEST_TIMEOUT_S}",
)
# Bodies against the schema too, on every route; then bodies that can be spoken.
EVERYTHING = ("--phases=coverage,fuzzing",)
SPEAKING = ("--phases=fuzzing", "--mode=positive", "--include-path=/v1/audio/speech")
PASSED = "\nPASSED\n"
# A 504 is what a body with a short `timeout` asks for.
FUZZ_CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "504"]
"""


def voices(served: Served) -> list[str]:
    listed = httpx.get(f"{served.url}/v1/audio/voices").json()["data"]
    return [voice["id"] for voice in listed]


def metric(served: Served, name: str) -> float:
    """The value of a metric without labels."""
    text = httpx.get(f"{served.url}/metrics", timeout=REQUEST_TIMEOUT_S).text
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert match is not None, name
    return float(match[1])


def resident_mb(served: Served) -> float:
    status = Path(f"/proc/{served.process.pid}/status").read_text(encoding="utf-8")
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) / 1024


def descriptors(served: Served) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def idle(served: Served) -> bool:
    """Whether the server comes to run nothing."""

    def nothing() -> bool:
        time.sleep(0.1)
        names = ("framecast_active_slots", "framecast_queue_depth")
        return all(metric(served, name) == 0 for name in names)

    return eventually(nothing, SETTLED_S)


def holding(served: Served) -> dict[str, str]:
    """What `tests.soak.watched` says that it holds now."""
    before = len(HOLDING.findall(served.text))
    served.process.send_signal(signal.SIGUSR1)
    assert eventually(lambda: len(HOLDING.findall(served.text)) > before)
    return dict(pair.split("=") for pair in HOLDING.findall(served.text)[-1].split())


def books_balance(served: Served) -> bool:
    """Whether the engine holds nothing."""
    held = holding(served)
    return held["balanced"] == "True" and held["in_flight"] == "0"


async def gather(url: str, bodies: list[dict[str, Any]], at_once: int) -> list[httpx.Response]:
    turn = asyncio.Semaphore(at_once)

    async def one(http: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
        async with turn:
            return await fetch(http, body)

    async with client(url, 600) as http:
        return await asyncio.gather(*(one(http, body) for body in bodies))


def sound(reply: httpx.Response) -> bytes:
    """Samples without the wav header, which depends on when it was sent."""
    wav = reply.headers.get("content-type", "").startswith("audio/wav")
    return reply.content[44:] if wav else reply.content


def mixed_requests(served: Served, count: int) -> Outcome:
    """Mixed requests, 32 at a time, each compared with its solo run (reference mode)."""
    start, names = time.monotonic(), voices(served)
    bodies = [mixed(number, FRAMES, names) for number in range(count)]
    together = asyncio.run(gather(served.url, bodies, 4 * SLOTS))
    alone = asyncio.run(gather(served.url, bodies, 1))
    failed = sum(reply.status_code != 200 for reply in (*together, *alone))
    pairs = zip(together, alone, strict=True)
    different = sum(sound(left) != sound(right) for left, right in pairs)
    balance = idle(served) and books_balance(served)
    found = (
        f"{count} together and alone: {failed} failed, {different} differ from their solo run;"
        f" books {'balance' if balance else 'do not balance'}"
    )
    right = failed == different == 0 and balance
    return Outcome("Mixed requests", time.monotonic() - start, found, right)


def batches(numbers: range, size: int) -> Iterator[range]:
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


async def abort(url: str, numbers: range, names: list[str]) -> None:
    async with client(url) as http:
        for some in batches(numbers, 10):
            bodies = [mixed(number, (60, 200), names) for number in some]
            points = [random.Random(number).randrange(200_000) for number in some]
            leaving = [leave(http, *each) for each in zip(bodies, points, strict=True)]
            await asyncio.gather(*leaving)


def aborted_streams(served: Served, count: int) -> Outcome:
    """Listeners that leave at any moment; then what the process holds."""
    start, names = time.monotonic(), voices(served)
    asyncio.run(abort(served.url, range(20), names))
    quiet = idle(served)
    before = descriptors(served)
    asyncio.run(abort(served.url, range(20, 20 + count), names))
    balance = quiet and idle(served) and books_balance(served)
    settled = eventually(lambda: descriptors(served) <= before)
    found = (
        f"{count} left: {before} descriptors before, {descriptors(served)} after;"
        f" books {'balance' if balance else 'do not balance'}"
    )
    return Outcome("Aborted streams", time.monotonic() - start, found, balance and settled)


def overload(served: Served, seconds: float) -> Outcome:
    """Three times as many clients as slots and queue places can take, asking without a pause."""
    start, names = time.monotonic(), voices(served)
    end = start + seconds
    tally = asyncio.run(
        crowd(
            served.url,
            lambda number: mixed(number, FRAMES, names),
            3 * SLOTS,
            lambda _: time.monotonic() > end,
        )
    )
    well = idle(served) and httpx.get(f"{served.url}/ready").status_code == 200
    odd = f", {len(tally.odd)} odd answers such as {tally.odd[0]}" if tally.odd else ""
    found = (
        f"{3 * SLOTS} clients on {SLOTS} slots: {tally.spoken} spoken, {tally.refused} refused"
        f" with 429{odd}; {'ready' if well else 'not ready'} afterwards"
    )
    right = well and not tally.odd and tally.spoken > 0
    return Outcome("Three times the slots", time.monotonic() - start, found, right)


def live(served: Served, seconds: float, at_once: int) -> Outcome:
    """Sockets that write words, pause, flood, talk nonsense, cancel and vanish."""
    start = time.monotonic()
    end = start + seconds
    seen = asyncio.run(sockets(served.url, DIALECTS, at_once, lambda _: time.monotonic() > end))
    balance = idle(served) and books_balance(served)
    odd = f", {len(seen.odd)} odd things such as {seen.odd[0]}" if seen.odd else ""
    found = (
        f"{at_once} sockets: {seen.ended} utterances ended, {seen.cancelled} cancels acknowledged,"
        f" {seen.left} vanished{odd}; books {'balance' if balance else 'do not balance'}"
    )
    right = balance and not seen.odd and min(seen.ended, seen.cancelled, seen.left) > 0
    return Outcome("Live sockets", time.monotonic() - start, found, right)


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds after a cycle: pages in memory, bytes asked of `malloc` and not given
    back, and small blocks of Python's own allocator."""

    resident_mb: float
    in_use_mb: float
    blocks: int


def cycle(served: Served, numbers: range, names: list[str]) -> tuple[Held, int]:
    """Requests, and a tenth as many that are aborted; what is held afterwards, and the failures."""
    bodies = [mixed(number, FRAMES, names) for number in numbers]
    replies = asyncio.run(gather(served.url, bodies, 2 * SLOTS))
    asyncio.run(abort(served.url, numbers[: len(numbers) // 10], names))
    assert idle(served)
    said = holding(served)
    in_use = int(said["in_use_bytes"]) / 2**20
    held = Held(resident_mb(served), in_use, int(said["python_blocks"]))
    print(held, file=sys.stderr)
    return held, sum(reply.status_code != 200 for reply in replies)


def memory(served: Served, cycles: int, requests: int) -> Outcome:
    """What the process holds after each of many equal cycles of requests."""
    start, names = time.monotonic(), voices(served)
    numbers = range((WARM_CYCLES + cycles) * requests)
    found = [cycle(served, some, names) for some in batches(numbers, requests)]
    seen, failed = [held for held, _ in found], sum(failures for _, failures in found)
    measured, half = seen[WARM_CYCLES:], WARM_CYCLES + cycles // 2
    in_use = slope([held.in_use_mb for held in measured]) / requests * 100
    blocks = slope([held.blocks for held in measured]) / requests * 100
    before = max(held.resident_mb for held in seen[:half])
    after = max(held.resident_mb for held in seen[half:])
    summary = (
        f"{cycles} cycles of {requests}: {measured[0].in_use_mb:.0f} MB in use after the warm-up,"
        f" {measured[-1].in_use_mb:.0f} MB at the end, {in_use:+.2f} MB and {blocks:+.0f} Python"
        f" blocks per 100 requests; resident at most {before:.0f} MB before the middle,"
        f" {after:.0f} MB after it; {failed} failed"
    )
    flat = in_use < MB_PER_100_REQUESTS and blocks < BLOCKS_PER_100_REQUESTS
    right = flat and after < RESIDENT_RATIO * before and failed == 0
    return Outcome("Memory", time.monotonic() - start, summary, right)


def probes(http: httpx.Client, stop: Iterator[bool]) -> list[float]:
    """Seconds `/health` takes, asked at even times."""
    took = []
    for _ in stop:
        start = time.perf_counter()
        assert http.get("/health").status_code == 200
        took.append(time.perf_counter() - start)
        time.sleep(HEALTH_EVERY_S)
    return took


def for_seconds(seconds: float) -> Iterator[bool]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield True


def health(served: Served, seconds: float) -> Outcome:
    """`/health` on an idle server and on one that speaks long texts and encodes them as mp3."""
    start, names = time.monotonic(), voices(served)
    over = threading.Event()
    made: list[int] = []

    def speak(number: int) -> None:
        with httpx.Client(base_url=served.url, timeout=600) as http:
            while not over.is_set():
                body = {**whole(number, (40, 40), names), "response_format": "mp3"}
                text = " ".join([body["input"]] * 8)
                reply = http.post(SPEECH, json={**body, "input": text, "stream": False})
                made.append(len(reply.content) if reply.status_code == 200 else 0)

    with httpx.Client(base_url=served.url, timeout=REQUEST_TIMEOUT_S) as http:
        quiet = probes(http, for_seconds(seconds))
        speakers = [threading.Thread(target=speak, args=(number,)) for number in range(2)]
        for each in speakers:
            each.start()
        busy = probes(http, for_seconds(seconds))
        over.set()
        for each in speakers:
            each.join()
    baseline, loaded = percentile(quiet, 0.99), percentile(busy, 0.99)
    ratio = loaded / max(baseline, HEALTH_FLOOR_S)
    found = (
        f"p99 {baseline * 1e3:.1f} ms idle, {loaded * 1e3:.1f} ms during {len(made)} long mp3"
        f" replies: ratio {ratio:.1f} (baseline at least {HEALTH_FLOOR_S * 1e3:.0f} ms)"
    )
    right = ratio <= HEALTH_RATIO and len(made) > 0 and all(made)
    return Outcome("`/health` under load", time.monotonic() - start, found, right)


def spoken(served: Served) -> int:
    """Requests for speech that were answered with 200."""
    text = httpx.get(f"{served.url}/metrics", timeout=REQUEST_TIMEOUT_S).text
    lines = re.findall(r"^framecast_requests_total{(.*)} (\S+)$", text, re.MULTILINE)
    return sum(
        int(float(count))
        for labels, count in lines
        if "/audio/speech" in labels and 'status="200"' in labels
    )


def fuzzing(served: Served, seconds: float) -> Outcome:
    """schemathesis over the server's own schema; a timeout is a failure."""
    start = time.monotonic()
    beside = Path(sys.executable).parent / "schemathesis"
    program = str(beside) if beside.exists() else shutil.which("schemathesis")
    if program is None:
        return Outcome("Fuzzing", 0, "schemathesis is not installed", False)
    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(schemathesis, program, served, seconds, *options)
            for options in (EVERYTHING, SPEAKING)
        ]
        reports = [each.result() for each in running]
    well = idle(served) and httpx.get(f"{served.url}/health").status_code == 200
    cases = sum(int(number) for text in reports for number in re.findall(r"(\d+) generated", text))
    failures = [found for text in reports for found in re.findall(r"❌ (ST\d+ .+)", text)]
    found = (
        f"{cases} cases, {spoken(served)} of them spoken;"
        f" failures: {', '.join(failures) or 'none'};"
        f" {'healthy' if well else 'not healthy'} afterwards"
    )
    right = well and all(PASSED in text for text in reports) and spoken(served) > 0
    return Outcome("Fuzzing", time.monotonic() - start, found, right)


def schemathesis(program: str, served: Served, seconds: float, *options: str) -> str:
    """Run it and return its report, which ends with `PASSED` when nothing was found."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(FUZZ_CONFIG, encoding="utf-8")
        done = subprocess.run(
            [program, "run", f"{served.url}/openapi.json", *FUZZ_OPTIONS, *options,
             f"--max-time={seconds:.0f}"],
            capture_output=True, text=True, check=False, cwd=folder, timeout=seconds + 600,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.soak.hooks",
                 "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
    print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr)
    return done.stdout + (PASSED if done.returncode == 0 else "")
