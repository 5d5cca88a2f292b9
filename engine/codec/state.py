"""What a codec lane carries from one call to the next, kept outside the modules.

`init_state` makes one `CodecState` for L lanes; every forward gets it (or a gathered part of it)
and updates it in place; `state=None` means offline, where the zero left padding stands in for it.

    key                       dtype[shape]                            meaning
    position                  int64[L]                                frames a lane has consumed
    <causal conv>             dtype[L, C_in, (kernel-1)*dilation]     its last input columns
    <transposed conv>         dtype[L, C_out, kernel-stride]          overlap still to come, no bias
    <attention>.k, .v         dtype[L, kv_heads, window-1, head_dim]  past K after RoPE, past V

Keys are module paths. Column j of the past K and V belongs to frame position - (window-1) + j;
columns before frame 0 are masked and may hold anything (NaN in tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn


class Stateful(nn.Module):
    """A module that carries tensors between calls; `path` is their key."""

    path: str = ""
    # Unset entries are masked by position, so that they may be filled with NaN.
    masked: ClassVar[bool] = False

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape per lane of each carried tensor, by the suffix of its key."""
        raise NotImplementedError


@dataclass(slots=True)
class CodecState:
    """The carried state of L lanes; see the module's table.

    Lanes are given as int64[n] on the state's device, each at most once.
    """

    tensors: dict[str, Tensor]
    position: Tensor
    fills: Mapping[str, float]

    @property
    def lanes(self) -> int:
        return self.position.shape[0]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values()) + self.position.nbytes

    def select(self, lanes: Tensor) -> CodecState:
        """A gathered copy with n lanes: a batch to decode, or a snapshot of primed lanes."""
        tensors = {key: t.index_select(0, lanes) for key, t in self.tensors.items()}
        return CodecState(tensors, self.position.index_select(0, lanes), self.fills)

    def update(self, lanes: Tensor, part: CodecState) -> None:
        """Scatter a part of n lanes back; every other lane stays bit-identical."""
        for key, tensor in self.tensors.items():
            tensor.index_copy_(0, lanes, part.tensors[key])
        self.position.index_copy_(0, lanes, part.position)

    def reset(self, lanes: Tensor) -> None:
        """Make the lanes as `init_state` made them: zeros equal the offline left padding."""
        for key, tensor in self.tensors.items():
            tensor.index_fill_(0, lanes, self.fills[key])
        self.position.index_fill_(0, lanes, 0)

    def clone(self) -> CodecState:
        """An independent copy of every lane."""
        tensors = {key: t.clone() for key, t in self.tensors.items()}
        return CodecState(tensors, self.position.clone(), self.fills)


def name_states(root: nn.Module) -> None:
    """Give every stateful module its path under `root`; the owner of a state calls it once."""
    for path, module in root.named_modules():
        if isinstance(module, Stateful):
            module.path = path


def init_state(
    root: nn.Module,
    lanes: int,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    nan_fill: bool = False,
) -> CodecState:
    """A fresh state of `lanes` lanes for the stateful modules under `root`.

    Args:
        nan_fill: fill what position masks (the unset past of attention) with NaN.
    """
    tensors: dict[str, Tensor] = {}
    fills: dict[str, float] = {}
    for module in root.modules():
        if isinstance(module, Stateful):
            fill = float("nan") if nan_fill and module.masked else 0.0
            for suffix, shape in module.state_shapes().items():
                key = module.path + suffix
                fills[key] = fill
                tensors[key] = torch.full((lanes, *shape), fill, device=device, dtype=dtype)
    position = torch.zeros(lanes, dtype=torch.int64, device=device)
    return CodecState(tensors, position, fills)


def extend(past: Tensor, new: Tensor, dim: int) -> Tensor:
    """Join the carried columns and the new ones along `dim`, and carry the last ones on."""
    joined = torch.cat((past, new), dim)
    kept = past.shape[dim]
    past.copy_(joined.narrow(dim, joined.shape[dim] - kept, kept).detach())
    return joined


__all__ = ["CodecState", "Stateful", "extend", "init_state", "name_states"]
