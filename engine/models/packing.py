"""Talker and code predictor read from a file into packed kernels, one block at a time.

Each block is read as F32, fed the typical inputs that the blocks before it gave, packed and
dropped, so that no more than one block is ever held twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engine.config import DecoderSpec, TalkerSpec
from engine.gguf.tensors import TensorFile, check_entries, load_module
from engine.models.code_predictor import CodePredictor
from engine.models.fused import PRODUCTS, fuse
from engine.models.kernels import Kernel, Plan, refine
from engine.models.layers import Stack, rope_table
from engine.models.talker import Talker, TextProjection

if TYPE_CHECKING:
    from engine.native.predictor import NativeFrame
    from engine.native.team import Team

LINEARS = tuple(name for names in PRODUCTS.values() for name in names)
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

    def stack(
        self, blocks: nn.Module, path: str, spec: DecoderSpec, x: Tensor
    ) -> tuple[nn.Module, Tensor]:
        """Pack the blocks of a stack; also what the plain ones make of x [B, T, hidden]."""
        assert isinstance(blocks, Stack)
        if (team := self._plan.team) and self._native(blocks, path, spec):
            return self._native_stack(blocks, path, spec, team), x
        rope = rope_table(spec, torch.arange(x.shape[1]), torch.float32)
        for index, block in enumerate(blocks):
            here = f"{path}.{index}"
            self.read(block, f"{here}.")

            def pack(names: tuple[str, ...], weight: Tensor, x: Tensor, at: str = here) -> Kernel:
                return self._pack(tuple(f"{at}.{name}" for name in names), weight, None, x)

            blocks[index], x = fuse(block, spec, x, rope, pack)  # type: ignore[arg-type]
        return blocks, x

    def _native(self, blocks: Stack, path: str, spec: DecoderSpec) -> bool:
        """Every product of the stack can be native."""
        products = (f"{path}.{i}.{name}" for i in range(len(blocks)) for name in LINEARS)
        kinds = {self._plan.kind(self._stored((each,))) for each in products}
        return kinds == {"native"} and whole_blocks(spec)

    def _native_stack(self, blocks: Stack, path: str, spec: DecoderSpec, team: Team) -> nn.Module:
        from engine.native.stack import NativeStack, pack_layer  # noqa: PLC0415

        layers = []
        for index, block in enumerate(blocks):
            here = f"{path}.{index}"
            self.read(block, f"{here}.")
            bits = {
                product: self._plan.bits(self._stored(f"{here}.{name}" for name in names))
                for product, names in PRODUCTS.items()
            }
            layers.append(pack_layer(block, bits))  # type: ignore[arg-type]
            block.to("meta")
        return NativeStack(spec, layers, team)

    def frame(self, predictor: CodePredictor) -> NativeFrame | None:
        """All of the predictor's steps in one call, if all its products are native."""
        if (team := self._plan.team) is None:
            return None
        from engine.native.predictor import native_frame  # noqa: PLC0415

        tables = [table.get_parameter("weight") for table in predictor.codec_embd]
        norm = predictor.output_norm.weight
        return native_frame(
            predictor.blk, list(predictor.lm_head), tables, norm, predictor.mtp_proj, team=team
        )

    def _pack(
        self, paths: tuple[str, ...], weight: Tensor, bias: Tensor | None, x: Tensor
    ) -> Kernel:
        return self._plan.pack(self._stored(paths), weight, bias, x)

    def _stored(self, paths: Iterable[str]) -> set[str]:
        return {self._file.type_of(f"{self._prefix}{path}.weight") for path in paths}


def whole_blocks(spec: DecoderSpec) -> bool:
    """The widths of a stack can be cut into blocks of 32."""
    return not any(width % 32 for width in (spec.hidden, spec.ffn, spec.head_dim))


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
    given = projected + talker.codec_embd(codes)
    talker.blk, x = packer.stack(talker.blk, "blk", spec.talker, given)
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
    predictor.blk, x = packer.stack(predictor.blk, "blk", spec.predictor, x)
    x = predictor.output_norm(x)
    for index, head in enumerate(predictor.lm_head):
        predictor.lm_head[index] = packer.head(head, f"lm_head.{index}", x[:, index + 1])
    predictor.fast = packer.frame(predictor)


__all__ = ["load_packed"]
