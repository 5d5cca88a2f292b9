"""Keep training states with the recipe: `pack` writes them small, `unpack` lets training go on.

BF16, without the wave convolutions, which `vocoder.py` computes; the vocabulary goes with them.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from codec import Voice
from safetensors.torch import load_file, save_file
from talker import Model
from torch import Tensor, nn
from vocabulary import load

HERE = Path(__file__).parent / "checkpoints"
PARTS = {"talker": "model", "codec": "voice"}


def _computed(name: str) -> bool:
    return ".dec." in name


def pack(work: Path) -> None:
    shutil.copytree(work / "vocabulary", HERE / "vocabulary", dirs_exist_ok=True)
    for part, key in PARTS.items():
        state: dict[str, Tensor] = torch.load(work / f"{part}.pt")[key]
        kept = {n: v.to(torch.bfloat16).contiguous() for n, v in state.items() if not _computed(n)}
        save_file(kept, str(HERE / f"{part}.safetensors"), {"format": "pt"})


def unpack(work: Path) -> None:
    shutil.copytree(HERE / "vocabulary", work / "vocabulary", dirs_exist_ok=True)
    _, spec = load(work)
    modules: dict[str, nn.Module] = {"talker": Model(spec), "codec": Voice()}
    for part, key in PARTS.items():
        module = modules[part]
        kept = {n: v.float() for n, v in load_file(str(HERE / f"{part}.safetensors")).items()}
        missing, unknown = module.load_state_dict(kept, strict=False)
        assert not unknown and all(map(_computed, missing)), (missing, unknown)
        if isinstance(module, Voice):
            module.fixed.restore()
        torch.save({key: module.state_dict()}, work / f"{part}.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("pack", "unpack"))
    parser.add_argument("work", type=Path)
    args = parser.parse_args()
    (pack if args.step == "pack" else unpack)(args.work)


if __name__ == "__main__":
    main()
