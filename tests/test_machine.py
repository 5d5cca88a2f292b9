"""How many cores the process may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.machine import aside, give_back, usable_cores


@pytest.fixture(autouse=True)
def eight_allowed(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("9000000 100000", 8),
        ("100000 0", 8),
        ("rubbish", 8),
    ],
)
def test_a_control_group_of_version_2_limits_the_cores(tmp_path, written, cores):
    (tmp_path / "cpu.max").write_text(f"{written}\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("300000", 3)])
def test_a_control_group_of_version_1_limits_the_cores(tmp_path, quota, cores):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores


def test_affinity_limits_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert usable_cores(tmp_path) == 3


def test_a_system_without_affinity_counts_its_cores(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path) == 1


COUNTED = """
import os, torch, engine

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(engine.usable_cores())  # which makes helpers of its own
before = threads()
with engine.load(config=engine.EngineConfig(device="cpu", slots=2)) as speech:
    speech.warm_up()
    print(threads() - before - torch.get_num_threads())
"""


def test_what_is_made_aside_comes_back_and_its_thread_ends():
    made = aside(threading.current_thread)
    assert made is not threading.current_thread()
    assert not made.is_alive()


def test_what_fails_aside_fails_here():
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 / 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux does")
def test_only_the_worker_keeps_helpers_that_multiply_with_it():
    done = subprocess.run(
        [sys.executable, "-c", COUNTED],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == 0  # beyond the worker and its helpers


FREED = """
import re, sys
from pathlib import Path
from engine.machine import give_back

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

parts = [bytearray(60_000) for _ in range(4000)]  # too small to be mapped one by one
pin = parts[-1]  # what lies before the last one used stays with the library
full = resident()
del parts
freed = resident()
give_back()
print(full, freed, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_was_freed_goes_back_to_the_system():
    run = [sys.executable, "-c", FREED]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    full, freed, after = (int(number) for number in told.split())
    assert full - freed < 50_000, "the C library of this system keeps nothing: nothing to test"
    assert full - after > 180_000


def test_a_system_that_cannot_take_memory_back_is_left_alone(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert give_back() is None
