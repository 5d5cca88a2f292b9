import pytest

from tests.fakes import SPEAKERS

pytestmark = pytest.mark.anyio


async def test_models_are_listed_in_openais_shape(connect):
    async with connect() as client:
        body = (await client.get("/v1/models")).json()
    entry = {
        "id": "fake-voice",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "framecast",
    }
    assert body == {"object": "list", "data": [entry]}


async def test_one_model_is_found_by_name_or_alias_and_others_are_404(connect):
    async with connect() as client:
        assert (await client.get("/v1/models/Fake-Voice")).json()["id"] == "fake-voice"
        assert (await client.get("/v1/models/tts-1")).json()["id"] == "tts-1"
        missing = await client.get("/v1/models/some/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_voices_are_objects_under_both_keys(connect):
    async with connect() as client:
        body = (await client.get("/v1/audio/voices", headers={"authorization": "x"})).json()
    assert body["voices"] == body["data"]
    names = [voice["name"] for voice in body["voices"]]
    assert names[:4] == list(SPEAKERS) and "alloy" in names
    assert all(voice["id"] == voice["name"] for voice in body["voices"])


async def test_legacy_voices_are_strings(connect):
    async with connect() as client:
        body = (await client.get("/v1/audio/voices?legacy=true")).json()
        bad = await client.get("/v1/audio/voices?legacy=perhaps")
    assert body["voices"][:4] == list(SPEAKERS)
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "legacy")


async def test_every_listed_voice_can_speak(connect):
    async with connect() as client:
        voices = (await client.get("/v1/audio/voices?legacy=true")).json()["voices"]
        for voice in voices:
            body = {"input": "Hi.", "voice": voice, "response_format": "pcm"}
            assert (await client.post("/v1/audio/speech", json=body)).status_code == 200


async def test_audio_models_tell_what_each_can_do(connect):
    async with connect() as client:
        body = (await client.get("/audio/models")).json()
    assert body["models"] == body["data"]
    assert body["models"][0]["id"] == "fake-voice"
    assert body["models"][0]["languages"][0] == "auto"
