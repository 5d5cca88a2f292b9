"""`framecast serve` which, when sent SIGUSR1, writes to stderr what the engine and the process
hold. Needs glibc 2.33 or newer."""

from __future__ import annotations

import ctypes
import gc
import logging
import signal
import sys
import threading
from dataclasses import replace
from typing import Any

import engine
from server import cli
from server.settings import Settings

log = logging.getLogger(__name__)


class Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: bytes of all arenas together."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use_bytes() -> int:
    """What was asked of `malloc` and not given back; free parts of its heaps do not count."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def holding(speaker: engine.Engine) -> str:
    balanced = all(books.balanced for books in speaker.books())
    gc.collect()  # what only waits to be collected is not held
    return (
        f"holding balanced={balanced} in_flight={speaker.in_flight}"
        f" in_use_bytes={in_use_bytes()} python_blocks={sys.getallocatedblocks()}"
    )


def serve(reference: bool) -> int:
    """Run the command line; `reference` turns the engine's reference mode on."""

    def load(settings: Settings) -> engine.Engine:
        config = replace(settings.engine_config(), reference=reference)
        speaker = engine.load(settings.model_files(), config)

        def write(*_: Any) -> None:
            # Asking waits for the worker, which must not hold up the event loop.
            threading.Thread(target=lambda: log.info(holding(speaker))).start()

        signal.signal(signal.SIGUSR1, write)
        return speaker

    cli._load = load
    return cli.main()


if __name__ == "__main__":
    sys.exit(serve(reference=False))
