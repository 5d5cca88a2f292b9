"""A server whose fake engine makes a frame every few milliseconds, as a real one would."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from server.settings import Settings
from tests.fakes import FakeEngine, Script
from tests.server.conftest import Live

FRAME_S = 0.003


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    fake = FakeEngine(Script(frames=12, at_once=1))
    fake.warm.set()
    over = threading.Event()

    def work() -> None:
        while not over.wait(FRAME_S):
            fake.advance()

    worker = threading.Thread(target=work)
    worker.start()
    with Live(fake, Settings(drain_timeout_s=1)) as live:
        yield live.url
        over.set()
        worker.join()
