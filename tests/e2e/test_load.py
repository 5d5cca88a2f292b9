"""Crowds on a real server: the engine in reference mode, a tiny model, clients on real sockets.

Short versions of what `.ci/soak` does for longer with the bundled voice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import engine
from tests.e2e.conftest import Serve
from tests.e2e.mixed import FORMATS, SPEECH, Tally, client, crowd, fetch, leave, mixed, whole
from tests.faults.speaking import balanced, busy
from tests.waiting import PATIENCE_S, eventually, promptly, run

FRAME_BYTES = 1920 * 2
FRAMES = (3, 9)
VOICES = ["ryan", "alloy", "vivian", "Eric", "dylan"]
DESCRIPTORS = Path("/proc/self/fd")
POOLS = ("asyncio_", "uvloop_", "AnyIO worker")


def sound(body: dict[str, Any], reply: httpx.Response) -> bytes:
    """The reply without the one header that depends on when it was sent."""
    assert reply.status_code == 200, reply.text
    return reply.content[44:] if body["response_format"] == "wav" else reply.content


def alone(url: str, bodies: list[dict[str, Any]]) -> list[bytes]:
    """The sound of each request when it has the server to itself."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        return [sound(body, http.post(SPEECH, json=body)) for body in bodies]


def test_32_mixed_requests_on_8_slots_with_10_disconnects_equal_their_solo_runs(serve: Serve):
    url, speaker = serve(slots=8)
    bodies = [mixed(number, FRAMES, VOICES) for number in range(32)]
    leavers = set(random.Random(32).sample(range(32), 10))

    async def one(http: httpx.AsyncClient, number: int) -> bytes | None:
        if number in leavers:
            await leave(http, bodies[number], random.Random(number).randrange(60_000))
            return None
        return sound(bodies[number], await fetch(http, bodies[number]))

    async def everyone() -> list[bytes | None]:
        async with client(url) as http:
            return await asyncio.gather(*(one(http, number) for number in range(32)))

    heard = run(everyone(), 2 * PATIENCE_S)
    assert balanced(speaker)
    survivors = {number: bytes_ for number, bytes_ in enumerate(heard) if bytes_ is not None}
    assert len(survivors) == 22 and all(survivors.values())
    assert list(survivors.values()) == alone(url, [bodies[number] for number in survivors])


def test_a_slow_reader_holds_nobody_up_and_loses_nothing(serve: Serve):
    url, speaker = serve(slots=4, stream_bytes=2 * 2 * FRAME_BYTES, send_buffer=16_384)
    long = {**whole(0, (80, 80), VOICES), "input": "One."}
    with contextlib.closing(slow_listener(url, long)) as slow:
        assert eventually(lambda: run(speaker.stats()).active == 1)
        made = settled(speaker)
        bodies = [whole(number, FRAMES, VOICES) for number in range(1, 9)]
        fast = run(all_of(url, bodies), 2 * PATIENCE_S)
        # All of theirs was made and sent, while the one who does not read waits for itself.
        stats = run(speaker.stats())
        assert stats.active == 1 and stats.queued == 0
        theirs = sum(len(bytes_) // FRAME_BYTES for bytes_ in fast)
        assert stats.frames_total - made - theirs <= 16
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        late = promptly(lambda: body_of(slow))
    assert [*fast, late] == alone(url, [*bodies, long])
    assert len(late) == 80 * FRAME_BYTES
    assert balanced(speaker)


def settled(speaker: engine.Engine) -> int:
    """Wait until nothing more is made, because every buffer on the way is full; the frames made."""
    seen = [-1] * 20

    def quiet() -> bool:
        time.sleep(0.02)
        seen.append(run(speaker.stats()).frames_total)
        return seen[-1] == seen[-20] and not promptly(lambda: speaker.call(busy(speaker)))

    assert eventually(quiet)
    return seen[-1]


def slow_listener(url: str, body: dict[str, Any]) -> socket.socket:
    """A client with a tiny receive buffer that has sent its request and does not read."""
    host, port = url.removeprefix("http://").split(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    listener.settimeout(PATIENCE_S)
    listener.connect((host, int(port)))
    payload = json.dumps(body).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    listener.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return listener


def body_of(listener: socket.socket) -> bytes:
    """Read a chunked reply to its clean end."""
    with listener.makefile("rb") as file:
        assert b" 200 " in file.readline()
        while file.readline().strip():
            pass
        chunks = []
        while size := int(file.readline(), 16):
            chunks.append(file.read(size))
            assert file.readline() == b"\r\n"
        assert file.readline() == b"\r\n"
    return b"".join(chunks)


async def all_of(url: str, bodies: list[dict[str, Any]]) -> list[bytes]:
    async with client(url) as http:
        replies = await asyncio.gather(*(fetch(http, body) for body in bodies))
    return [sound(body, reply) for body, reply in zip(bodies, replies, strict=True)]


def test_jobs_that_fail_in_the_middle_of_a_batch_fail_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.CRITICAL, logger="framecast.engine")
    url, speaker = serve(slots=8)
    bodies = [whole(number, (6, 9), ["vivian"]) for number in range(8)]
    expected = alone(url, bodies)
    generator = speaker._runners[0]._generator
    row = next(s.id for s in speaker._runners[0].spec.talker.speakers if s.name == "ryan")
    prompt, decode = generator.prompt, generator.decode

    def failing_prompt(plan: Any) -> Any:
        if plan.speaker_row == row:
            raise ValueError("a bad prompt")
        return prompt(plan)

    def poisoned_decode(slots: Any) -> None:
        decode(slots)
        for slot in slots:
            if slot.entry.sampling.seed == 3 and slot.frames == 4:
                generator.logits[slot.index] = float("nan")

    monkeypatch.setattr(generator, "prompt", failing_prompt)
    monkeypatch.setattr(generator, "decode", poisoned_decode)
    bad_prompt = {**bodies[0], "voice": "ryan"}

    async def everyone() -> list[Any]:
        async with client(url) as http:
            asking = [fetch(http, body) for body in (*bodies, bad_prompt)]
            return await asyncio.gather(*asking, return_exceptions=True)

    *replies, refused = run(everyone(), 2 * PATIENCE_S)
    assert refused.status_code == 500
    assert refused.json()["error"]["code"] == "generation_failed"
    assert isinstance(replies[3], httpx.RemoteProtocolError)  # cut: it had begun
    others = [number for number in range(8) if number != 3]
    assert [replies[number].content for number in others] == [expected[n] for n in others]
    assert balanced(speaker)


def test_three_times_the_slots_are_answered_with_sound_or_a_proper_429(serve: Serve):
    url, speaker = serve(slots=4, max_queue=4)
    tally = run(
        crowd(url, lambda number: mixed(number, FRAMES, VOICES), 12, lambda asked: asked >= 48),
        2 * PATIENCE_S,
    )
    assert tally.odd == ()
    assert tally.spoken >= 8 and tally.refused > 0
    assert tally.spoken + tally.refused == 48
    assert balanced(speaker)
    assert alone(url, [whole(7, FRAMES, VOICES)]) != [b""]


def test_the_flood_of_one_key_is_refused_and_another_keys_requests_never_are(serve: Serve):
    url, speaker = serve(slots=2, max_queue=2, keys="greedy:key-of-greedy,modest:key-of-modest")
    over = False

    async def modest() -> list[int]:
        nonlocal over
        assert await asyncio.to_thread(eventually, lambda: speaker.in_flight >= 4)
        async with client(url, key="key-of-modest") as http:
            bodies = [mixed(number, FRAMES, VOICES) for number in range(8)]
            statuses = [(await fetch(http, body)).status_code for body in bodies]
        over = True
        return statuses

    async def both() -> tuple[Tally, list[int]]:
        flood = crowd(
            url, lambda n: mixed(n, FRAMES, VOICES), 12, lambda _: over, key="key-of-greedy"
        )
        return await asyncio.gather(flood, modest())

    greedy, statuses = run(both(), 2 * PATIENCE_S)
    assert statuses == [200] * 8
    assert greedy.odd == () and greedy.refused > 0 and greedy.spoken > 0
    assert balanced(speaker)


def descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir()))


def threads_outside_pools() -> int:
    """All but the event loop's helpers, whose number is bounded."""
    return sum(not thread.name.startswith(POOLS) for thread in threading.enumerate())


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts descriptors as Linux shows them")
def test_50_aborted_streams_leave_no_descriptor_and_no_thread_behind(serve: Serve):
    url, speaker = serve(slots=4)

    async def abort(numbers: range) -> None:
        async with client(url) as http:
            for first in range(numbers.start, numbers.stop, 10):
                bodies = [mixed(n, (30, 40), VOICES) for n in range(first, first + 10)]
                points = [random.Random(n).randrange(60_000) for n in range(first, first + 10)]
                await asyncio.gather(*(leave(http, *p) for p in zip(bodies, points, strict=True)))

    run(abort(range(10)), 2 * PATIENCE_S)  # what is kept for reuse is there now
    assert balanced(speaker)
    files, threads = descriptors(), threads_outside_pools()
    run(abort(range(10, 60)), 2 * PATIENCE_S)
    assert balanced(speaker)
    assert eventually(lambda: descriptors() <= files)
    assert eventually(lambda: threads_outside_pools() <= threads)
    cancelled = run(speaker.stats()).finished.get("Cancelled", 0)
    assert cancelled > 0  # the others had left before their turn, or heard all


def test_three_paragraphs_streamed_many_times_end_cleanly_every_time(serve: Serve):
    url, speaker = serve(slots=8, kv_positions=64, reference=False)
    text = "\n\n".join(f"Part {number}, words." for number in "123")
    bodies = [{**whole(seed, (1, 2), VOICES), "input": text} for seed in range(8)]
    heard = run(all_of(url, bodies), 2 * PATIENCE_S)  # raises when a body has no end
    # Five frames of silence stand for each of the two ends of a paragraph.
    spoken = [len(bytes_) // FRAME_BYTES - 2 * 5 for bytes_ in heard]
    parts = [frames / body["max_new_tokens"] for frames, body in zip(spoken, bodies, strict=True)]
    assert parts == [parts[0]] * 8 and parts[0] >= 3 and parts[0].is_integer()
    assert balanced(speaker)


def test_health_answers_while_a_long_text_is_spoken_and_encoded(serve: Serve):
    url, speaker = serve(slots=2)
    text = " ".join(f"Sentence number {number} of a long text." for number in range(6))
    long = {"input": text, "seed": 1, "max_new_tokens": 25}
    replies: list[httpx.Response] = []

    def ask() -> None:
        replies.append(httpx.post(url + SPEECH, json=long, timeout=2 * PATIENCE_S))

    speaking = threading.Thread(target=ask)
    speaking.start()
    answered = 0
    with httpx.Client(base_url=url) as http:
        while speaking.is_alive():
            assert http.get("/health").status_code == 200
            answered += bool(run(speaker.stats()).active)
            time.sleep(0.01)
    assert answered > 3
    assert replies[0].status_code == 200 and replies[0].headers["content-type"] == "audio/mpeg"


def test_the_crowd_is_the_same_every_time_and_mixed():
    bodies = [mixed(number, FRAMES, VOICES) for number in range(60)]
    assert bodies == [mixed(number, FRAMES, VOICES) for number in range(60)]
    assert {body["response_format"] for body in bodies} == set(FORMATS)
    assert {body.get("stream") for body in bodies} == {None, True, False}
    assert len(np.unique([body["max_new_tokens"] for body in bodies])) > 5
