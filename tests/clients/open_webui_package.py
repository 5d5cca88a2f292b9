"""open-webui: its functions that ask for models, voices and speech, by both of its engines that
speak to OpenAI, taken out of the wheel.

The application around them needs hundreds of packages, the functions themselves need aiohttp. The
wheel lies where `FRAMECAST_OPEN_WEBUI` says.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import io
import json
import logging
import os
import tempfile
import uuid
import wave
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp

from tests.clients.sounds import TEXT, audible

MODULE = "open_webui/routers/audio/__init__.py"
FUNCTIONS = (
    "_tts_openai", "_tts_openai_realtime", "get_available_models", "get_available_voices",
)  # fmt: skip


class _Config:
    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    async def get(self, name: str) -> Any:
        return self._values.get(name)


class _File:
    def __init__(self, path: Path, mode: str) -> None:
        self._file = path.open(mode)

    async def __aenter__(self) -> _File:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()

    async def write(self, data: Any) -> None:
        self._file.write(data)


class _Files:
    open = _File


class HTTPException(Exception):
    """Stands for FastAPI's."""


async def _fail(error: Exception, reply: object) -> None:
    raise error


def _functions(url: str, session: aiohttp.ClientSession, key: str = "") -> dict[str, Any]:
    with zipfile.ZipFile(os.environ["FRAMECAST_OPEN_WEBUI"]) as wheel:
        tree = ast.parse(wheel.read(MODULE))
    wanted = [node for node in tree.body if getattr(node, "name", "") in FUNCTIONS]
    assert len(wanted) == len(FUNCTIONS)
    for node in wanted:
        node.decorator_list = []

    async def get_session() -> aiohttp.ClientSession:
        return session

    scope: dict[str, Any] = {
        "Config": _Config(
            {
                "audio.tts.engine": "openai",
                "audio.tts.model": "tts-1",
                "audio.tts.voice": "alloy",
                "audio.tts.openai.api_base_url": f"{url}/v1",
                "audio.tts.openai.api_key": key,
            }
        ),
        "get_session": get_session,
        "aiohttp": aiohttp,
        "aiofiles": _Files,
        "base64": base64,
        "io": io,
        "os": os,
        "uuid": uuid,
        "wave": wave,
        "urlencode": urlencode,
        "urlsplit": urlsplit,
        "urlunsplit": urlunsplit,
        "HTTPException": HTTPException,
        "asyncio": asyncio,
        "log": logging.getLogger("open-webui"),
        "JSONCodec": json,
        "FileResponse": lambda path, **_: path,
        "transcode_audio_to_mp3": lambda data, media_type, path: False,
        "_raise_tts_error": _fail,
        "_OPENAI_DEFAULT_VOICES": None,
        "USE_SLIM": False,
        "ENABLE_FORWARD_USER_INFO_HEADERS": False,
        "AIOHTTP_CLIENT_SESSION_SSL": True,
        "AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST": 5,
    }
    annotations = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    module = ast.fix_missing_locations(ast.Module([annotations, *wanted], []))
    exec(compile(module, MODULE, "exec"), scope)
    return scope


def check_models_voices_and_speech(url: str) -> None:
    async def ask(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
        async with aiohttp.ClientSession() as session:
            found = _functions(url, session)
            target = folder / "speech.mp3"
            await found["_tts_openai"](None, {"input": TEXT}, target, folder / "body.json", None)
            audible(target.read_bytes())
            models = await found["get_available_models"](None)
            return models, await found["get_available_voices"](None)

    with tempfile.TemporaryDirectory() as folder:
        models, voices = asyncio.run(ask(Path(folder)))
    assert models and models[0]["id"] not in ("tts-1", "tts-1-hd"), models
    assert voices["alloy"] == "alloy" and len(voices) > 13, voices


def check_speech_by_the_realtime_engine(url: str) -> None:
    payload = {
        "input": TEXT,
        "model": "gpt-realtime-2.1-mini",
        "voice": "alloy",
        "api_base_url": f"{url}/v1",
        "instructions": "You are a text-to-speech renderer. Speak only the supplied words.",
    }

    async def ask(folder: Path) -> None:
        async with aiohttp.ClientSession() as session:
            speak = _functions(url, session, key="unused")["_tts_openai_realtime"]
            target = folder / "speech.wav"
            await speak(None, payload, target, folder / "body.json", None)
            audible(target.read_bytes())

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(ask(Path(folder)))
