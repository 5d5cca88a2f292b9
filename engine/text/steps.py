"""The names of the front end's steps, in their order."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import InvalidRequest

DEFAULT_TEXT_STEPS = (
    "characters",
    "markup",
    "pauses",
    "directions",
    "lexicon",
    "addresses",
    "numbers",
    "acronyms",
)
EXTRA_TEXT_STEPS = ("drop_code", "drop_urls")
TEXT_STEPS = (*DEFAULT_TEXT_STEPS, *EXTRA_TEXT_STEPS)


def check_text_steps(steps: Iterable[str]) -> tuple[str, ...]:
    """`steps` without repetitions, in their order; `InvalidRequest` names one there is not."""
    wanted = tuple(steps)
    for name in wanted:
        if name not in TEXT_STEPS:
            known = ", ".join(TEXT_STEPS)
            raise InvalidRequest(f"unknown `normalize` step {name!r}; one of {known}", "normalize")
    return tuple(name for name in TEXT_STEPS if name in wanted)


def wanted_steps(asked: bool | tuple[str, ...] | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The steps a request means: its own list, none for False, the engine's for None and True
    (the default ones for True where the engine has none)."""
    if asked is None or asked is True:
        return usual or (DEFAULT_TEXT_STEPS if asked else ())
    return check_text_steps(asked or ())


__all__ = ["DEFAULT_TEXT_STEPS", "TEXT_STEPS", "check_text_steps", "wanted_steps"]
