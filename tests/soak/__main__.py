"""`python -m tests.soak [PART ...]`: run the soak and print its table; exit code 1 on a failure.

Durations come from the environment, for a shorter or longer run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import unittest.mock
from collections.abc import Callable, Iterator

from tests.e2e.conftest import Served
from tests.soak import parts
from tests.soak.report import Outcome, table

DEFAULTS = {
    "SOAK_REQUESTS": 200,
    "SOAK_ABORTED": 50,
    "SOAK_OVERLOAD_S": 60,
    "SOAK_SOCKETS": 20,
    "SOAK_SOCKETS_S": 60,
    "SOAK_CYCLES": 20,
    "SOAK_CYCLE_REQUESTS": 50,
    "SOAK_HEALTH_S": 20,
    "SOAK_FUZZ_S": 600,
}


def setting(name: str) -> int:
    return int(os.environ.get(name, DEFAULTS[name]))


@contextlib.contextmanager
def serving(*arguments: object, module: str = "server.cli") -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        fixed = ("--slots", parts.SLOTS, "--log-level", "info", "--voices-dir", folder)
        served = Served(*fixed, *arguments, module=module)
        try:
            yield served
        finally:
            served.stop(signal.SIGTERM)


def mixed() -> Outcome:
    with serving(module="tests.soak.reference") as served:
        return parts.mixed_requests(served, setting("SOAK_REQUESTS"))


def aborted() -> Outcome:
    with serving(module="tests.soak.reference") as served:
        return parts.aborted_streams(served, setting("SOAK_ABORTED"))


def overload() -> Outcome:
    with serving("--max-queue", parts.SLOTS) as served:
        return parts.overload(served, setting("SOAK_OVERLOAD_S"))


def live() -> Outcome:
    with serving(module="tests.soak.watched") as served:
        return parts.live(served, setting("SOAK_SOCKETS_S"), setting("SOAK_SOCKETS"))


def memory() -> Outcome:
    # oneDNN keeps up to 1024 kernels, one per shape of batch. They come over thousands of requests
    # and look like a leak, so it keeps one here.
    few_kernels = unittest.mock.patch.dict(os.environ, ONEDNN_PRIMITIVE_CACHE_CAPACITY="1")
    with few_kernels, serving(module="tests.soak.watched") as served:
        return parts.memory(served, setting("SOAK_CYCLES"), setting("SOAK_CYCLE_REQUESTS"))


def health() -> Outcome:
    with serving() as served:
        return parts.health(served, setting("SOAK_HEALTH_S"))


def fuzzing() -> Outcome:
    with serving() as served:
        return parts.fuzzing(served, setting("SOAK_FUZZ_S"))


PARTS: dict[str, Callable[[], Outcome]] = {
    part.__name__: part for part in (mixed, aborted, overload, live, memory, health, fuzzing)
}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; valid: {', '.join(PARTS)}")
        return 2
    outcomes = []
    for name in names or PARTS:
        outcomes.append(PARTS[name]())
        print(f"{name}: {outcomes[-1].found}", file=sys.stderr)
    print(table(outcomes))
    return 0 if all(outcome.right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
