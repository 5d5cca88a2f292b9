"""The threads of compiled code, and when there are any."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest
import torch

from engine.native import usable

FLAGS = "fpu avx2 avx512f avx512bw avx512vl avx512_vnni"


@pytest.mark.parametrize(
    ("flags", "can"), [(FLAGS, True), (FLAGS.replace(" avx512_vnni", ""), False), ("", False)]
)
def test_the_cpu_must_have_the_instructions(tmp_path, monkeypatch, flags, can):
    pytest.importorskip("numba")
    monkeypatch.setattr("sys.platform", "linux")
    told = tmp_path / "cpuinfo"
    told.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert usable(told) is can


def test_another_system_or_one_that_tells_nothing_has_none(tmp_path, monkeypatch):
    assert not usable(tmp_path / "missing")
    monkeypatch.setattr("sys.platform", "darwin")
    assert not usable()


def test_a_compiler_told_to_make_something_else_is_not_used(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    told = tmp_path / "cpuinfo"
    told.write_text(f"flags\t\t: {FLAGS}\n")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert not usable(told)


def helpers() -> int:
    return sum(thread.name.startswith("framecast-helper") for thread in threading.enumerate())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_team_of_any_size_multiplies_and_ends(team, size):
    from engine.native.packed import Native
    from engine.native.team import Team

    weight, x = torch.randn(80, 64), torch.randn(5, 64)
    before, own = helpers(), Team(size)
    assert helpers() == before + size - 1
    got = Native(weight, None, own)(x)
    assert torch.equal(got, Native(weight, None, team)(x))
    own.close()
    assert helpers() == before
    with pytest.raises(RuntimeError, match="has ended"):
        Native(weight, None, own)(x)


def test_a_team_that_is_forgotten_ends():
    pytest.importorskip("numba")
    if not usable():
        pytest.skip("needs Linux, AVX-512 and VNNI")
    from engine.native.team import Team

    gc.collect()
    before, own = helpers(), Team(3)
    assert helpers() == before + 2
    del own
    gc.collect()
    assert helpers() == before


def test_a_team_that_waits_takes_no_time(team):
    from engine.native.packed import Native

    kernel, x = Native(torch.randn(32, 64), None, team), torch.randn(1, 64)
    kernel(x)
    time.sleep(0.2)
    before = os.times()
    time.sleep(0.5)
    after = os.times()
    assert after.user + after.system - before.user - before.system < 0.25
    assert torch.isfinite(kernel(x)).all()  # and is there when it is wanted


def test_compiled_code_is_kept_by_what_it_was_made_of(monkeypatch, tmp_path, caplog):
    pytest.importorskip("numba")
    from engine.native import memory

    monkeypatch.setenv("FRAMECAST_CACHE", str(tmp_path))
    first = memory.kept_code()
    assert first == memory.kept_code()
    assert first.is_dir()
    monkeypatch.setattr(memory, "version", "another")
    assert memory.kept_code() != first
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRAMECAST_CACHE", str(tmp_path / "file"))
    assert memory.kept_code() is None
    assert "cannot be kept" in caplog.text


def test_kept_code_that_cannot_be_read_is_made_anew(monkeypatch, tmp_path, caplog):
    pytest.importorskip("numba")
    from engine.native import memory

    monkeypatch.setenv("FRAMECAST_CACHE", str(tmp_path))

    def three(x):
        return 3 * x

    assert memory.compiled_for("int64(int64)")(three)(2) == 6
    (kept,) = tmp_path.rglob("*.nbc")
    kept.write_bytes(kept.read_bytes()[:40])
    assert memory.compiled_for("int64(int64)")(three)(2) == 6
    assert "cannot be kept" in caplog.text
