"""What is kept of voices: the least recently used goes first, and all of one voice on request."""

from engine.tts.kept import Keeper


def keeper(*keys, room=30):
    made = Keeper(room)
    for key in keys:
        made.keep(key, f"value of {key}", 10, f"from {key}", "common")
    return made


def test_what_was_kept_is_found_and_counted():
    kept = keeper("a", "b")
    assert [kept.get(key) for key in "abc"] == ["value of a", "value of b", None]
    assert (kept.hits, kept.nbytes) == (2, 20)


def test_a_look_counts_as_nothing():
    kept = keeper("a", "b", "c")
    assert (kept.peek("a"), kept.peek("z")) == ("value of a", None)
    kept.keep("d", "new", 10)
    assert (kept.hits, kept.peek("a")) == (0, None)


def test_the_least_recently_used_goes_first():
    kept = keeper("a", "b", "c")
    kept.get("a")
    kept.keep("d", "new", 10)
    assert [kept.peek(key) is not None for key in "abcd"] == [True, False, True, True]
    assert kept.nbytes == 30


def test_what_is_larger_than_the_room_is_not_kept_and_drops_nothing_else():
    kept = keeper("a")
    kept.keep("large", "value", 31)
    assert (kept.peek("large"), kept.nbytes) == (None, 10)
    kept.keep("a", "value", 31)
    assert (kept.peek("a"), kept.nbytes) == (None, 0)
    assert keeper("a", room=0).nbytes == 0


def test_the_same_key_is_kept_once():
    kept = keeper("a")
    kept.keep("a", "newer", 15, "elsewhere")
    assert (kept.get("a"), kept.nbytes) == ("newer", 15)
    assert kept.forget(frozenset({"from a"})) == 0


def test_everything_of_one_origin_is_forgotten():
    kept = keeper("a", "b")
    assert kept.forget(frozenset({"from a", "unknown"})) == 10
    assert (kept.peek("a"), kept.peek("b")) == (None, "value of b")
    assert kept.forget(frozenset({"common"})) == 10
    assert kept.nbytes == 0
