"""A client of any dialect: JSON in text frames, sound in binary ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.waiting import PATIENCE_S


class Caller:
    """Sends and reads whole messages; binary sound is collected aside."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.sound = b""

    def send(self, **fields: Any) -> None:
        self.socket.send(json.dumps(fields))

    def read(self) -> dict[str, Any]:
        """The next JSON message."""
        while isinstance(frame := self.socket.recv(PATIENCE_S), bytes):
            self.sound += frame
        message: dict[str, Any] = json.loads(frame)
        return message

    def until(self, wanted: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
        """All messages up to a wanted one."""
        messages = [self.read()]
        while not wanted(messages[-1]):
            messages.append(self.read())
        return messages

    def closed(self) -> tuple[int, str, list[dict[str, Any]]]:
        """The close code and reason, and the messages before."""
        messages: list[dict[str, Any]] = []
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                messages.append(self.read())
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, caught.value.rcvd.reason, messages


@contextmanager
def called(url: str, path: str, **options: Any) -> Iterator[Caller]:
    with connect(url.replace("http", "ws", 1) + path, **options) as socket:
        yield Caller(socket)


__all__ = ["Caller", "called"]
