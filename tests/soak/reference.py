"""`framecast serve` with the engine in reference mode, which writes its books to stderr when it is
sent SIGUSR1."""

from __future__ import annotations

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


def load(settings: Settings) -> engine.Engine:
    config = replace(settings.engine_config(), reference=True)
    speaker = engine.load(settings.model_files(), config)

    def write_books(*_: Any) -> None:
        # Asking waits for the worker, which must not hold up the event loop.
        threading.Thread(target=lambda: log.info("books %s", said(speaker))).start()

    signal.signal(signal.SIGUSR1, write_books)
    return speaker


def said(speaker: engine.Engine) -> str:
    balanced = all(books.balanced for books in speaker.books())
    return f"balanced={balanced} in_flight={speaker.in_flight}"


if __name__ == "__main__":
    cli._load = load
    sys.exit(cli.main())
