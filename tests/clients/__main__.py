"""`python -m tests.clients URL [MODULE ...]`: check a running server with real clients.

Needs the packages of `tests/clients/requirements.txt`; `.ci/clients` installs them.
"""

from __future__ import annotations

import sys

from tests.clients.checks import FAST, PACKAGES, run


def main(url: str, modules: list[str]) -> int:
    counts = [run(module, url) for module in modules or [*FAST, *PACKAGES]]
    failed = sum(failed for _, failed in counts)
    print(f"{sum(passed for passed, _ in counts)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
