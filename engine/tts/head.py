"""What a cloned voice is made into before its request takes a slot."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.codec.state import CodecState
from engine.tts.prompt import PromptPlan


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The talker's keys and values of the positions of a prompt that do not depend on its text.

    k, v: dtype[layers, kv heads, positions, head dim]
    """

    k: Tensor
    v: Tensor

    @property
    def positions(self) -> int:
        return self.k.shape[2]

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """All of a request's prompt that is the voice's.

    Args:
        plan: the request's, with nothing left to be heard.
        prefix: keys and values to start from.
        lane: one codec lane that has heard the reference, of an in-context clone.
    """

    plan: PromptPlan
    prefix: Prefix
    lane: CodecState | None


__all__ = ["Head", "Prefix"]
