"""Folders that are made once: complete or not at all, by one builder at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import cache
from engine.cache import built_once
from tests.waiting import PATIENCE_S

KILLED = """
import os, sys
from pathlib import Path
from engine.cache import built_once

def build(folder):
    (folder / "half").write_text("made")
    os.kill(os.getpid(), 9)

built_once(Path(sys.argv[1]), build)
"""


def write(folder: Path) -> None:
    (folder / "file").write_text("made")


def others(folder: Path) -> list[str]:
    """What lies beside a made folder."""
    return sorted(path.name for path in folder.parent.iterdir() if path != folder)


def test_a_folder_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    assert built_once(tmp_path / "made", write) == tmp_path / "made"
    built_once(tmp_path / "made", lambda _: pytest.fail("it was there"))


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        built_once(tmp_path / "made", fail)
    assert not (tmp_path / "made").exists()
    assert others(tmp_path / "made") == []


def test_what_a_killed_build_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    root = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", KILLED, folder], cwd=root, check=False)
    assert done.returncode == -9
    [half] = others(folder)
    assert (tmp_path / half / "half").exists()
    built_once(tmp_path / "another", write)
    assert others(folder) == ["another"]


def test_a_second_builder_waits_for_the_first_and_removes_nothing_of_it(tmp_path: Path) -> None:
    folder, building, go_on = tmp_path / "made", threading.Event(), threading.Event()

    def slow(fresh: Path) -> None:
        building.set()
        assert go_on.wait(PATIENCE_S)
        write(fresh)

    first = threading.Thread(target=built_once, args=(folder, slow))
    second = threading.Thread(
        target=built_once, args=(folder, lambda _: pytest.fail("built twice"))
    )
    first.start()
    assert building.wait(PATIENCE_S)
    second.start()
    second.join(0.1)
    assert second.is_alive() and len(others(folder)) == 1
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert (folder / "file").exists() and others(folder) == []


def test_without_locks_both_build_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_locked", lambda *_: False)
    folder = tmp_path / "made"

    def overtaken(fresh: Path) -> None:
        (fresh / "file").write_text("second")
        built_once(folder, write)

    built_once(folder, overtaken)
    assert (folder / "file").read_text() == "made"
    assert others(folder) == []
