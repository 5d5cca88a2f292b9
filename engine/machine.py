"""What of this machine the process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def usable_cores(group: Path = _GROUP) -> int:
    """Cores the process may run on: its affinity, and what its control group grants; at least 1.

    Args:
        group: where the control group's files lie.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _granted(group))))


def _granted(group: Path) -> float:
    """Cores' worth of time: version 2 of control groups in one file, version 1 in two."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf


__all__ = ["usable_cores"]
