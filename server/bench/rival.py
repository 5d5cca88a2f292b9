"""The C++ peer's process, which loads the same files and runs the same rounds."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import engine
from server.bench import peer


class Rival:
    """The peer's process, which has loaded the same files."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def round(self, count: int) -> dict[str, Any]:
        """Let it speak to so many at once; what `peer.py` says of it."""
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        with contextlib.suppress(BrokenPipeError):
            print(count, file=given, flush=True)
        line = taken.readline()
        if not line:
            raise engine.InvalidRequest(
                "the peer ended; `--peer` takes a Python that has `realtimetts-qwen-native-cpu`",
                "peer",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def rival(
    python: str, files: engine.ModelFiles, text: str, *, most: int, frames: int
) -> Iterator[Rival]:
    """Start it in the given Python and end it; `InvalidRequest` when there is no such.

    Args:
        most: requests at once.
        frames: of every request.
    """
    threads = engine.usable_cores()
    given = (files.talker, files.codec, threads, most, frames, text)
    command = [python, peer.__file__, *map(str, given)]
    try:
        process = subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise engine.InvalidRequest(f"`--peer` {python!r}: {error}", "peer") from None
    try:
        opened = Rival(process)
        opened.round(1)  # it is warm then, and loads nothing while others are measured
        yield opened
    finally:
        process.kill()
        process.communicate()


__all__ = ["Rival", "rival"]
