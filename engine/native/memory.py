"""Memory and threads in compiled code: arrays at addresses, number formats, the meeting of a team.

`control` is an array of int64 whose words lie 64 bytes apart; its address goes to every function
that waits.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba import __version__ as version
from numba import carray, njit, types
from numba.core import config
from numba.extending import intrinsic

from engine.cache import cache_directory
from engine.native.vector import add_at, as_bits, as_float, nearest, pause, read_at, system_call

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
log = logging.getLogger("framecast.engine")

# Words of `control`: jobs started, who has come to a meeting, helpers asleep; and how many meetings
# each thread has been to.
STARTED, MET, ASLEEP, MEETINGS = range(0, 32, 8)
_PATIENT_SPINS = 2_000
_YIELD = 24  # a system call of x86-64


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called from compiled code."""
    return _compile(function)


def compiled_for(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function now; what comes of it is kept on disk."""
    return lambda function: _compile(function, signature)


def _compile(function: Callable[..., Any], *signature: str) -> Any:
    folder = kept_code() if signature else None
    if folder is None:
        return njit(*signature, **_OPTIONS)(function)
    if not any(folder.rglob("*.nbi")):
        log.info("compiling kernels for this CPU, once: they are kept in %s", folder)
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return njit(*signature, cache=True, **_OPTIONS)(function)
    except Exception as error:  # cut off by a crash, a full disk: what cannot be read or written
        log.warning("compiled kernels cannot be kept in `%s`: %s", folder, error)
    finally:
        config.CACHE_DIR = before
    return njit(*signature, **_OPTIONS)(function)


def kept_code() -> Path | None:
    """Where compiled code is kept for the next start: a folder for these sources, this compiler
    and this kind of CPU; None where nothing can be kept."""
    digest = hashlib.sha256(f"{version} {get_host_cpu_name()}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    try:
        folder = cache_directory() / "kernels" / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("compiled kernels cannot be kept: %s", error)
        return None
    return folder if os.access(folder, os.W_OK) else None


@intrinsic
def _pointer(context: Any, address: Any) -> Any:
    def build(numba: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.inttoptr(given[0], numba.get_value_type(types.voidptr))

    return types.voidptr(types.int64), build


@compiled
def floats(address, count):
    return carray(_pointer(address), (count,), np.float32)


@compiled
def ints(address, count):
    return carray(_pointer(address), (count,), np.int32)


@compiled
def halves(address, count):
    return carray(_pointer(address), (count,), np.uint16)


@compiled
def longs(address, count):
    return carray(_pointer(address), (count,), np.int64)


@compiled
def bfloat16(value):
    """To the nearest, ties to even, as torch rounds."""
    bits = np.uint32(as_bits(value))
    if value != value:
        return np.uint16((bits >> np.uint32(16)) | np.uint32(0x40))
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@compiled
def exp(x):
    """e to the x, to about two units in the last place; x is cut to what F32 can hold."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    whole = nearest(x * np.float32(1.44269504088896341))
    rest = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    series = series * rest * rest + rest + np.float32(1.0)
    return series * as_float((np.int32(whole) + np.int32(127)) << np.int32(23))


@compiled
def meet(control, team, own):
    """Wait until the whole team is here; what each wrote before is then seen by all."""
    words = longs(control, MEETINGS + 8 * (own + 1))
    words[MEETINGS + 8 * own] += 1
    awaited = team * words[MEETINGS + 8 * own]
    address = control + 8 * MET
    if add_at(address, 1) + 1 >= awaited:
        return
    spins = 0
    while read_at(address) < awaited:
        spins += 1
        if spins < _PATIENT_SPINS:
            pause()
        else:
            system_call(_YIELD, 0, 0, 0, 0)


@compiled
def share(count, team, own):
    """The items first..last of `count` that are a thread's own."""
    return count * own // team, count * (own + 1) // team
