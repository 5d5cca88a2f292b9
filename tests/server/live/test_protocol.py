"""The conversations of `server/live/PROTOCOL.md`, played against the server."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import server.live
from tests.server.conftest import Live
from tests.waiting import PATIENCE_S

DOCUMENT = Path(server.live.__file__).with_name("PROTOCOL.md").read_text("utf-8")
SECTIONS = {
    name: re.findall(r"^```jsonl (\S+)\n(.*?)^```$", text, re.S | re.M)
    for name, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.S | re.M)
}
PLAYS = [
    pytest.param(path, talk.splitlines(), id=f"{name}-{number}")
    for name, talks in SECTIONS.items()
    for number, (path, talk) in enumerate(talks)
]
BINARY = "<binary>"
CLOSED = re.compile(r"<closed (\d+)>")
CHOSEN = re.compile(r"<[a-z]+>")


class Play:
    """One conversation: what the server chose so far, and the sound that may still come."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.chosen: dict[str, Any] = {}
        self.sound: Any = None

    def line(self, line: str) -> None:
        direction, told = line[:2], line[2:]
        if direction == "> ":
            self.socket.send(CHOSEN.sub(lambda name: self.chosen[name[0]], told))
        elif code := CLOSED.fullmatch(told):
            assert self.closed() == int(code[1])
        else:
            assert direction == "< "
            self.hear(BINARY if told == BINARY else json.loads(told))

    def hear(self, wanted: Any) -> None:
        """Read up to a message like the wanted one; before it, only sound like the last."""
        while not self.like(wanted, heard := self.read()):
            assert self.sound is not None and self.like(self.sound, heard), (wanted, heard)
        if BINARY in str(wanted) or "<sound>" in str(wanted):
            self.sound = wanted

    def read(self) -> Any:
        frame = self.socket.recv(PATIENCE_S)
        return frame if isinstance(frame, bytes) else json.loads(frame)

    def closed(self) -> int:
        try:
            while True:
                heard = self.read()
                assert self.like(self.sound, heard), heard
        except ConnectionClosed as end:
            assert end.rcvd is not None
            return end.rcvd.code

    def like(self, wanted: Any, heard: Any) -> bool:
        if wanted == BINARY:
            return isinstance(heard, bytes) and len(heard) > 0
        if wanted == "<sound>":
            return isinstance(heard, str) and len(base64.b64decode(heard, validate=True)) > 0
        if isinstance(wanted, str) and CHOSEN.fullmatch(wanted):
            return wanted == "<any>" or bool(self.chosen.setdefault(wanted, heard) == heard)
        if isinstance(wanted, dict) and isinstance(heard, dict):
            return wanted.keys() == heard.keys() and all(
                self.like(value, heard[name]) for name, value in wanted.items()
            )
        if isinstance(wanted, list) and isinstance(heard, list):
            return len(wanted) == len(heard) and all(map(self.like, wanted, heard))
        return type(wanted) is type(heard) and bool(wanted == heard)


@pytest.mark.parametrize(("path", "lines"), PLAYS)
def test_the_server_answers_as_the_document_says(
    serve: Callable[..., Live], path: str, lines: list[str]
) -> None:
    with connect(serve().url.replace("http", "ws", 1) + path) as socket:
        play = Play(socket)
        for line in lines:
            play.line(line)


def test_every_section_has_a_conversation_that_is_played() -> None:
    assert len(SECTIONS) >= 3
    assert [name for name, talks in SECTIONS.items() if not talks] == []
    assert DOCUMENT.count("```jsonl") == len(PLAYS)


def test_a_message_that_differs_is_noticed() -> None:
    play = Play(None)  # type: ignore[arg-type]
    assert play.like({"id": "<id>", "n": 1}, {"id": "x", "n": 1})
    assert play.like({"id": "<id>"}, {"id": "x"})
    assert not play.like({"id": "<id>"}, {"id": "y"})
    assert not play.like({"n": 1}, {"n": True})
    assert not play.like({"n": 1}, {"n": 1, "more": 2})
    assert not play.like(["<any>"], [])
    assert not play.like({"audio": "<sound>"}, {"audio": None})
    assert not play.like(BINARY, "text")
