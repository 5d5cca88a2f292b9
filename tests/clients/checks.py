"""Finding the checks of a module, and running them against a server."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable

Check = Callable[[str], None]

# With packages the development environment has anyway.
FAST = ("openai_python", "replays", "snippets")
PACKAGES = (
    "openai_agents", "livekit_plugin", "pipecat_service", "elevenlabs_package",
    "deepgram_package", "wyoming_openai_package", "open_webui_package", "openai_node",
    "package_snippets", "livekit_sockets", "openai_realtime", "cartesia_package",
)  # fmt: skip


def checks_of(module: str) -> dict[str, Check]:
    """The functions of `tests/clients/MODULE.py` named `check_*`, by the rest of their name."""
    loaded = importlib.import_module(f"tests.clients.{module}")
    found = {
        name.removeprefix("check_"): value
        for name, value in vars(loaded).items()
        if name.startswith("check_")
    }
    assert found, f"tests/clients/{module}.py has no check"
    return found


def run(module: str, url: str) -> tuple[int, int]:
    """Run a module's checks and print a line for each; returns how many passed and failed."""
    passed = failed = 0
    for name, check in checks_of(module).items():
        try:
            check(url)
        except Exception:
            failed += 1
            print(f"FAILED {module}: {name.replace('_', ' ')}\n{traceback.format_exc()}")
        else:
            passed += 1
            print(f"passed {module}: {name.replace('_', ' ')}", flush=True)
    return passed, failed


__all__ = ["FAST", "PACKAGES", "Check", "checks_of", "run"]
