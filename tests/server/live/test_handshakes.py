"""Handshakes that no dialect answers, and who gets the page where programs get JSON."""

from __future__ import annotations

import json

import pytest
from fastapi import FastAPI
from websockets.exceptions import InvalidStatus

from server.routes.live import unknown
from tests.fakes import FakeEngine
from tests.server.conftest import Live
from tests.server.live.calling import called


def test_a_path_without_a_socket_is_not_found(live: Live, fake: FakeEngine) -> None:
    app = live.server.config.app
    assert isinstance(app, FastAPI)
    app.add_api_websocket_route("/{path:path}", unknown)
    for path in ("/nowhere", "/v1/audio/speech"):
        with pytest.raises(InvalidStatus) as caught, called(live.url, path):
            pass
        assert caught.value.response.status_code == 404
        assert json.loads(caught.value.response.body) == {
            "error": {
                "message": f"there is no WebSocket at `{path}`",
                "type": "invalid_request_error",
                "param": None,
                "code": "not_found",
            }
        }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("text/html", True),
        ("Text/HTML ; q=0.5, */*", True),
        ("application/json, text/html;level=1", True),
        ("text/html;q=0, application/json", False),
        ("text/html; Q=0.000", False),
        ("application/json; profile=text/html", False),
        ("text/htmlx", False),
    ],
)
async def test_who_names_html_gets_the_page(connect, accept: str, page: bool) -> None:
    async with connect() as client:
        reply = await client.get("/", headers={"accept": accept})
    assert reply.headers["content-type"].startswith("text/html" if page else "application/json")
