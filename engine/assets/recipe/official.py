"""Step 8, the official package: does it speak the exported checkpoint with the same greedy codes?

    python official.py say WORK        # where `qwen-tts` is installed (tests/parity/README.md)
    python official.py compare WORK    # where the engine is

`say` keeps the codes, the sound and the margins between the two best scores; `compare` speaks the
same with F32 files and stops at the first margin too small to tell (the kind of hiss is drawn
among equals).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = (
    "The council voted on Tuesday to close the old bridge for repairs.",
    "Where did you leave the keys to the garden gate?",
    "Hello.",
)
SPEAKERS = ("robin", "heron", "wren")
NEAR_TIE = 1e-3


def say(work: Path) -> None:
    from tests.checkpoints import Case  # noqa: PLC0415
    from tests.parity import make_references  # noqa: PLC0415
    from tests.parity.cases import Say  # noqa: PLC0415

    make_references.MIN_MARGIN = 0.0  # trained scores may be close; `compare` looks at them
    load = make_references._load

    def without_encoder(root: Path) -> tuple[Any, list[Any]]:
        model, reports = load(root)
        wrong = [key for report in reports for keys in report.values() for key in keys]
        listening = [key.startswith("encoder.") or ".input_proj." in key for key in wrong]
        assert all(listening), wrong
        return model, []

    make_references._load = without_encoder
    official = make_references.Official(work / "checkpoint")
    case = Case(code_groups=6, codebook_size=704)
    for number, (text, speaker) in enumerate(zip(TEXTS, SPEAKERS, strict=True)):
        found = official.say(case, Say(text, speaker, "english", non_streaming=True, frames=120))
        kept = {name: found[name] for name in ("codes", "margins", "audio")}
        np.savez(work / f"official.{number}.npz", **kept)
        print(speaker, len(kept["codes"]), "frames")


def compare(work: Path) -> None:
    import engine  # noqa: PLC0415
    from tests.parity.adapter import Ours  # noqa: PLC0415

    files = engine.convert_checkpoint(work / "checkpoint", work / "gguf-f32", "f32")
    ours = Ours(files, terminal_mark=False, kernels="plain")
    for number, (text, speaker) in enumerate(zip(TEXTS, SPEAKERS, strict=True)):
        with np.load(work / f"official.{number}.npz") as file:
            codes, margins, audio = (file[name] for name in ("codes", "margins", "audio"))
        greedy = engine.Sampling(
            temperature=0.0, subtalker_temperature=0.0, repetition_penalty=1.0, seed=1
        )
        spoken = ours.speak(
            engine.SpeechRequest(text, voice=speaker, language="english", sampling=greedy)
        )
        close = np.argwhere(margins < NEAR_TIE)
        clear = int(close[0][0]) if len(close) else len(codes)
        assert np.array_equal(spoken.codes[:clear], codes[:clear]), (text, clear)
        message = f"{speaker}: {clear} of {len(codes)} frames equal, up to the first near-tie"
        if np.array_equal(spoken.codes, codes):
            message += f"; all are; sound within {np.abs(spoken.audio - audio).max():.1e}"
        print(message)
    ours.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("say", "compare"))
    parser.add_argument("work", type=Path)
    args = parser.parse_args()
    (say if args.step == "say" else compare)(args.work)


if __name__ == "__main__":
    main()
