"""Uploads of voices and consents that are odd, cut off, given up or in the way of others."""

import asyncio
import base64
import contextlib
import logging
import threading
from concurrent.futures import Future
from http.client import HTTPConnection

import httpx
import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import save_file

import engine
from server.settings import Settings
from server.voices import store
from server.voices.cloning import Voices, open_registry
from tests.fakes import FakeEngine, base_info
from tests.server.clips import clip
from tests.server.conftest import SPEECH, Live
from tests.waiting import eventually, run

pytestmark = pytest.mark.anyio

VOICES = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"
SOUND = base64.b64encode(clip()).decode()


@pytest.fixture
def fake():
    warm = FakeEngine(models=(base_info(),))
    warm.warm.set()
    return warm


async def error_of(reply, status=400):
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def part(name, value, more=""):
    return f'--XX\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value


def form(*parts, end=b"\r\n--XX--\r\n"):
    return b"\r\n".join(parts) + end


def multipart(client, content, path=VOICES, charset=""):
    kind = f"multipart/form-data; boundary=XX{charset}"
    return client.post(path, content=content, headers={"content-type": kind})


SAMPLE = part("audio_sample", clip(), '; filename="a.wav"')


async def test_a_form_that_is_cut_off_is_refused_and_nothing_is_saved(connect, fake):
    whole = form(part("name", b"Anna"), SAMPLE, part("ref_text", b"What the clip says."))
    cuts = [whole[:-9], whole[:-4], whole[:-20], form(part("name", b"x"), SAMPLE[:900], end=b"")]
    async with connect() as client:
        for cut in cuts:
            assert "incomplete" in (await error_of(await multipart(client, cut)))["message"]
        consent = form(part("name", b"x"), part("language", b"en"), end=b"\r\n")
        assert (
            "incomplete" in (await error_of(await multipart(client, consent, CONSENTS)))["message"]
        )
        taken = await multipart(client, whole[:-2])
    assert taken.json()["in_context"] is True
    assert len(fake.extracted) == 1


@pytest.mark.parametrize("charset", ["utf-7", "unicode_escape", "raw_unicode_escape"])
@pytest.mark.parametrize("name", ["name", "ref_text", "consent", "description"])
async def test_half_a_character_in_a_form_is_refused_naming_the_field(connect, charset, name):
    half = b"+2AA-abc" if charset == "utf-7" else b"\\ud800abc"
    fields = {"name": b"Anna"} | {name: half}
    parts = [part(each, value) for each, value in fields.items()]
    async with connect() as client:
        reply = await multipart(client, form(*parts, SAMPLE), charset=f"; charset={charset}")
    error = await error_of(reply)
    assert error["param"] == name and "UTF-8" in error["message"]


async def test_half_a_character_in_the_name_of_a_field_is_refused(connect):
    odd = form(part("\\ud800", b"x"), SAMPLE)
    async with connect() as client:
        reply = await multipart(client, odd, charset="; charset=unicode_escape")
    assert "field names must be text in UTF-8" in (await error_of(reply))["message"]


@pytest.mark.parametrize(
    "twice",
    [part("name", b"Berta"), part("audio_sample", b"x"), SAMPLE],
    ids=["text", "text of a file", "file"],
)
async def test_a_field_that_is_sent_twice_is_named(connect, fake, twice):
    async with connect() as client:
        error = await error_of(await multipart(client, form(part("name", b"Anna"), SAMPLE, twice)))
    assert "sent twice" in error["message"] and f"`{error['param']}`" in error["message"]
    assert not fake.extracted


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"overwrite": "maybe"}, "`overwrite` must be `true` or `false`, got the string 'maybe'"),
        ({"ref_tail_silence": "abc"}, "`ref_tail_silence` must be a number, got the string 'abc'"),
        ({"speaker_embedding": "abc"}, "`speaker_embedding` must be a list of numbers, got"),
    ],
)
async def test_a_wrong_field_of_a_form_is_told_with_what_it_may_be(connect, fields, told):
    async with connect() as client:
        reply = await client.post(
            VOICES, data={"name": "x"} | fields, files={"audio_sample": clip()}
        )
    error = await error_of(reply)
    assert told in error["message"] and [error["param"]] == list(fields)


@pytest.mark.parametrize("values", [[], [0.5] * 7, [0.5] * 9])
async def test_a_vector_of_another_width_is_refused_with_the_right_one(connect, values):
    async with connect() as client:
        reply = await client.post(VOICES, json={"name": "x", "speaker_embedding": values})
    error = await error_of(reply)
    assert error["param"] == "speaker_embedding"
    assert f"holds {len(values)} values" in error["message"] and "have 8" in error["message"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
async def test_an_upload_of_another_type_is_told_both(connect, kind):
    async with connect() as client:
        reply = await client.post(VOICES, content=b"name=x", headers={"content-type": kind})
    message = (await error_of(reply))["message"]
    assert "`multipart/form-data` or `application/json`" in message and (kind or "none") in message


@pytest.mark.parametrize(
    ("frames", "said", "param", "told"),
    [
        (4000, "What the clip says.", "rvq_b64", "320.0 s of sound; the limit is 62 s"),
        (25, "words " * 100, "ref_text", "cannot be what the codes say"),
    ],
)
async def test_codes_nobody_could_speak_with_are_refused(connect, frames, said, param, told):
    rvq = engine.pack_rvq(np.zeros((16, frames), np.int64))
    body = {"name": "x", "spk_b64": base64.b64encode(bytes(32)).decode(), "ref_text": said,
            "rvq_b64": base64.b64encode(rvq).decode()}  # fmt: skip
    async with connect() as client:
        error = await error_of(await client.post(VOICES, json=body))
    assert error["param"] == param and told in error["message"]


async def test_a_vector_of_a_file_is_taken_alone(connect):
    body = {"name": "x", "spk_b64": base64.b64encode(bytes(32)).decode()}
    async with connect() as client:
        saved = (await client.post(VOICES, json=body)).json()
    assert saved["in_context"] is False and "warnings" not in saved


async def test_codes_a_slot_has_no_room_for_are_refused_naming_what_was_sent(connect, monkeypatch):
    def full(_, request):
        assert request.voice.in_context
        raise engine.InvalidRequest("the codes and words of `voice` take 600", "voice")

    monkeypatch.setattr(FakeEngine, "check", full)
    rvq = engine.pack_rvq(np.zeros((16, 25), np.int64))
    body = {
        "name": "x",
        "spk_b64": base64.b64encode(bytes(32)).decode(),
        "ref_text": "What the clip says.",
        "rvq_b64": base64.b64encode(rvq).decode(),
    }
    async with connect() as client:
        error = await error_of(await client.post(VOICES, json=body))
    assert (error["param"], error["message"]) == (
        "rvq_b64", "the codes and words of `rvq_b64` take 600",
    )  # fmt: skip


async def test_a_clip_above_the_limit_is_named(connect, tmp_path):
    (tmp_path / "long").write_bytes(bytes(50_001))
    settings = {"max_clip_bytes": 50_000, "ref_file_dir": tmp_path}
    long = base64.b64encode(bytes(50_001)).decode()
    async with connect(**settings) as client:
        for path, body, param in (
            (VOICES, {"name": "x", "wav_b64": long}, "wav_b64"),
            (SPEECH, {"input": "x", "ref_audio": long}, "ref_audio"),
            (SPEECH, {"input": "x", "ref_audio": f"file://{tmp_path}/long"}, "ref_audio"),
            (SPEECH, {"input": "x", "references": [{"audio_path": long}]}, "references"),
        ):
            assert (await error_of(await client.post(path, json=body), 413))["param"] == param
        upload = await client.post(
            VOICES, data={"name": "x"}, files={"audio_sample": bytes(50_001)}
        )
    assert (await error_of(upload, 413))["param"] == "audio_sample"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "\u2028", "x" * 5000])
async def test_a_consents_name_is_one_line(connect, name):
    async with connect() as client:
        files = {"recording": clip()}
        texts = {"name": name, "language": "en"}
        made = await client.post(CONSENTS, data=texts, files=files)
        good = await client.post(CONSENTS, data=texts | {"name": "Anna 😀"}, files=files)
        changed = await client.post(f"{CONSENTS}/{good.json()['id']}", json={"name": name})
    for reply in (made, changed):
        error = await error_of(reply)
        assert error["param"] == "name" and "`name`" in error["message"]


@pytest.mark.parametrize("language", ["en_US", "english language", "e", "x" * 40, "en\n"])
async def test_a_consents_language_is_told_with_an_example(connect, language):
    async with connect() as client:
        reply = await client.post(
            CONSENTS, data={"name": "x", "language": language}, files={"recording": clip()}
        )
    error = await error_of(reply)
    assert error["param"] == "language"
    assert "`language` must be a BCP-47 tag such as `en`" in error["message"]


async def test_consents_are_listed_after_one_of_them_only(connect):
    async with connect() as client:
        for number in range(3):
            texts = {"name": str(number), "language": "en"}
            await client.post(CONSENTS, data=texts, files={"recording": clip()})
        every = (await client.get(CONSENTS, params={"after": ""})).json()["data"]
        rest = (await client.get(CONSENTS, params={"after": every[0]["id"]})).json()["data"]
        unknown = await client.get(CONSENTS, params={"after": "cons_0123456789abcdef01234567"})
    assert [each["name"] for each in every] == ["0", "1", "2"] and rest == every[1:]
    error = await error_of(unknown)
    assert error["param"] == "after" and "`after` must be the id" in error["message"]


async def test_a_lowered_limit_loses_no_consent(connect, tmp_path, caplog):
    folder = tmp_path / "voices"
    long = clip(seconds=60, rate=48_000)
    async with connect(voices_dir=folder, max_clip_bytes=10_000_000) as client:
        made = await client.post(
            CONSENTS, data={"name": "Anna", "language": "en"}, files={"recording": long}
        )
    assert len(long) > 5_000_000 and made.status_code == 200
    async with connect(voices_dir=folder, max_clip_bytes=1024, max_voices=0) as client:
        kept = (await client.get(CONSENTS)).json()["data"]
        url = f"{CONSENTS}/{made.json()['id']}"
        renamed = await client.post(url, json={"name": "Anna P."})
        gone = await client.delete(url)
    assert kept == [made.json()] and "set aside" not in caplog.text
    assert renamed.json()["name"] == "Anna P." and gone.json()["deleted"]


async def test_odd_files_that_appear_while_it_serves_fail_no_request(connect, tmp_path):
    facts = {"format": "framecast.voice", "version": "1", "name": "Odd", "created_at": "1"}
    async with connect(voices_dir=tmp_path) as client:
        await client.post(VOICES, data={"name": "Anna"}, files={"audio_sample": clip()})
        for number, warnings in enumerate(("5", "null", '["\\ud800"]', "[" * 9999)):
            path = tmp_path / f"voice_{number:024x}.safetensors"
            save_file({"embedding": np.ones(8, np.float32)}, path, facts | {"warnings": warnings})
        loop = tmp_path / f"voice_{9:024x}.safetensors"
        loop.symlink_to(loop)
        listed = (await client.get(VOICES)).json()["uploaded_voices"]
        spoken = await client.post(SPEECH, json={"input": "Hi.", "voice": "Anna"})
        saved = await client.post(VOICES, data={"name": "B"}, files={"audio_sample": clip()})
    assert [each["name"] for each in listed] == ["Anna"]
    assert (spoken.status_code, saved.status_code) == (200, 200)


async def test_a_held_lock_stops_uploads_only(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_LOCK_TIMEOUT_S", 0.5)
    async with connect(voices_dir=tmp_path) as client:
        await client.post(VOICES, data={"name": "Anna"}, files={"audio_sample": clip()})
        with FileLock(tmp_path / ".lock"):
            uploads = [
                asyncio.ensure_future(
                    client.post(VOICES, data={"name": f"V{n}"}, files={"audio_sample": clip()})
                )
                for n in range(40)
            ]
            for body in ({}, {"voice": "Anna"}, {"ref_audio": SOUND}):
                reply = await client.post(SPEECH, json={"input": "Hi.", **body})
                assert reply.status_code == 200
            listed = (await client.get(VOICES)).json()["uploaded_voices"]
            assert not all(each.done() for each in uploads)
            refused = await uploads[0]
        for each in uploads:
            each.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
    assert [each["name"] for each in listed] == ["Anna"]
    error = await error_of(refused, 503)
    assert error["code"] == "voices_unwritable" and "holds its lock" in error["message"]


def statuses(records):
    return [getattr(each, "fields", {}).get("status") for each in records]


def test_a_client_that_leaves_during_an_upload_gives_it_up(fake, tmp_path, monkeypatch, caplog):
    making = []

    def never(*_, **__):
        making.append(Future())
        return engine.Pending(making[0])

    monkeypatch.setattr(FakeEngine, "extract_voice", never)
    with (
        caplog.at_level(logging.INFO),
        Live(fake, Settings(drain_timeout_s=1, voices_dir=tmp_path)) as live,
    ):
        with contextlib.closing(HTTPConnection(*live.socket.getsockname())) as client:
            kind = {"content-type": "multipart/form-data; boundary=XX"}
            client.request("POST", VOICES, form(part("name", b"Anna"), SAMPLE), kind)
            assert eventually(lambda: making)
        assert eventually(making[0].cancelled)
        assert eventually(lambda: 499 in statuses(caplog.records))
        assert httpx.get(f"{live.url}{VOICES}").json()["uploaded_voices"] == []
    assert not list(tmp_path.glob("*.safetensors"))


def test_what_is_written_already_is_kept_and_what_waits_is_not(fake, tmp_path):
    settings = Settings(voices_dir=tmp_path)
    begun, free, done = threading.Semaphore(0), threading.Event(), []

    def change(name):
        begun.release()
        assert free.wait(30)
        done.append(name)
        return name

    async def leave():
        voices = Voices(fake, settings, open_registry(settings))
        tasks = [asyncio.create_task(voices.write(lambda n=n: change(n))) for n in range(4)]
        await asyncio.to_thread(lambda: [begun.acquire() for _ in tasks])
        waiting = asyncio.create_task(voices.write(lambda: change("waiting")))
        await asyncio.sleep(0)
        for each in (waiting, tasks[0]):
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        free.set()
        return await asyncio.gather(*tasks)

    assert run(leave()) == [0, 1, 2, 3] and sorted(done) == [0, 1, 2, 3]
