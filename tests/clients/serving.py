"""`python -m tests.clients.serving [MODULE ...]`: a server with the bundled voice for the checks.

They run under the interpreter that `FRAMECAST_CLIENTS_PYTHON` names, which has the clients.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.e2e.conftest import Served


def main(modules: list[str]) -> int:
    served = Served("--slots", 4)
    try:
        command = [os.environ["FRAMECAST_CLIENTS_PYTHON"], "-m", "tests.clients", served.url]
        return subprocess.run([*command, *modules], check=False).returncode
    finally:
        served.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
