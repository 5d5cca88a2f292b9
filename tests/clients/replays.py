"""Clients that are applications: the requests they send, and what they do with the reply.

Each follows the released code of the application it is named for.
"""

from __future__ import annotations

import json
import urllib.request

import httpx

from tests.clients.sounds import TEXT, audible, samples


def _post(url: str, body: dict[str, object], **headers: str) -> httpx.Response:
    reply = httpx.post(f"{url}/v1/audio/speech", json=body, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


def _post_with_an_empty_key(url: str, body: dict[str, object]) -> tuple[str, bytes]:
    # httpx would not send a header that ends with a blank.
    request = urllib.request.Request(
        f"{url}/v1/audio/speech",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer "},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers["Content-Type"], reply.read()


def check_open_webui_finds_models_and_voices(url: str) -> None:
    # Without a key, and `raise_for_status` decides; voices must be objects.
    models = httpx.get(f"{url}/v1/audio/models").raise_for_status().json()
    assert [model["id"] for model in models.get("models", [])]
    voices = httpx.get(f"{url}/v1/audio/voices").raise_for_status().json()
    assert {voice["id"]: voice["name"] for voice in voices.get("voices", [])}


def check_open_webui_speaks(url: str) -> None:
    body: dict[str, object] = {"input": TEXT, "voice": "alloy", "model": "tts-1"}
    media_type, sound = _post_with_an_empty_key(url, body)
    assert media_type.startswith("audio/")
    audible(sound)


def check_sillytavern(url: str) -> None:
    body = {"input": TEXT, "model": "tts-1", "voice": "alloy", "response_format": "mp3", "speed": 1}
    audible(_post_with_an_empty_key(url, body)[1])


def check_sillytavern_to_a_compatible_server(url: str) -> None:
    for fields in ({"speed": 1.0, "instructions": ""}, {"speed": "", "instructions": None}):
        body = {"model": "tts-1", "input": TEXT, "voice": "nova", "response_format": "mp3"}
        reply = httpx.post(f"{url}/v1/audio/speech", json=body | fields, timeout=60)
        # A number field left empty comes as a string: said, not guessed.
        assert reply.status_code == (400 if fields["speed"] == "" else 200)


def check_librechat(url: str) -> None:
    # No voice unless one was chosen, and a field nobody else has.
    body = {"input": TEXT, "model": "tts-1", "voice": None, "backend": "openai"}
    audible(_post(url, body).content)
    del body["voice"]
    audible(_post(url, body, Authorization="Bearer ${TTS_API_KEY}").content)


def check_anythingllm(url: str) -> None:
    audible(_post(url, {"model": "tts-1", "voice": "alloy", "input": TEXT}).content)


def check_n8n(url: str) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "onyx", "response_format": "aac", "speed": 1}
    reply = _post(url, body, Authorization="Bearer sk-unused", Accept="audio/*")
    assert reply.headers["content-type"] == "audio/aac"
    audible(reply.content)


def check_home_assistant_openai_tts(url: str) -> None:
    # It joins what it gets and may send the word None.
    body = {
        "model": "tts-1", "input": TEXT, "voice": "shimmer", "response_format": "mp3",
        "speed": 1.0, "instructions": "None",
    }  # fmt: skip
    one = _post(url, body).content
    audible(one + one, least_s=0.4)


def check_home_assistant_streams_to_a_speaker(url: str) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "echo", "response_format": "wav"}
    with httpx.stream("POST", f"{url}/v1/audio/speech", json=body, timeout=60) as reply:
        assert reply.status_code == 200
        head, *rest = reply.iter_bytes(4096)
    assert head[:4] == b"RIFF" and head[8:12] == b"WAVE" and head[36:40] == b"data"
    samples(head[44:] + b"".join(rest))


def check_wyoming_openai_takes_it_for_a_server_with_voices(url: str) -> None:
    assert httpx.get(f"{url}/v1/readyz").status_code == 404
    assert httpx.get(f"{url}/health").text != "OK"
    assert httpx.get(f"{url}/v1/test").json() == {"status": "ok"}
    assert httpx.get(f"{url}/v1/audio/voices").json()["voices"]


def check_livekit_warms_its_connection_up(url: str) -> None:
    assert httpx.get(f"{url}/v1/").status_code == 200


def check_a_browser_page(url: str) -> None:
    wanted = "authorization,content-type,x-stainless-lang,x-stainless-retry-count"
    reply = httpx.options(
        f"{url}/v1/audio/speech",
        headers={
            "Origin": "https://page.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": wanted,
        },
    )
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] in ("*", "https://page.example")
    allowed = reply.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in wanted.split(","))


def check_curl_without_a_voice_or_model(url: str) -> None:
    reply = _post(url, {"input": TEXT})
    assert reply.headers["content-type"] == "audio/mpeg"
    audible(reply.content)


def check_elevenlabs_over_http(url: str) -> None:
    voices = httpx.get(f"{url}/v1/voices").raise_for_status().json()["voices"]
    voice = voices[0]["voice_id"]
    body = {"text": TEXT, "model_id": "eleven_flash_v2_5", "voice_settings": {"stability": 0.5}}
    headers = {"xi-api-key": "unused"}
    for path in (voice, f"{voice}/stream"):
        reply = httpx.post(
            f"{url}/v1/text-to-speech/{path}", json=body, headers=headers, timeout=60
        )
        audible(reply.raise_for_status().content)


def check_deepgram_over_http(url: str) -> None:
    reply = httpx.post(
        f"{url}/v1/speak?model=aura-2-thalia-en&encoding=linear16&container=none",
        json={"text": TEXT},
        headers={"Authorization": "Token unused"},
        timeout=60,
    )
    samples(reply.raise_for_status().content)


def check_vllm_omni_batch(url: str) -> None:
    body = {"items": [{"input": TEXT}, {"input": "Good night."}], "voice": "alloy"}
    told = httpx.post(f"{url}/v1/audio/speech/batch", json=body, timeout=120).json()
    assert (told["total"], told["succeeded"]) == (2, 2), told
