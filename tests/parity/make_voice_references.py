"""Run the official encoders on the clips of `voice_cases.py` and store what they heard.

    python -m tests.parity.make_voice_references [case ...]

from the repository root, in the environment of `make_references.py` (see README.md). Everything
goes through `create_voice_clone_prompt`; the codebooks' search is wrapped only to measure how close
the second-best vector was. For each case the first seed is taken whose choices are all clear.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

# The 25 Hz tokenizer needs packages that nothing here uses.
_unused = types.ModuleType("qwen_tts.core.tokenizer_25hz.modeling_qwen3_tts_tokenizer_v1")
_unused.Qwen3TTSTokenizerV1Model = type("Qwen3TTSTokenizerV1Model", (), {})
sys.modules[_unused.__name__] = _unused

from qwen_tts import Qwen3TTSModel  # noqa: E402
from qwen_tts.core.models import Qwen3TTSForConditionalGeneration  # noqa: E402
from transformers.models.mimi.modeling_mimi import MimiEuclideanCodebook  # noqa: E402

from tests.checkpoints import Case, make_checkpoint  # noqa: E402
from tests.parity.cases import REFERENCES  # noqa: E402
from tests.parity.voice_cases import (  # noqa: E402
    CASES,
    LENGTHS,
    OTHER_RATES,
    RATE,
    clip,
    reference_path,
)

MIN_MARGIN = 2e-5  # of distances near 1, where F32 rounds by 1e-7
MIN_DISTINCT = 5  # codes in every row over all clips


class UnusableSeedError(Exception):
    """This seed gives a case that would test nothing; the next one is tried."""


class Official:
    """The official model on one checkpoint; `margin` is the smallest of the 24 kHz clips."""

    def __init__(self, root: Path) -> None:
        model = Qwen3TTSForConditionalGeneration.from_pretrained(
            str(root), dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.model = Qwen3TTSModel(model, None, model.generate_config)

    def hear(self, pcm: np.ndarray, rate: int) -> tuple[np.ndarray, np.ndarray]:
        """The vector F32[hidden] and the codes int16[groups, frames]."""
        voice = self.model.create_voice_clone_prompt((pcm, rate), "These words are not used.")[0]
        return voice.ref_spk_embedding.numpy(), voice.ref_code.numpy().T.astype(np.int16)


class Margins:
    """Looks over the shoulder of every codebook."""

    def __init__(self, used: int) -> None:
        self.found: list[float] = []
        self._used, self._calls = used, 0
        original = MimiEuclideanCodebook.quantize

        def measured(book: Any, rows: torch.Tensor) -> torch.Tensor:
            if self._calls < used:  # the file's further codebooks are computed and thrown away
                nearest = torch.cdist(rows.double(), book.embed.double()).topk(2, largest=False)
                self.found.append(float(nearest.values.diff(dim=1).min()))
            self._calls += 1
            return original(book, rows)

        self._original = original
        MimiEuclideanCodebook.quantize = measured

    def next_clip(self) -> None:
        self._calls = 0

    def stop(self) -> None:
        MimiEuclideanCodebook.quantize = self._original


def _reference(case: Case) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        official = Official(make_checkpoint(case, Path(folder)))
    arrays: dict[str, np.ndarray] = {"seed": np.array(case.seed)}
    margins = Margins(case.code_groups)
    try:
        for samples in LENGTHS:
            margins.next_clip()
            vector, codes = official.hear(clip(samples), RATE)
            arrays |= {f"{samples}.vector": vector, f"{samples}.codes": codes}
    finally:
        margins.stop()
    for rate, samples in OTHER_RATES:
        vector, codes = official.hear(clip(samples, rate), rate)
        arrays |= {f"{rate}.vector": vector, f"{rate}.codes": codes}
    arrays["margin"] = np.array(min(margins.found))
    _check(arrays)
    return arrays


def _check(arrays: dict[str, np.ndarray]) -> None:
    if arrays["margin"] < MIN_MARGIN:
        raise UnusableSeedError(f"margin {float(arrays['margin']):.1e}")
    distinct = _distinct(arrays)
    if min(distinct) < MIN_DISTINCT:
        raise UnusableSeedError(f"the codes hardly vary: {distinct}")


def _distinct(arrays: dict[str, np.ndarray]) -> list[int]:
    codes = np.concatenate([arrays[f"{samples}.codes"] for samples in LENGTHS], axis=1)
    return [len(np.unique(row)) for row in codes]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for case in CASES:
        for seed in itertools.count() if not names or case.name in names else ():
            try:
                arrays = _reference(replace(case, seed=seed))
            except UnusableSeedError as why:
                print(f"{case.name}: seed {seed} not used: {why}", flush=True)
                continue
            REFERENCES.mkdir(exist_ok=True)
            np.savez_compressed(reference_path(case), **arrays)
            found = {
                "case": case.name,
                "seed": seed,
                "frames": [arrays[f"{samples}.codes"].shape[1] for samples in LENGTHS],
                "distinct codes per row": _distinct(arrays),
                "smallest margin": float(arrays["margin"]),
                "bytes": reference_path(case).stat().st_size,
            }
            print(json.dumps(found), flush=True)
            break


if __name__ == "__main__":
    main(sys.argv[1:])
