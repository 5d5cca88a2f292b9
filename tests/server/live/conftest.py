"""Servers for sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from server.settings import Settings
from tests.fakes import FakeEngine
from tests.server.conftest import Live


@pytest.fixture
def serve(fake: FakeEngine) -> Iterator[Callable[..., Live]]:
    """Servers with settings; none holds anything at the end."""
    running: list[Live] = []

    def begin(**settings: object) -> Live:
        running.append(Live(fake, Settings(drain_timeout_s=1, **settings)).__enter__())
        return running[-1]

    yield begin
    for each in running:
        each.__exit__()
    assert fake.wait_for(0)
