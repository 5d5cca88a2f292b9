"""Talker and code predictor read from a file into packed kernels, one block at a time.

Each block is read as F32, fed the typical inputs that the blocks before it gave, packed and
dropped, so that no more than one block is ever held twice.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.config import DecoderSpec, TalkerSpec
from engine.gguf.tensors import TensorFile, check_entries, load_module
from engine.models.code_predictor import CodePredictor
from engine.models.fused import fuse
from engine.models.kernels import Kernel, Plan, refine
from engine.models.layers import rope_table
from engine.models.talker import Talker, TextProjection

_POSITIONS = 32  # of the typical inputs
_CPU = torch.device("cpu")


class _Packer:
    """Reads modules of one file under a prefix, and packs their products."""

    def __init__(self, file: TensorFile, prefix: str, plan: Plan) -> None:
        self._file = file
        self._prefix = prefix
        self._plan = plan

    def read(self, module: nn.Module, path: str) -> None:
        """Fill a part of the model from the file, as F32."""
        load_module(module, self._file, self._prefix + path, device=_CPU, dtype=torch.float32)

    def rows(self, path: str) -> nn.Module:
        return self._file.rows(f"{self._prefix}{path}.weight")

    def linear(self, linear: nn.Linear, path: str, x: Tensor) -> tuple[Kernel, Tensor]:
        """Read and pack one layer; also what it makes of x."""
        self.read(linear, f"{path}.")
        kernel = self._pack((path,), linear.weight, linear.bias, x)
        return kernel, linear(x)

    def head(self, linear: nn.Module, path: str, x: Tensor) -> Kernel:
        """Read and pack a layer whose results are scores."""
        assert isinstance(linear, nn.Linear)
        return refine(self.linear(linear, path, x)[0])

    def stack(self, blocks: nn.ModuleList, path: str, spec: DecoderSpec, x: Tensor) -> Tensor:
        """Replace the blocks of a stack by packed ones; what the plain ones make of x [B, T, .]."""
        rope = rope_table(spec, torch.arange(x.shape[1]), torch.float32)
        for index, block in enumerate(blocks):
            here = f"{path}.{index}"
            self.read(block, f"{here}.")

            def pack(names: tuple[str, ...], weight: Tensor, x: Tensor, at: str = here) -> Kernel:
                return self._pack(tuple(f"{at}.{name}" for name in names), weight, None, x)

            blocks[index], x = fuse(block, spec, x, rope, pack)  # type: ignore[arg-type]
        return x

    def _pack(
        self, paths: tuple[str, ...], weight: Tensor, bias: Tensor | None, x: Tensor
    ) -> Kernel:
        stored = {self._file.type_of(f"{self._prefix}{path}.weight") for path in paths}
        return self._plan.pack(stored, weight, bias, x)


@torch.no_grad()
def load_packed(
    talker: Talker, predictor: CodePredictor, spec: TalkerSpec, file: TensorFile, plan: Plan
) -> None:
    """Fill the two modules, built on the meta device, with packed kernels.

    Raises:
        ModelFileError: as `load_module`.
    """
    for module, prefix in ((talker, "talker."), (predictor, "code_pred.")):
        check_entries(module.state_dict(), file, prefix)
    hidden = _pack_talker(talker, spec, _Packer(file, "talker.", plan))
    _pack_predictor(predictor, spec, _Packer(file, "code_pred.", plan), hidden)
    for module in (talker, predictor):
        module.requires_grad_(False)


def _pack_talker(talker: Talker, spec: TalkerSpec, packer: _Packer) -> Tensor:
    chance = torch.Generator().manual_seed(0)
    talker.text_embd = packer.rows("text_embd")
    packer.read(talker.codec_embd, "codec_embd.")
    packer.read(talker.output_norm, "output_norm.")
    text = talker.text_embd(torch.randint(spec.text_vocab, (1, _POSITIONS), generator=chance))
    codes = torch.randint(spec.predictor_vocab, (1, _POSITIONS), generator=chance)
    projected = _pack_projection(talker.text_proj, packer, text)
    x = packer.stack(talker.blk, "blk", spec.talker, projected + talker.codec_embd(codes))
    hidden: Tensor = talker.output_norm(x)
    talker.codec_head = packer.head(talker.codec_head, "codec_head", hidden)
    return hidden


def _pack_projection(projection: TextProjection, packer: _Packer, x: Tensor) -> Tensor:
    plain: nn.Module = projection.fc1
    assert isinstance(plain, nn.Linear)
    projection.fc1, x = packer.linear(plain, "text_proj.fc1", x)
    plain = projection.fc2
    assert isinstance(plain, nn.Linear)
    projection.fc2, x = packer.linear(plain, "text_proj.fc2", nn.functional.silu(x))
    return x


def _pack_predictor(
    predictor: CodePredictor, spec: TalkerSpec, packer: _Packer, hidden: Tensor
) -> None:
    chance = torch.Generator().manual_seed(1)
    packer.read(predictor.output_norm, "output_norm.")
    for index, table in enumerate(predictor.codec_embd):
        packer.read(table, f"codec_embd.{index}.")
    frames = hidden[0, -8:, None]
    codes = torch.randint(
        spec.predictor_vocab, (len(frames), len(predictor.codec_embd)), generator=chance
    )
    embedded = [table(codes[:, i]) for i, table in enumerate(predictor.codec_embd)]
    x = torch.cat((frames, torch.stack(embedded, dim=1)), dim=1)
    if isinstance(predictor.mtp_proj, nn.Linear):
        predictor.mtp_proj, x = packer.linear(predictor.mtp_proj, "mtp_proj", x)
    x = predictor.output_norm(packer.stack(predictor.blk, "blk", spec.predictor, x))
    for index, head in enumerate(predictor.lm_head):
        predictor.lm_head[index] = packer.head(head, f"lm_head.{index}", x[:, index + 1])


__all__ = ["load_packed"]
