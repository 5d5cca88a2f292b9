"""The README's examples, run as they stand but for the address.

A Python example runs in this interpreter; what it leaves in its names is used as its reader would.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.sounds import audible

ROOT = Path(__file__).parents[2]
ADDRESS = "http://localhost:8000"


def snippet(name: str, url: str) -> str:
    """The code block behind `<!-- snippet NAME -->` in the README, for a server at `url`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- snippet {name} -->\n```\w+\n(.*?)```", readme, re.DOTALL)
    assert found, f"the README has no snippet `{name}`"
    assert ADDRESS in found[1], f"snippet `{name}` does not name {ADDRESS}"
    return found[1].replace(ADDRESS, url)


def run_python(name: str, url: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Run a snippet in a folder of its own; returns its names and the files it made."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            exec(compile(snippet(name, url), name, "exec"), names)
        finally:
            os.chdir(before)
        return names, {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def check_openai(url: str) -> None:
    audible(run_python("openai", url)[1]["hello.wav"])


def check_events(url: str) -> None:
    audible(run_python("events", url)[1]["hello.mp3"])


def check_batch(url: str) -> None:
    made = run_python("batch", url)[1]
    audible(made["0.wav"])
    audible(made["1.wav"])


def check_curl(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bash", "-ec", snippet("curl", url)], cwd=folder, check=True, timeout=120)
        audible((Path(folder) / "hello.mp3").read_bytes())
