"""The version of the installed distribution."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """`0.1.0`; `unknown` when run from a tree that was not installed."""
    try:
        return importlib.metadata.version("framecast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


__all__ = ["version"]
