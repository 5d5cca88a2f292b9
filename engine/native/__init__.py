"""The engine's own compiled kernels (numba), for CPUs with AVX-512 and VNNI under Linux.

Everything here has a plain twin in `engine.models`, which other machines run.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NEEDED = {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"}


def usable(told: Path = Path("/proc/cpuinfo")) -> bool:
    """This machine has what the kernels need. Compiles nothing.

    Args:
        told: where Linux describes the CPU.
    """
    if sys.platform != "linux" or importlib.util.find_spec("numba") is None:
        return False
    try:
        lines = told.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.split()) >= _NEEDED


__all__ = ["usable"]
