"""A team of compiled threads, where this machine can run one."""

from __future__ import annotations

import pytest

from engine.native import usable


@pytest.fixture(scope="package")
def team():
    if not usable():
        pytest.skip("needs Linux, AVX-512 and VNNI")
    from engine.native.team import Team

    team = Team(2)
    yield team
    team.close()
