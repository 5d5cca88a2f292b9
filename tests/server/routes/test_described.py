"""What `/docs` and `/openapi.json` say, and that it is true."""

import json
import re

import pytest

from server.app import create_app
from server.audio.formats import FORMATS
from server.errors import ANSWERS
from server.settings import Settings

HTTP = ("get", "post", "delete", "put")
SPEAKING = {
    "/v1/audio/speech": "/v1/audio/speech",
    "/v1/audio/speech/batch": "/v1/audio/speech/batch",
    "/v1/text-to-speech/{voice}": "/v1/text-to-speech/vivian",
    "/v1/text-to-speech/{voice}/stream": "/v1/text-to-speech/vivian/stream",
    "/v1/speak": "/v1/speak",
}


@pytest.fixture
def schema(fake):
    return create_app(lambda: fake, Settings()).openapi()


def operations(schema):
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert method in HTTP
            yield path, method, operation


def test_every_route_is_there_and_says_what_it_does(schema):
    described = {path for path, _, operation in operations(schema) if operation["description"]}
    assert set(SPEAKING) | {"/health", "/v1/models", "/v1/audio/voices", "/v1/voices"} <= described
    assert described == set(schema["paths"])


def test_nothing_is_said_to_answer_422(schema):
    for _, _, operation in operations(schema):
        assert "422" not in operation["responses"]
    assert "HTTPValidationError" not in json.dumps(schema)


@pytest.mark.parametrize("path", [path for path in SPEAKING if not path.endswith("batch")])
def test_routes_that_speak_name_every_error_a_caller_can_see(schema, path):
    told = {int(status) for status in schema["paths"][path]["post"]["responses"]}
    # 405 belongs to no route, 499 is for the log, 409 for voices that are saved.
    assert {answer.status for answer in ANSWERS.values()} - {409, 499} <= told


def test_errors_have_examples_in_the_shape_they_are_sent_in(schema):
    shown = 0
    for path, _, operation in operations(schema):
        for status, reply in operation["responses"].items():
            if int(status) < 400 or not path.startswith("/v1"):
                continue
            for example in reply["content"]["application/json"]["examples"].values():
                assert set(example["value"]["error"]) == {"message", "type", "param", "code"}
                assert ("detail" in example["value"]) == bool(
                    re.match("/v1/(text-to-speech|voices)", path)
                )
                assert ("err_msg" in example["value"]) == (path == "/v1/speak")
                shown += 1
    assert shown > 50


def test_every_format_has_its_media_type(schema):
    content = schema["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["content"]
    assert {entry.media_type for entry in FORMATS.values()} | {"text/event-stream"} == set(content)


@pytest.mark.anyio
@pytest.mark.parametrize("path", SPEAKING)
async def test_the_examples_of_bodies_are_answered_with_200(connect, schema, path):
    content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert content["examples"]
    async with connect() as client:
        for example in content["examples"].values():
            reply = await client.post(SPEAKING[path], json=example["value"])
            assert reply.status_code == 200, reply.text


@pytest.mark.anyio
async def test_the_page_is_served(connect):
    async with connect() as client:
        reply = await client.get("/docs")
    assert reply.status_code == 200 and "/openapi.json" in reply.text


def references(node):
    if isinstance(node, dict):
        yield from [node["$ref"]] if "$ref" in node else []
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_every_reference_leads_somewhere(schema):
    spoken = schema["paths"]["/v1/audio/speech"]["post"]["requestBody"]["content"]
    assert "ref_audio" in str(spoken["application/json"]["schema"])
    for reference in references(schema):
        node = schema
        for name in reference.removeprefix("#/").split("/"):
            node = node[name]
