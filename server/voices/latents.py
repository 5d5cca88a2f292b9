"""Codes that come without their clip: whether they can be spoken with, and be what a text says."""

from __future__ import annotations

import engine
from engine import Fit, InvalidRequest
from server.voices.documents import Array

MOST_S = engine.MOST_CLIP_S + engine.MOST_TAIL_S


def doubts(codes: Array, transcript: str, frame_s: float) -> tuple[str, ...]:
    """What whoever sends [groups, frames] should know about their transcript.

    Args:
        frame_s: seconds of one frame.

    Raises:
        InvalidRequest: of `rvq`: longer than a clip and its silence may be; of `ref_text`: it
            cannot be what the codes say.
    """
    frames = codes.shape[1]
    seconds = frames * frame_s
    if seconds > MOST_S:
        raise InvalidRequest(
            f"`rvq` holds {frames} frames, {seconds:.1f} s of sound; the limit is {MOST_S:g} s",
            "rvq",
        )
    # Codes do not show how much of them is silence: up to half may be.
    fits = {engine.fit(transcript, seconds), engine.fit(transcript, seconds / 2)}
    if Fit.SURE in fits:
        return ()
    how = "cannot be" if fits == {Fit.IMPOSSIBLE} else "may not be all of"
    told = (
        f"`ref_text` {how} what the codes say: {len(transcript.strip())} characters for"
        f" {seconds:.1f} s"
    )
    if fits == {Fit.IMPOSSIBLE}:
        raise InvalidRequest(told, "ref_text")
    return (told,)


__all__ = ["MOST_S", "doubts"]
