"""`tests.soak.watched` with the engine in reference mode."""

from __future__ import annotations

import sys

from tests.soak.watched import serve

if __name__ == "__main__":
    sys.exit(serve(reference=True))
