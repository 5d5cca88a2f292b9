"""A crowd on WebSockets; a short version of what `.ci/soak` does for longer."""

from __future__ import annotations

from tests.e2e.conftest import Serve
from tests.e2e.talkers import FAULT, VLLM_OMNI, sockets
from tests.faults.speaking import balanced
from tests.waiting import PATIENCE_S, run


def test_sockets_that_pause_flood_and_vanish_never_meet_a_fault_and_the_books_balance(
    serve: Serve,
):
    url, speaker = serve(slots=2)
    seen = run(sockets(url, (VLLM_OMNI,), 4, lambda visits: visits >= 12), 4 * PATIENCE_S)
    assert seen.odd == []
    assert seen.ended > 0 and seen.cancelled > 0 and seen.left > 0 and seen.sound > 0
    assert seen.closes[FAULT] == 0
    assert balanced(speaker)
