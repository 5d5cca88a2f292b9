"""What a key may use, and what a request gets that has to wait, took too long or came too many."""

import http.client
import json
from types import SimpleNamespace

import pytest

import engine
from server.errors import RateLimited
from server.keys import parse_key
from server.limits import Account, Bucket, duration
from server.settings import Settings
from tests.fakes import Script
from tests.server.conftest import SPEECH, Live

PCM = {"input": "Hi.", "response_format": "pcm"}
ALICE = {"authorization": "Bearer a"}
BOB = {"authorization": "Bearer b"}


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def account(clock):
    return lambda limits: Account(parse_key(f"alice:a {limits}", ""), clock)


def spoken(seconds=0.0):
    return SimpleNamespace(audio_s=seconds)


def refused(account):
    with pytest.raises(RateLimited) as caught, account.visit(spoken()):
        pass
    return caught.value


def call(account, seconds=0.0):
    with account.visit(spoken(seconds)) as headers:
        return headers


def test_a_bucket_refills_evenly_and_not_over_its_size():
    bucket = Bucket(60, 60, now=0)
    bucket.take(60, now=0)
    assert (bucket.level(now=0), bucket.level(now=15), bucket.level(now=999)) == (0, 15, 60)
    assert bucket.wait_s(20, now=15) == 5 and bucket.wait_s(15, now=15) == 0


def test_debt_is_paid_before_anything_else():
    bucket = Bucket(10, 10, now=0)
    bucket.take(25, now=0)
    assert bucket.level(now=0) == -15 and bucket.wait_s(1, now=4) == 12


def test_requests_over_the_limit_wait_until_one_is_back(account, clock):
    alice = account("requests_per_minute=4")
    for _ in range(4):
        call(alice)
    assert refused(alice).retry_after_s == 15
    clock.now += 14.5
    assert refused(alice).retry_after_s == 1
    clock.now += 0.5
    call(alice)
    assert refused(alice).retry_after_s == 15


def test_a_refused_request_takes_nothing(account, clock):
    alice = account("requests_per_minute=1 concurrency=1 audio_seconds_per_hour=10")
    call(alice)
    for _ in range(50):
        refused(alice)
    assert alice.active == 0
    clock.now += 60
    call(alice)


def test_over_a_long_time_no_more_pass_than_the_limit_says(account, clock):
    alice, passed = account("requests_per_minute=6"), 0
    for _ in range(3600):
        clock.now += 1
        try:
            call(alice)
            passed += 1
        except RateLimited:
            pass
    assert 360 <= passed <= 366


def test_the_headers_say_what_is_left(account, clock):
    alice = account("requests_per_minute=60")
    assert call(alice) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
    }
    for _ in range(59):
        call(alice)
    headers = refused(alice).headers
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "1m0s"
    clock.now += 58.2
    assert call(alice)["x-ratelimit-remaining-requests"] == "57"
    assert call(account("concurrency=1")) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0001, "1ms"), (0.12, "120ms"), (1, "1s"), (8.64, "8.64s"), (86.4, "1m26.4s"),
     (60, "1m0s")],
)  # fmt: skip
def test_a_duration_is_written_like_openai_does(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("ending", [None, engine.GenerationFailed("x"), KeyboardInterrupt()])
def test_a_place_is_free_again_after_every_ending(account, ending):
    alice = account("concurrency=1")
    try:
        with alice.visit(spoken()):
            assert "1 requests at the same time" in str(refused(alice))
            if ending is not None:
                raise ending
    except type(ending or ValueError()):
        pass
    assert alice.active == 0
    call(alice)


def test_a_full_account_waits_for_as_long_as_its_requests_usually_take(account, clock):
    alice = account("concurrency=1")
    with alice.visit(spoken()):
        assert refused(alice).retry_after_s == 1  # nothing known yet
        clock.now += 10
    with alice.visit(spoken()):
        clock.now += 4
        assert refused(alice).retry_after_s == 6
        clock.now += 30
        assert refused(alice).retry_after_s == 1


def test_sound_is_counted_while_it_is_made_and_debt_delays_the_next_request(account, clock):
    alice, speaking = account("audio_seconds_per_hour=3600"), spoken()
    with alice.visit(speaking):
        call(alice)
        speaking.audio_s = 3600
        assert refused(alice).retry_after_s == 1
        speaking.audio_s = 3700
        assert refused(alice).retry_after_s == 100
    assert refused(alice).retry_after_s == 100
    clock.now += 100.5
    call(alice)


def test_a_request_without_sound_costs_no_sound(account):
    alice = account("audio_seconds_per_hour=1")
    for _ in range(100):
        call(alice)
    call(alice, seconds=1)
    assert "1 seconds of sound per hour" in str(refused(alice))


def test_no_limit_and_a_limit_of_0_limit_nothing(account):
    for limits in ("", "requests_per_minute=0 concurrency=0 audio_seconds_per_hour=0"):
        alice = account(limits)
        with alice.visit(spoken(9e9)), alice.visit(spoken(9e9)):
            assert call(alice, 9e9) == {}


@pytest.mark.anyio
async def test_over_the_limit_of_requests_the_answer_is_429_with_all_a_client_needs(connect, fake):
    async with connect(api_keys="alice:a,bob:b", key_requests_per_minute=2) as client:
        first = await client.post(SPEECH, json=PCM, headers=ALICE)
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert (await client.post(SPEECH, json={}, headers=ALICE)).status_code == 400
        reply = await client.post(SPEECH, json=PCM, headers=ALICE)
        assert (await client.post(SPEECH, json=PCM, headers=BOB)).status_code == 200
        assert (await client.get("/v1/models", headers=ALICE)).status_code == 200
    assert reply.status_code == 429
    assert 1 <= int(reply.headers["retry-after"]) <= 30
    assert reply.headers["x-should-retry"] == "true"
    assert reply.headers["x-ratelimit-limit-requests"] == "2"
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    assert reply.headers["x-ratelimit-reset-requests"].endswith("s")
    error = reply.json()["error"]
    assert "`alice` is at its limit of 2 requests per minute" in error.pop("message")
    assert error == {
        "type": "rate_limit_exceeded",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert len(fake.requests) == 2


@pytest.mark.anyio
async def test_refusals_for_the_key_are_counted_by_their_reason(connect):
    async with connect(api_keys="alice:a", key_requests_per_minute=1) as client:
        for headers in (ALICE, ALICE, BOB):
            await client.post(SPEECH, json=PCM, headers=headers)
        text = (await client.get("/metrics")).text
    counts = [line for line in text.splitlines() if line.startswith("framecast_requests_total{")]
    labels = 'reason="{}",route="{}",status="{}"'
    for refusal in (
        labels.format("stop", "/audio/speech", 200),
        labels.format("rate_limit_exceeded", "other", 429),
        labels.format("invalid_api_key", "other", 401),
    ):
        assert f"framecast_requests_total{{{refusal}}} 1.0" in counts


@pytest.mark.anyio
async def test_over_the_limit_of_sound_a_client_is_not_told_to_repeat_by_itself(connect, fake):
    fake.script = Script(frames=5)  # 0.4 s
    async with connect(api_keys="alice:a audio_seconds_per_hour=0.3") as client:
        assert (await client.post(SPEECH, json=PCM, headers=ALICE)).status_code == 200
        reply = await client.post(SPEECH, json=PCM, headers=ALICE)
    assert reply.status_code == 429
    assert 1100 <= int(reply.headers["retry-after"]) <= 1200  # 0.1 s of 0.3 s per hour
    assert reply.headers["x-should-retry"] == "false"


@pytest.mark.anyio
async def test_a_request_refused_before_the_engine_costs_no_sound(connect, fake):
    async with connect(api_keys="alice:a audio_seconds_per_hour=0.3") as client:
        for body in (
            {"input": ""},
            {"input": "Hi.", "voice": "zz"},
            {"input": "Hi.", "timeout": 0},
        ):
            assert (await client.post(SPEECH, json=body, headers=ALICE)).status_code == 400
        fake.script = Script(refuse=engine.Overloaded("full", 1.0, 3))
        assert (await client.post(SPEECH, json=PCM, headers=ALICE)).status_code == 429
        fake.script = Script(frames=5)
        assert (await client.post(SPEECH, json=PCM, headers=ALICE)).status_code == 200


def start_speaking(live, body=PCM):
    connection = http.client.HTTPConnection(live.url.removeprefix("http://"), timeout=10)
    connection.request(
        "POST", SPEECH, json.dumps(body), {"content-type": "application/json", **ALICE}
    )
    return connection


@pytest.fixture
def limited(fake):
    with Live(
        fake, Settings(drain_timeout_s=1, api_keys="alice:a,bob:b", key_concurrency=1)
    ) as run:
        yield run


def post(live, headers):
    connection = http.client.HTTPConnection(live.url.removeprefix("http://"), timeout=10)
    connection.request(
        "POST", SPEECH, json.dumps(PCM), {"content-type": "application/json", **headers}
    )
    status = connection.getresponse().status
    connection.close()
    return status


def post_until(live, wanted):
    """The server learns of a listener's end in its own time."""
    for _ in range(200):
        status = post(live, ALICE)
        if status == wanted:
            break
    return status


@pytest.mark.parametrize("leave", ["at the end", "early", "failed"])
def test_a_key_speaks_once_at_a_time_and_again_after_every_ending(fake, limited, leave):
    fail = engine.GenerationFailed("NaN") if leave == "failed" else None
    fake.script = Script(frames=3, at_once=1, fail=fail)
    speaking = start_speaking(limited)
    assert fake.wait_for(active=1)
    assert post(limited, ALICE) == 429
    fake.script = Script()
    assert post(limited, BOB) == 200
    reply = speaking.getresponse()
    if leave != "early":
        fake.advance(10)
    if leave == "at the end":
        assert len(reply.read()) == 3 * 3840
    reply.close()
    speaking.close()
    assert fake.wait_for(active=0)
    assert post_until(limited, 200) == 200


def test_a_client_that_leaves_the_queue_gives_its_place_back(fake, limited):
    fake.script = Script(frames=3, at_once=0)
    waiting = start_speaking(limited)
    assert fake.wait_for(active=1)
    assert post(limited, ALICE) == 429
    waiting.close()
    assert fake.wait_for(active=0)
    fake.script = Script()
    assert post_until(limited, 200) == 200


@pytest.mark.parametrize(
    ("settings", "body", "limit"),
    [
        ({}, {}, None),
        ({}, {"timeout": None}, None),
        ({}, {"timeout": 2.5}, 2.5),
        ({"default_timeout_s": 20}, {}, 20),
        ({"default_timeout_s": 20}, {"timeout": 30}, 30),
        ({"max_timeout_s": 5}, {"timeout": 5}, 5),
    ],
)
@pytest.mark.anyio
async def test_a_request_has_its_own_time_limit_or_the_default(
    connect, fake, settings, body, limit
):
    async with connect(**settings) as client:
        assert (await client.post(SPEECH, json=PCM | body)).status_code == 200
    assert fake.envelopes[0]["timeout_s"] == limit


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0, "`timeout` must be above 0, got 0"),
        (-1, "`timeout` must be above 0, got -1"),
        (61, "`timeout` must be at most 60 seconds, got 61"),
        ("5", "`timeout` must be a number"),
        (True, "`timeout` must be a number"),
        ([5], "`timeout` must be a number"),
    ],
)
@pytest.mark.anyio
async def test_a_time_limit_that_is_none_is_a_400(connect, fake, given, told):
    async with connect(max_timeout_s=60) as client:
        reply = await client.post(SPEECH, json=PCM | {"timeout": given})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "timeout"
    assert told in reply.json()["error"]["message"]
    assert fake.requests == []


@pytest.mark.parametrize("body", [PCM, {"input": "Hi."}, PCM | {"stream": False}])
@pytest.mark.anyio
async def test_a_deadline_before_the_first_byte_is_a_504(connect, fake, body):
    fake.script = Script(frames=0, fail=engine.DeadlineExceeded("the time limit of 1 s passed"))
    async with connect() as client:
        reply = await client.post(SPEECH, json=body | {"timeout": 1})
    assert reply.status_code == 504 and reply.headers["x-should-retry"] == "false"
    assert reply.json()["error"] == {
        "message": "the time limit of 1 s passed",
        "type": "server_error",
        "param": None,
        "code": "deadline_exceeded",
    }


def test_a_deadline_after_the_first_byte_cuts_the_body(fake, live):
    fake.script = Script(frames=2, at_once=1, fail=engine.DeadlineExceeded("late"))
    speaking = start_speaking(live, PCM | {"timeout": 1})
    reply = speaking.getresponse()
    assert reply.status == 200 and reply.read(100)
    fake.advance(10)
    with pytest.raises(http.client.IncompleteRead):
        reply.read()
    speaking.close()


@pytest.mark.anyio
async def test_a_full_server_says_how_many_wait_and_when_to_come_back(connect, fake):
    fake.script = Script(refuse=engine.Overloaded("full", 2.2, 12, 5))
    async with connect() as client:
        reply = await client.post(SPEECH, json=PCM)
    assert reply.status_code == 429 and reply.headers["retry-after"] == "3"
    assert reply.json()["error"] == {
        "message": "full",
        "type": "rate_limit_exceeded",
        "param": None,
        "code": "rate_limit_exceeded",
        "queue_depth": 12,
        "position": 5,
    }


@pytest.mark.parametrize(
    ("body", "redraw", "streaming", "redrawn"),
    [
        (PCM, True, True, False),
        (PCM | {"stream": False}, True, False, True),
        ({"input": "Hi."}, True, True, False),
        ({"input": "Hi.", "stream": False}, True, False, True),
        ({"input": "Hi.", "stream": False}, False, False, False),
    ],
)
@pytest.mark.anyio
async def test_only_a_reply_sent_whole_can_be_drawn_again(
    connect, fake, body, redraw, streaming, redrawn
):
    async with connect(redraw=redraw) as client:
        assert (await client.post(SPEECH, json=body)).status_code == 200
    assert (fake.envelopes[0]["streaming"], fake.envelopes[0]["redraw"]) == (streaming, redrawn)


def test_a_default_time_limit_above_the_largest_is_refused():
    with pytest.raises(ValueError, match=r"`--default-timeout-s` must be at most"):
        Settings(default_timeout_s=10, max_timeout_s=5)
