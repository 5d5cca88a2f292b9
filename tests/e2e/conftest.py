"""The command as a user runs it: its own process, its own interpreter."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import engine
from server.settings import Settings
from tests.server.conftest import Live
from tests.waiting import eventually

LISTENING = re.compile(r"listening on (http://\S+)")
PATIENCE_S = 120


Serve = Callable[..., tuple[str, engine.Engine]]


def command(*arguments: object, module: str = "server.cli") -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FRAMECAST_")}
    clean |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    # No voices of whoever runs the tests.
    return {**clean, "XDG_DATA_HOME": os.devnull}


def run(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*arguments),
        input=None if stdin is None else stdin.encode(),
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )


class Served:
    """`framecast serve` on a free port; `log` collects what it writes to stderr.

    `module` may be another one with the same command line.
    """

    def __init__(self, *arguments: object, module: str = "server.cli") -> None:
        self.process = subprocess.Popen(
            command("serve", "--port", 0, *arguments, module=module),
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        self.log: list[str] = []
        self.url = ""
        self._found = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            assert self._found.wait(PATIENCE_S) and self.url, self.text
            self._wait_until_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def text(self) -> str:
        return "".join(self.log)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if match := LISTENING.search(line):
                self.url = match[1]
                self._found.set()
        self._found.set()
        self.process.stderr.close()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            # The address is logged a moment before connections are accepted.
            with contextlib.suppress(httpx.ConnectError):
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(self.text)


@pytest.fixture(scope="module")
def bundled() -> Iterator[Served]:
    """A server speaking with the bundled voice."""
    served = Served("--slots", 2)
    yield served
    if served.process.poll() is None:
        served.stop(signal.SIGKILL)


@pytest.fixture
def serve(custom_voice: engine.ModelFiles) -> Iterator[Serve]:
    """Serve the tiny model in reference mode; at the end its books must balance."""
    with contextlib.ExitStack() as stack:

        def begin(
            send_buffer: int | None = None, keys: str | tuple[()] = (), **config: Any
        ) -> tuple[str, engine.Engine]:
            fixed = {"device": "cpu", "kv_positions": 256, "nan_fill": True, "reference": True}
            speaker = engine.load(custom_voice, engine.EngineConfig(**{**fixed, **config}))
            live = Live(speaker, Settings(drain_timeout_s=1, api_keys=keys))
            if send_buffer is not None:
                live.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            stack.enter_context(live)
            ready = f"{live.url}/ready"
            assert eventually(lambda: httpx.get(ready).status_code == 200)
            return live.url, speaker

        yield begin
