"""Two ways to reach an app with a fake engine: in process, and over a real socket."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

import engine
from server.app import create_app
from server.serving import Server, address, listen
from server.settings import ENV_PREFIX, Settings
from tests.fakes import FakeEngine

SPEECH = "/v1/audio/speech"
Connect = Callable[..., contextlib.AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"{ENV_PREFIX}{name.upper()}", raising=False)
    # No voices of whoever runs the tests, and none left with them.
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Undo what `set_up_logging` does to the whole process."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = root.level, root.handlers[:], uvicorn.filters[:]
    yield
    root.level, root.handlers, uvicorn.filters = before


@pytest.fixture
def fake() -> FakeEngine:
    """A warm engine."""
    warm = FakeEngine()
    warm.warm.set()
    return warm


@pytest.fixture
def connect(fake: FakeEngine) -> Connect:
    """`async with connect(**settings) as client`: the app in this process."""

    @contextlib.asynccontextmanager
    async def open_client(**settings: object) -> AsyncIterator[httpx.AsyncClient]:
        app = create_app(lambda: fake, Settings(**settings))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                yield client

    return open_client


class Live:
    """A server on a free port of this machine, run by a thread."""

    def __init__(self, loaded: engine.Engine | FakeEngine, settings: Settings) -> None:
        self.socket = listen("127.0.0.1", 0)
        self.url = address(self.socket)
        self.server = Server(create_app(lambda: loaded, settings), settings)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))

    def __enter__(self) -> Live:
        self.thread.start()
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=60) as client:
            client.get(f"{self.url}/health")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=20)
        self.socket.close()
        assert not self.thread.is_alive()


@pytest.fixture
def live(fake: FakeEngine) -> Iterator[Live]:
    with Live(fake, Settings(drain_timeout_s=1)) as running:
        yield running


@pytest.fixture
def http(live: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=10) as client:
        yield client
