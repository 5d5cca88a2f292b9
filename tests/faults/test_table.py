"""The table of faults in `tests/README.md` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = (TESTS / "README.md").read_text(encoding="utf-8")


def defined() -> set[str]:
    files = TESTS.rglob("test_*.py")
    return {
        name for file in files for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
    }


def rows() -> list[str]:
    table = README.partition("## What breaks elsewhere")[2]
    return [line for line in table.splitlines() if line.startswith("| ") and "| Test |" not in line]


def test_every_test_named_in_the_table_of_faults_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", README))
    assert len(named) > 60
    assert named - defined() == set()


def test_every_fault_has_a_test_or_says_where_it_belongs() -> None:
    assert len(rows()) > 50
    assert [row for row in rows() if not re.search(r"`test_\w+`|soak `|later, ", row)] == []
