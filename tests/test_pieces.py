"""Work in pieces: to the end at once, a piece at a time, given up, and what its caller waits on."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from engine.pending import Pending
from engine.pieces import Chores, Promised, Steps, run_through


def pieces(names: str, log: list[str], fail: Exception | None = None) -> Steps[str]:
    try:
        for name in names:
            log.append(name)
            yield
        if fail:
            raise fail
        return names
    finally:
        log.append("closed")


def promised(names: str, log: list[str], fail: Exception | None = None) -> Promised[str]:
    return Promised(pieces(names, log, fail), Future())


def slow_clock() -> Any:
    return map(float, itertools.count()).__next__


def never() -> bool:
    return False


def test_all_pieces_at_once_come_to_the_result() -> None:
    log: list[str] = []
    assert run_through(pieces("abc", log)) == "abc"
    assert log == ["a", "b", "c", "closed"]


def test_as_many_pieces_are_done_as_there_is_time_for() -> None:
    log: list[str] = []
    chores = Chores(clock=slow_clock())
    chores.add(promised("abcdef", log))
    for expected in ("a", "ab", "abcd"):
        chores.run(1.0 if expected != "abcd" else 2.0, never)
        assert "".join(log) == expected


def test_an_interruption_ends_a_run_after_the_piece() -> None:
    log: list[str] = []
    chores = Chores(clock=lambda: 0.0)
    chores.add(promised("abc", log))
    chores.run(10.0, lambda: len(log) == 2)
    assert log == ["a", "b"]


def test_chores_are_done_one_after_the_other_and_answer_their_futures() -> None:
    log: list[str] = []
    chores = Chores(clock=lambda: 0.0)
    one, broken, two = (
        promised("ab", log),
        promised("c", log, ValueError("broken")),
        promised("d", log),
    )
    for chore in (one, broken, two):
        chores.add(chore)
    chores.run(1.0, never)
    assert "".join(log).replace("closed", "|") == "ab|c|d|"
    assert (one.future.result(0), two.future.result(0), len(chores)) == ("ab", "d", 0)
    with pytest.raises(ValueError, match="broken"):
        broken.future.result(0)


def test_what_nobody_waits_for_is_closed_where_it_stands() -> None:
    log: list[str] = []
    chores = Chores(clock=slow_clock())
    left, kept = promised("abc", log), promised("x", log)
    chores.add(left)
    chores.add(kept)
    chores.run(0.5, never)
    assert Pending(left.future).cancel()
    chores.sweep(0.0)
    assert (log, len(chores)) == (["a", "closed"], 1)
    chores.run(10.0, never)
    assert kept.future.result(0) == "x"


def test_what_is_done_in_the_moment_it_is_given_up_harms_nobody() -> None:
    log: list[str] = []
    chores = Chores(clock=lambda: 0.0)
    left, broken = promised("a", log), promised("b", log, ValueError("broken"))
    chores.add(left)
    chores.add(broken)
    left.future.cancel()
    broken.future.cancel()
    chores.run(1.0, never)
    assert (len(chores), left.future.cancelled(), broken.future.cancelled()) == (0, True, True)


def test_at_the_end_everything_left_fails() -> None:
    log: list[str] = []
    chores = Chores()
    chore = promised("abc", log)
    chores.add(chore)
    chores.fail_all(ValueError("the end"))
    with pytest.raises(ValueError, match="the end"):
        chore.future.result(0)
    assert len(chores) == 0


def test_a_pending_value_is_awaited_or_waited_for() -> None:
    future: Future[str] = Future()
    pending = Pending(future)
    assert not pending.done
    with pytest.raises(TimeoutError):
        pending.result(0)
    future.set_result("made")

    async def wait() -> str:
        return await pending

    assert (asyncio.run(wait()), pending.result(0), pending.done) == ("made", "made", True)
    assert not pending.cancel()


def test_a_pending_value_that_was_given_up_is_not_there() -> None:
    pending: Pending[str] = Pending(Future())
    assert pending.cancel()
    with pytest.raises(CancelledError):
        pending.result(0)
