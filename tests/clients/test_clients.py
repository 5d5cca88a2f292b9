"""The clients that need no package of their own; `.ci/clients` runs the others too."""

import pytest

from tests.clients.checks import FAST, checks_of

CHECKS = [
    pytest.param(check, id=f"{module}-{name}")
    for module in FAST
    for name, check in checks_of(module).items()
]


@pytest.mark.parametrize("check", CHECKS)
def test_a_client_works_with_nothing_but_the_address_changed(url, check):
    check(url)
