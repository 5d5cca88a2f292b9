"""openai of npm, installed into the folder that `FRAMECAST_NODE` names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def run_node(script: Path, *arguments: str) -> str:
    """What a script prints, run where the packages lie; a failure has its output."""
    folder = Path(os.environ["FRAMECAST_NODE"])
    there = folder / script.name
    if script != there:
        shutil.copy(script, there)
    done = subprocess.run(
        ["node", there, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_a_whole_reply_a_stream_events_and_an_error(url: str) -> None:
    run_node(Path(__file__).with_suffix(".mjs"), url)
