"""The engine's own compiled kernels (numba), for CPUs with AVX-512 and VNNI under Linux.

Everything here has a plain twin in `engine.models`, which other machines run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# With these numba compiles for another CPU, or not at all.
_OTHER_TARGETS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT")
_NEEDED = {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"}


def usable(told: Path = Path("/proc/cpuinfo")) -> bool:
    """This machine has what the kernels need. Compiles nothing.

    Args:
        told: where Linux describes the CPU.
    """
    if sys.platform != "linux" or importlib.util.find_spec("numba") is None:
        return False
    if any(os.environ.get(name) for name in _OTHER_TARGETS):
        return False
    try:
        lines = told.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.split()) >= _NEEDED


__all__ = ["usable"]
