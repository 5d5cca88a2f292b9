"""Saved voices over HTTP, in the shapes of OpenAI, vLLM-Omni and qwentts.cpp."""

import asyncio
import base64
import contextlib
import json
import logging
import os

import httpx
import numpy as np
import openai
import pytest

import engine
from server.settings import Settings
from tests.fakes import FakeEngine, Script, base_info, model_info
from tests.server.clips import clip
from tests.server.conftest import SPEECH, Live

pytestmark = pytest.mark.anyio

VOICES = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"
SAID = "What the clip says."


@pytest.fixture
def fake():
    warm = FakeEngine(models=(base_info(),))
    warm.warm.set()
    return warm


def sample(data=None, name="clip.wav", kind="audio/wav"):
    return {"audio_sample": (name, clip() if data is None else data, kind)}


def b64(data):
    return base64.b64encode(data).decode()


async def upload(client, data=None, files=None, **fields):
    fields = {"name": "Anna", "consent": "she said yes"} | fields
    return await client.post(VOICES, data=fields, files=files or sample(data))


async def error_of(reply, status=400):
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


async def test_a_clip_with_its_text_is_saved_in_one_reply_for_all_clients(connect, fake):
    async with connect() as client:
        body = (await upload(client, ref_text=SAID, speaker_description="warm")).json()
    assert body["object"] == "audio.voice" and body["type"] == "audio_sample"
    assert body["id"].startswith("voice_") and body["name"] == "Anna"
    assert isinstance(body["created_at"], int)
    assert body["success"] is True and body["status"] == "registered"
    told = body["voice"]
    assert told["name"] == "Anna" and told["consent"] == "she said yes"
    assert told["ref_text"] == SAID and told["speaker_description"] == "warm"
    assert told["mime_type"] == "audio/wav" and told["file_size"] == len(clip())
    assert told["in_context"] is True and told["model"] == "fake-base"
    assert len(fake.extracted) == 1


async def test_without_a_text_only_the_vector_is_saved(connect):
    async with connect() as client:
        body = (await upload(client)).json()
    assert body["in_context"] is False and "ref_text" not in body


async def test_the_saved_voice_speaks_by_name_and_by_id(connect, fake):
    async with connect() as client:
        saved = (await upload(client, ref_text=SAID)).json()
        for voice in ("anna", saved["id"], {"id": saved["id"]}):
            reply = await client.post(SPEECH, json={"input": "Hi.", "voice": voice})
            assert reply.status_code == 200
    voices = [request.voice for request in fake.requests]
    assert len({voice.key for voice in voices}) == 1 and voices[0].transcript == SAID
    assert len(fake.extracted) == 1


async def test_it_survives_a_restart(connect, fake):
    async with connect() as client:
        saved = (await upload(client, ref_text=SAID)).json()
    fake.draining = False
    async with connect() as client:
        assert (await client.get(f"{VOICES}/anna")).json()["id"] == saved["id"]
        reply = await client.post(SPEECH, json={"input": "Hi.", "voice": "Anna"})
    assert reply.status_code == 200
    assert fake.requests[-1].voice.transcript == SAID


async def test_lists_hold_built_in_names_and_saved_voices(connect):
    async with connect(voice_aliases={"alloy": "Anna"}) as client:
        saved = (await upload(client, ref_text=SAID)).json()
        body = (await client.get(VOICES)).json()
        legacy = (await client.get(f"{VOICES}?legacy=true")).json()
    assert body["voices"] == body["data"]
    assert [(each["id"], each["name"], each["kind"]) for each in body["voices"]] == [
        ("alloy", "alloy", "alias"), (saved["id"], "Anna", "registered"),
    ]  # fmt: skip
    assert body["uploaded_voices"][0]["ref_text"] == SAID
    assert legacy["voices"] == ["alloy", "Anna"]


async def test_what_a_voice_holds_is_told_to_key_holders_only(connect):
    key = {"authorization": "Bearer secret"}
    async with connect(api_keys="me:secret") as client:
        refused = await upload(client)
        client.headers.update(key)
        await upload(client, ref_text=SAID)
        known = (await client.get(VOICES)).json()
        del client.headers["authorization"]
        open_list = (await client.get(VOICES)).json()
        closed = [
            await client.get(f"{VOICES}/anna"), await client.delete(f"{VOICES}/anna"),
            await client.get(CONSENTS), await client.post(CONSENTS),
        ]  # fmt: skip
    assert refused.status_code == 401
    assert known["uploaded_voices"][0]["consent"] == "she said yes"
    assert open_list["voices"][0]["name"] == "Anna"
    assert not {"consent", "ref_text", "speaker_description"} & set(open_list["voices"][0])
    assert [each.status_code for each in closed] == [401] * 4


async def test_a_voice_is_deleted_by_name_or_id_with_what_the_engine_made_of_it(connect, fake):
    async with connect() as client:
        first = (await upload(client)).json()
        await upload(client, name="Berta")
        gone = await client.delete(f"{VOICES}/{first['id']}")
        again = await client.delete(f"{VOICES}/{first['id']}")
        by_name = await client.delete("/audio/voices/BERTA")
        spoken = await client.post(SPEECH, json={"input": "Hi.", "voice": "Anna"})
        left = (await client.get(VOICES)).json()["voices"]
    assert gone.json() == {
        "id": first["id"], "name": "Anna", "object": "audio.voice.deleted", "deleted": True,
        "success": True, "status": "deleted",
    }  # fmt: skip
    assert (await error_of(again, 404))["code"] == "voice_not_found"
    assert by_name.json()["deleted"] and left == []
    assert (await error_of(spoken))["param"] == "voice"
    assert len(fake.purged) == 2


async def test_a_duplicate_is_refused_unless_it_may_overwrite(connect, fake):
    async with connect() as client:
        first = (await upload(client, clip(hertz=220))).json()
        duplicate = await upload(client, clip(hertz=440), name="ANNA")
        encoded = len(fake.extracted)
        second = await upload(client, clip(hertz=440), name="anna", overwrite="true")
        listed = (await client.get(VOICES)).json()["uploaded_voices"]
    error = await error_of(duplicate, 409)
    assert (error["code"], error["param"]) == ("voice_exists", "name")
    assert duplicate.headers["x-should-retry"] == "false"
    assert encoded == 1
    assert second.json()["id"] == first["id"] and [each["name"] for each in listed] == ["anna"]
    assert [each.clip for each in fake.purged] == [fake.extracted[0].digest]


@pytest.mark.parametrize("name", ["../x", "a/b", "x" * 300, "😀", "a\nb", "", "  "])
async def test_a_name_that_is_none_is_refused(connect, fake, name):
    async with connect() as client:
        error = await error_of(await upload(client, name=name))
    assert error["param"] == "name"
    assert not fake.extracted


@pytest.mark.parametrize("name", ["alloy", "Shimmer", "narrator"])
async def test_a_name_of_a_built_in_voice_is_refused(connect, name):
    async with connect(voice_aliases={"narrator": "Anna"}) as client:
        error = await error_of(await upload(client, name=name))
        deleted = await error_of(await client.delete(f"{VOICES}/{name}"))
    assert error["param"] == "name" and "built in" in deleted["message"]


async def test_a_name_of_a_speaker_of_another_model_is_refused(connect, fake):
    fake.models = (model_info(), base_info())
    async with connect() as client:
        error = await error_of(await upload(client, name="Vivian"))
        saved = await upload(client)
    assert error["param"] == "name"
    assert saved.json()["model"] == "fake-base"


@pytest.mark.parametrize("task", ["custom_voice", "voice_design"])
async def test_a_model_that_cannot_clone_refuses_the_upload(connect, fake, task):
    fake.models = (model_info(task=task),)
    async with connect() as client:
        replies = [await upload(client), await upload(client, files=sample(b""))]
        latents = {"name": "x", "spk_b64": b64(bytes(32)), "rvq_b64": b64(bytes(22))}
        replies.append(await client.post(VOICES, json=latents))
    for reply in replies:
        error = await error_of(reply)
        assert error["code"] == "unsupported" and "Base model" in error["message"]


async def test_a_base_model_without_encoders_takes_vectors_but_no_clips(connect, fake):
    fake.models = (base_info(clones=False, clones_in_context=False),)
    async with connect() as client:
        error = await error_of(await upload(client))
        vector = await client.post(VOICES, json={"name": "x", "speaker_embedding": [0.5] * 8})
    assert "no speaker encoder" in error["message"] and vector.status_code == 200


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"just some text", "it must be wav, flac"),
        (b"<html></html>" * 50, "it must be wav, flac"),
        (clip()[:60], "at least 0.3 s"),
        (clip(seconds=0.2), "at least 0.3 s"),
        (clip("mp3", seconds=90, rate=8000), "longer than 60 s"),
    ],
    ids=["0 bytes", "text", "html", "cut", "0.2 s", "90 s"],
)
async def test_a_clip_that_is_none_is_refused_naming_the_limit(connect, fake, data, told):
    async with connect() as client:
        form = await error_of(await upload(client, data))
        body = await error_of(await client.post(VOICES, json={"name": "x", "wav_b64": b64(data)})
                              if data else await upload(client, data))  # fmt: skip
        spoken = await client.post(
            SPEECH, json={"input": "Hi.", "ref_audio": f"data:;base64,{b64(data)}"}
        )
    assert form["param"] == "audio_sample" and told in form["message"]
    assert "`audio_sample`" in form["message"] and "ref_audio" not in form["message"]
    assert told in body["message"]
    assert (await error_of(spoken))["param"] == "ref_audio"
    assert not fake.extracted and not fake.requests


@pytest.mark.parametrize(
    "how",
    [
        {"rate": 8000}, {"rate": 16000}, {"rate": 48000}, {"channels": 2}, {"kind": "mp3"},
        {"kind": "flac"}, {"kind": "ogg"}, {"kind": "m4a"}, {"kind": "webm", "rate": 48000},
        {"seconds": 2}, {"seconds": 10}, {"seconds": 30},
    ],
    ids=str,
)  # fmt: skip
async def test_clips_of_any_container_rate_and_length_are_taken(connect, fake, how):
    async with connect() as client:
        reply = await upload(client, clip(**how))
    assert reply.status_code == 200
    assert fake.extracted[0].seconds == pytest.approx(how.get("seconds", 1), abs=0.1)


async def test_qwentts_json_with_a_clip(connect, fake):
    async with connect() as client:
        reply = await client.post(
            VOICES, json={"name": "freeman", "ref_text": SAID, "wav_b64": b64(clip())}
        )
    assert reply.json()["name"] == "freeman" and reply.json()["status"] == "registered"
    assert fake.extracted[0].seconds == 1 and reply.json()["in_context"]


async def test_qwentts_json_with_latents_is_taken_as_it_is(connect, fake):
    vector = np.linspace(-1, 1, 8, dtype=np.float32)
    codes = np.arange(16 * 5).reshape(16, 5) * 25
    body = {"name": "freeman", "ref_text": SAID, "spk_b64": b64(engine.pack_spk(vector)),
            "rvq_b64": b64(engine.pack_rvq(codes))}  # fmt: skip
    async with connect() as client:
        assert (await client.post(VOICES, json=body)).json()["in_context"]
        reply = await client.post(SPEECH, json={"input": "Hi.", "voice": "freeman"})
    assert reply.status_code == 200
    voice = fake.requests[0].voice
    assert np.array_equal(voice.embedding, vector) and np.array_equal(voice.codes, codes)
    assert not fake.extracted


async def test_latents_without_a_text_are_a_vector_with_a_warning(connect):
    body = {"name": "x", "spk_b64": b64(bytes(32)), "rvq_b64": b64(bytes(22))}
    async with connect() as client:
        reply = await client.post(VOICES, json=body)
    assert reply.json()["in_context"] is False
    assert "no effect without a `ref_text`" in reply.json()["warnings"][0]
    assert "no effect" in reply.headers["x-framecast-warning"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x"}, "audio_sample"),
        ({}, "name"),
        ({"name": 5, "wav_b64": "AAAA"}, "name"),
        ({"name": "x", "wav_b64": "!!"}, "wav_b64"),
        ({"name": "x", "wav_b64": "AAAA", "spk_b64": "AAAA"}, "spk_b64"),
        ({"name": "x", "rvq_b64": "AAAA"}, "audio_sample"),
        ({"name": "x", "wav_b64": "AAAA", "rvq_b64": "AAAA"}, "rvq_b64"),
        ({"name": "x", "spk_b64": b64(bytes(30))}, "spk_b64"),
        ({"name": "x", "spk_b64": b64(bytes(64))}, "spk_b64"),
        ({"name": "x", "spk_b64": b64(b"\xff" * 32)}, "spk_b64"),
        ({"name": "x", "spk_b64": b64(bytes(32)), "ref_text": "Hi."}, "ref_text"),
        ({"name": "x", "spk_b64": b64(bytes(32)), "rvq_b64": b64(bytes(23)), "ref_text": "Hi."},
         "rvq_b64"),
        ({"name": "x", "speaker_embedding": [0.5] * 7}, "speaker_embedding"),
        ({"name": "x", "speaker_embedding": [1e300] * 8}, "speaker_embedding"),
        ({"name": "x", "speaker_embedding": []}, "speaker_embedding"),
        ({"name": "x", "speaker_embedding": [0.5] * 8, "ref_text": "Hi."}, "ref_text"),
        ({"name": "x", "wav_b64": "AAAA", "overwrite": "yes"}, "overwrite"),
        ({"name": "x", "wav_b64": "AAAA", "ref_tail_silence": 3}, "ref_tail_silence"),
        ({"name": "x", "wav_b64": "AAAA", "consent": "x" * 5000}, "consent"),
        ({"name": "x", "wav_b64": "AAAA", "type": "prompt"}, "type"),
        ([], None),
    ],
)  # fmt: skip
async def test_a_wrong_json_body_is_a_400_naming_the_field(connect, fake, body, param):
    async with connect() as client:
        error = await error_of(await client.post(VOICES, json=body))
    assert error["param"] == param
    assert not fake.extracted


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({}, sample(), "name"),
        ({"name": "x"}, {"other": ("a.wav", b"x", "audio/wav")}, "audio_sample"),
        ({"name": "x", "audio_sample": "text"}, {"other": ("a.wav", b"x")}, "audio_sample"),
        ({"name": "x", "overwrite": "perhaps"}, sample(), "overwrite"),
        ({"name": "x", "ref_tail_silence": "long"}, sample(), "ref_tail_silence"),
        ({"name": "x", "speaker_embedding": "[0.5]"}, sample(), "speaker_embedding"),
        ({"name": "x", "speaker_embedding": "half"}, {"o": ("a", b"")}, "speaker_embedding"),
        ({"name": "x", "consent": "cons_0123456789abcdef01234567"}, sample(), "consent"),
    ],
)
async def test_a_wrong_form_is_refused_naming_the_field(connect, fake, fields, files, param):
    async with connect() as client:
        reply = await client.post(VOICES, data=fields, files=files)
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["param"] == param
    assert not fake.extracted


async def test_a_vector_in_a_form_is_taken(connect, fake):
    fields = {"name": "x", "speaker_embedding": json.dumps([0.5] * 8)}
    async with connect() as client:
        reply = await client.post(VOICES, data=fields, files={"none": ("", b"")})
        await client.post(SPEECH, json={"input": "Hi.", "voice": "x"})
    assert reply.status_code == 200
    assert fake.requests[0].voice.embedding.tolist() == [0.5] * 8


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"no form"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n"),
        ("application/json", b"{"),
        ("text/plain", b"{}"),
        ("", b""),
    ],
)
async def test_a_body_that_cannot_be_read_is_a_400(connect, content_type, content):
    async with connect() as client:
        for path in (VOICES, CONSENTS):
            reply = await client.post(path, content=content, headers={"content-type": content_type})
            assert reply.status_code == 400, reply.text


async def test_uploads_are_limited_in_bytes(connect):
    async with connect(max_clip_bytes=50_000, max_body_bytes=10_000) as client:
        assert (await upload(client)).status_code == 200
        file = await upload(client, bytes(50_001), name="x")
        body = await upload(client, bytes(90_000), name="x")
        text = await client.post(VOICES, json={"name": "x", "wav_b64": b64(bytes(50_001))})
        inline = await client.post(SPEECH, json={"input": "x", "ref_audio": b64(bytes(50_001))})
        consent = await client.post(
            CONSENTS, data={"name": "x", "language": "en"}, files={"recording": bytes(50_001)}
        )
    for reply in (file, body, text, inline, consent):
        assert (await error_of(reply, 413))["code"] == "payload_too_large"


async def test_a_model_without_clones_keeps_the_limit_of_plain_requests(connect, fake):
    fake.models = (model_info(),)
    async with connect(max_body_bytes=2000) as client:
        reply = await client.post(SPEECH, json={"input": "x", "ref_audio": "A" * 3000})
    assert reply.status_code == 413


async def test_the_number_of_voices_is_limited(connect):
    async with connect(max_voices=1) as client:
        await upload(client)
        error = await error_of(await upload(client, name="Berta"), 409)
        overwritten = await upload(client, overwrite="true")
    assert error["code"] == "voices_full" and "`max_voices`" in error["message"]
    assert overwritten.status_code == 200


async def test_a_refusal_of_the_engine_names_the_sent_field(connect, fake):
    async with connect() as client:
        for field, sent in (("ref_text", "ref_text"), ("ref_audio", "audio_sample")):
            fake.script = Script(refuse=engine.InvalidRequest(f"`{field}` is wrong", field))
            error = await error_of(await upload(client))
            assert (error["param"], error["message"]) == (sent, f"`{sent}` is wrong")
        fake.script = Script(refuse=engine.Overloaded("too many clips wait", 3, 9))
        assert (await upload(client)).headers["retry-after"] == "3"


async def test_doubts_about_the_transcript_are_told(connect, fake):
    fake.script = Script(warnings=("`ref_text` seems to cover half of the clip",))
    async with connect() as client:
        reply = await upload(client, ref_text=SAID)
        later = (await client.get(f"{VOICES}/anna")).json()
    assert "half of the clip" in reply.headers["x-framecast-warning"]
    assert later["warnings"] == reply.json()["warnings"] == list(fake.script.warnings)


async def test_twenty_parallel_uploads_are_all_saved(connect, fake):
    async with connect() as client:
        replies = await asyncio.gather(
            *(upload(client, clip(hertz=100 + 10 * n), name=f"Voice {n}") for n in range(20))
        )
    assert [reply.status_code for reply in replies] == [200] * 20
    async with connect() as client:
        listed = (await client.get(VOICES)).json()["uploaded_voices"]
    assert {each["id"] for each in listed} == {reply.json()["id"] for reply in replies}
    assert len({clip.digest for clip in fake.extracted}) == 20


async def test_of_parallel_uploads_of_one_name_one_wins(connect):
    async with connect() as client:
        replies = await asyncio.gather(*(upload(client) for _ in range(10)))
        listed = (await client.get(VOICES)).json()["uploaded_voices"]
    assert sorted(reply.status_code for reply in replies) == [200] + [409] * 9
    assert len(listed) == 1


async def test_a_voice_that_another_process_adds_or_removes_is_noticed(connect, fake, tmp_path):
    async with connect() as there, connect() as here:
        await upload(there)
        spoken = await here.post(SPEECH, json={"input": "Hi.", "voice": "Anna"})
        await there.delete(f"{VOICES}/Anna")
        purged = len(fake.purged)
        refused = await here.post(SPEECH, json={"input": "Hi.", "voice": "Anna"})
    assert (spoken.status_code, refused.status_code) == (200, 400)
    assert len(fake.purged) == purged + 1


async def test_a_broken_file_is_set_aside_at_start_and_the_rest_loads(connect, tmp_path, caplog):
    folder = tmp_path / "voices"
    async with connect(voices_dir=folder) as client:
        broken = (await upload(client)).json()["id"]
        await upload(client, name="Berta")
    (folder / f"{broken}.safetensors").write_bytes(b"half a fi")
    with caplog.at_level(logging.WARNING):
        async with connect(voices_dir=folder) as client:
            listed = (await client.get(VOICES)).json()["uploaded_voices"]
    assert [each["name"] for each in listed] == ["Berta"]
    assert "set aside" in caplog.text and (folder / f"{broken}.safetensors.broken").exists()


async def test_inline_clips_reach_the_engine_in_every_shape(connect, fake):
    sound = b64(clip())
    async with connect() as client:
        for fields in (
            {"ref_audio": sound, "ref_text": SAID},
            {"ref_audio": f"data:audio/wav;base64,{sound}", "ref_text": SAID, "voice": "alloy"},
            {"references": [{"audio_path": sound, "text": SAID}], "ref_tail_silence": 0},
        ):
            reply = await client.post(SPEECH, json={"input": "Hi.", **fields})
            assert reply.status_code == 200, reply.text
    assert len({request.reference.digest for request in fake.requests}) == 1
    assert [request.reference_text for request in fake.requests] == [SAID] * 3
    assert [request.ref_tail_silence for request in fake.requests] == [0.5, 0.5, 0]
    assert not (await _listed(connect))


async def _listed(connect):
    async with connect() as client:
        return (await client.get(VOICES)).json()["uploaded_voices"]


async def test_a_clone_request_on_a_preset_model_is_refused_before_anything_is_fetched(
    connect, fake
):
    fake.models = (model_info(),)
    async with connect(ref_url_hosts="*") as client:
        for fields in ({"ref_audio": "http://127.0.0.1:1/x"}, {"ref_audio": b64(clip())}):
            error = await error_of(await client.post(SPEECH, json={"input": "Hi.", **fields}))
            assert error["param"] == "ref_audio" and "Base model" in error["message"]
    assert not fake.requests


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x.wav", "file:///etc/passwd", "https://a.example/x.wav"]
)
async def test_urls_are_refused_unless_allowed(connect, fake, url):
    async with connect() as client:
        replies = [
            await client.post(SPEECH, json={"input": "Hi.", "ref_audio": url}),
            await client.post(SPEECH, json={"input": "Hi.", "references": [{"audio_path": url}]}),
        ]
    assert [(await error_of(each))["param"] for each in replies] == ["ref_audio", "references"]
    assert not fake.requests


async def test_an_allowed_folder_is_read(connect, fake, tmp_path):
    (tmp_path / "x.wav").write_bytes(clip())
    async with connect(ref_file_dir=tmp_path) as client:
        reply = await client.post(
            SPEECH, json={"input": "Hi.", "ref_audio": f"file://{tmp_path}/x.wav"}
        )
    assert reply.status_code == 200 and fake.requests[0].reference.seconds == 1


async def test_consents_are_kept_listed_and_deleted(connect):
    async with connect() as client:
        made = []
        for number in range(3):
            reply = await client.post(
                CONSENTS,
                data={"name": f"Anna {number}", "language": "en-US"},
                files={"recording": ("yes.mp3", clip("mp3"), "audio/mpeg")},
            )
            made.append(reply.json())
        saved = await upload(client, consent=made[0]["id"])
        page = (await client.get(CONSENTS, params={"limit": 2})).json()
        rest = (await client.get(CONSENTS, params={"after": page["last_id"]})).json()
        gone = await client.delete(f"{CONSENTS}/{made[0]['id']}")
        missing = await client.get(f"{CONSENTS}/{made[0]['id']}")
        twice = await client.delete(f"{CONSENTS}/{made[0]['id']}")
        odd = await client.delete(f"{CONSENTS}/..%2f..")
    assert made[0]["object"] == "audio.voice_consent" and made[0]["language"] == "en-US"
    assert page["has_more"] and not rest["has_more"]
    listed = [each["id"] for each in page["data"] + rest["data"]]
    assert sorted(listed) == sorted(each["id"] for each in made)
    assert saved.json()["consent"] == made[0]["id"]
    assert gone.json()["deleted"] is True
    for reply in (missing, twice):
        assert (await error_of(reply, 404))["code"] == "consent_not_found"
    assert odd.status_code == 404
    async with connect() as client:
        assert len((await client.get(CONSENTS)).json()["data"]) == 2
        assert (await client.get(f"{VOICES}/anna")).json()["consent"] == made[0]["id"]


async def test_a_consent_is_renamed_and_keeps_its_recording(connect):
    async with connect() as client:
        made = (
            await client.post(
                CONSENTS, data={"name": "Ana", "language": "en"}, files={"recording": clip()}
            )
        ).json()
        renamed = await client.post(f"{CONSENTS}/{made['id']}", json={"name": "Anna"})
        wrong = await client.post(f"{CONSENTS}/{made['id']}", json={"name": ""})
        none = await client.post(f"{CONSENTS}/{made['id']}", json={"language": "de"})
        missing = await client.post(
            f"{CONSENTS}/cons_0123456789abcdef01234567", json={"name": "Anna"}
        )
        odd = await client.post(f"{CONSENTS}/nothing", json={"name": "Anna"})
    assert renamed.status_code == 200 and renamed.json() == made | {"name": "Anna"}
    for reply in (wrong, none):
        assert (await error_of(reply))["param"] == "name"
    for reply in (missing, odd):
        assert (await error_of(reply, 404))["code"] == "consent_not_found"
    async with connect() as client:
        assert (await client.get(f"{CONSENTS}/{made['id']}")).json()["name"] == "Anna"
        assert (await upload(client, consent=made["id"])).status_code == 200


async def test_a_folder_that_cannot_be_written_is_named_and_nothing_is_lost(connect, monkeypatch):
    def full_disk(_):
        raise OSError(28, "No space left on device")

    async with connect() as client:
        kept = (await upload(client)).json()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_disk)
            refused = await upload(client, name="Bea")
            unchanged = await upload(client, overwrite="true", ref_text=SAID)
        again = await upload(client, name="Bea")
        voices = (await client.get(f"{VOICES}/anna")).json()
    for reply in (refused, unchanged):
        error = await error_of(reply, 503)
        assert error["code"] == "voices_unwritable" and "No space left" in error["message"]
        assert reply.headers["x-should-retry"] == "false"
    assert again.status_code == 200
    assert voices["id"] == kept["id"] and "ref_text" not in voices


@pytest.mark.parametrize(
    ("fields", "recording", "param"),
    [
        ({"language": "en"}, clip(), "name"),
        ({"name": "x"}, clip(), "language"),
        ({"name": "x", "language": "not a tag"}, clip(), "language"),
        ({"name": "x", "language": "en"}, b"", "recording"),
        ({"name": "x", "language": "en"}, b"text", "recording"),
        ({"name": "x", "language": "en", "recording": "text"}, None, "recording"),
    ],
)
async def test_a_wrong_consent_is_refused_naming_the_field(connect, fields, recording, param):
    files = {"other": b"x"} if recording is None else {"recording": recording}
    async with connect() as client:
        error = await error_of(await client.post(CONSENTS, data=fields, files=files))
    assert error["param"] == param


async def test_consent_can_be_required(connect):
    async with connect(require_consent=True) as client:
        refused = await error_of(await upload(client, consent=""))
        taken = await upload(client)
    assert refused["param"] == "consent" and taken.status_code == 200


async def test_one_voice_is_looked_up_by_any_of_its_names(connect, fake):
    fake.models = (model_info(), base_info())
    async with connect() as client:
        saved = (await upload(client)).json()
        assert (await client.get(f"{VOICES}/anna")).json()["id"] == saved["id"]
        assert (await client.get(f"{VOICES}/{saved['id']}")).json()["name"] == "Anna"
        assert (await client.get("/audio/voices/Vivian")).json()["kind"] == "speaker"
        assert (await client.get(f"{VOICES}/alloy")).json()["kind"] == "alias"
        missing = await client.get(f"{VOICES}/nobody")
    assert (await error_of(missing, 404))["code"] == "voice_not_found"


def test_the_openai_package_saves_and_uses_a_voice(fake):
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(Live(fake, Settings(drain_timeout_s=1)))
        client = stack.enter_context(openai.OpenAI(base_url=f"{live.url}/v1", api_key="none"))
        consent = client.audio.voice_consents.create(
            name="Anna", language="en-US", recording=("yes.wav", clip(), "audio/wav")
        )
        voice = client.audio.voices.create(
            name="Anna", consent=consent.id, audio_sample=("a.wav", clip(), "audio/wav"),
            extra_body={"ref_text": SAID},
        )  # fmt: skip
        reply = client.audio.speech.create(model="tts-1", voice={"id": voice.id}, input="Hi.")
        assert [each.id for each in client.audio.voice_consents.list()] == [consent.id]
        client.audio.voice_consents.update(consent.id, name="Anna P.")
        assert client.audio.voice_consents.retrieve(consent.id).name == "Anna P."
        with pytest.raises(openai.ConflictError):
            client.audio.voices.create(
                name="anna", consent=consent.id, audio_sample=("a.wav", clip(), "audio/wav")
            )
        assert client.audio.voices.delete(voice.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.audio.voices.delete(voice.id)
        assert client.audio.voice_consents.delete(consent.id).deleted
    assert voice.object == "audio.voice" and len(reply.read()) > 100
    assert fake.requests[0].voice.transcript == SAID


def test_a_browser_may_delete(fake):
    with Live(fake, Settings(drain_timeout_s=1)) as live:
        reply = httpx.options(
            f"{live.url}{VOICES}/anna",
            headers={"origin": "https://a.example", "access-control-request-method": "DELETE"},
        )
    assert reply.status_code == 200
