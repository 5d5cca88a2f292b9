"""What is compared with the official package: checkpoints and what they are asked to say.

`references/<case>.npz` holds the official results (see README.md). A case's seed there overrides
the one here: the script takes the first seed whose margins are wide enough.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import Case, Codec, DType, Stack

REFERENCES = Path(__file__).parent / "references"
ENDS_ITSELF = 60  # frames: a case that stops by eos has to do so before


@dataclass(frozen=True)
class Say:
    """One utterance, greedy. `frames` is the ceiling; `voiced` gives a Base model a vector.

    `clip` is the length of a reference clip in samples, cloned with or without its `transcript`.
    """

    text: str
    speaker: str | None = None
    language: str = "auto"
    instructions: str | None = None
    non_streaming: bool | None = None
    voiced: bool = False
    clip: int | None = None
    transcript: str | None = None
    repetition_penalty: float = 1.0
    frames: int = 52


@dataclass(frozen=True)
class Parity:
    """A checkpoint and its utterances; `stops` says that eos ends them."""

    case: Case
    says: tuple[Say, ...]
    dtype: DType = "F32"
    shards: int = 1
    stops: bool = False

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def path(self) -> Path:
        return REFERENCES / f"{self.name}.npz"

    def seeded(self, seed: int) -> Parity:
        return replace(self, case=replace(self.case, seed=seed))


def speaker_vector(case: Case) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The voice given to a Base model: F32[talker hidden]."""
    return np.random.RandomState(case.seed + 7).standard_normal(case.talker.hidden).astype("f4")


GERMAN = unicodedata.normalize("NFD", "Fünf große Bären hören süße Töne, oder?")
SMALL_WINDOW = Codec(window=8)

CASES: tuple[Parity, ...] = (
    Parity(
        Case(
            name="custom_small_drops_instructions",
            size="0b6",
            talker=Stack(hidden=64, ffn=96, layers=2, heads=4, kv_heads=2, head_dim=16),
            predictor=Stack(hidden=64, ffn=80, layers=2, heads=4, kv_heads=2, head_dim=16),
            codec=SMALL_WINDOW,
            code_groups=16,
            head_gain=8.0,
        ),
        (
            Say("Hello there, how are you?", "vivian", "auto", instructions="Whisper slowly."),
            Say("It's 25 below; they'll stay.", "Ryan", "English", non_streaming=False),
        ),
    ),
    Parity(
        Case(
            name="custom_large_uses_instructions",
            talker=Stack(hidden=96, ffn=128, layers=3, heads=6, kv_heads=2, head_dim=16),
            predictor=Stack(hidden=48, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=12),
            codec=Codec(
                codebook_dim=24,
                latent_dim=40,
                decoder_dim=48,
                transformer=Stack(hidden=32, ffn=48, layers=3, heads=4, kv_heads=2, head_dim=8),
                window=5,
            ),
        ),
        (
            Say("The weather is fine.", "ryan", "english", instructions="In a warm, low voice."),
            Say("你好，世界。今天 12 点见！", "eric"),
            Say("我们去长城吧", "dylan", "chinese", instructions="开心地说", non_streaming=False),
            Say("Guten Tag!", "eric", "german"),
        ),
    ),
    Parity(
        Case(
            name="custom_split_role",
            talker=Stack(hidden=48, ffn=96, layers=4, heads=3, kv_heads=3, head_dim=16),
            predictor=Stack(hidden=32, ffn=48, layers=3, heads=2, kv_heads=2, head_dim=16),
            codec=Codec(upsample_rates=(6, 5, 4, 4)),
            code_groups=9,
            head_gain=6.0,
            codebook_size=128,
            single_token_role=False,
        ),
        (
            Say("こんにちは、世界。カタカナも", "vivian", "japanese", repetition_penalty=1.05),
            Say(GERMAN, "ryan", "german", repetition_penalty=1.05),
        ),
    ),
    Parity(
        Case(
            name="voice_design",
            task="voice_design",
            talker=Stack(hidden=64, ffn=128, layers=2, heads=8, kv_heads=4, head_dim=8),
            predictor=Stack(hidden=64, ffn=64, layers=4, heads=8, kv_heads=8, head_dim=8),
            text_hidden=64,
        ),
        (
            Say("नमस्ते, आप कैसे हैं?", instructions="An old sailor, hoarse and kind."),
            Say("مرحبا بكم في البيت", language="english", instructions="Fröhlich, 20 Jahre alt."),
            Say("One, two: three!", instructions="A child.", non_streaming=False),
        ),
    ),
    Parity(
        Case(
            name="base_with_vector",
            task="base",
            talker=Stack(hidden=80, ffn=96, layers=2, heads=5, kv_heads=1, head_dim=16),
            predictor=Stack(hidden=40, ffn=64, layers=2, heads=5, kv_heads=1, head_dim=8),
            codec=SMALL_WINDOW,
            code_groups=9,
            head_gain=6.0,
        ),
        (
            Say("Cats 🐈‍⬛ and dogs 🐕, 3½ of them…", language="english", voiced=True),
            Say("∑ x² ≤ 10⁻³ ⇒ ∀ε>0: π≈3.14159", voiced=True, non_streaming=True),
        ),
    ),
    Parity(
        Case(
            name="base_without_voice",
            task="base",
            size="0b6",
            talker=Stack(hidden=32, ffn=64, layers=2, heads=2, kv_heads=1, head_dim=16),
            predictor=Stack(hidden=32, ffn=64, layers=2, heads=2, kv_heads=1, head_dim=16),
            text_hidden=32,
            single_token_role=False,
        ),
        (
            Say("Nobody in particular says this.", language="french"),
            Say("A", repetition_penalty=1.05),
        ),
    ),
    Parity(
        Case(
            name="custom_bfloat16_shards",
            speakers=("serena", "sohee", "uncle_fu"),
            talker=Stack(hidden=64, ffn=96, layers=2, heads=4, kv_heads=1, head_dim=16),
            predictor=Stack(hidden=96, ffn=64, layers=2, heads=6, kv_heads=3, head_dim=16),
            codec=Codec(upsample_rates=(4, 4, 5, 3), upsampling_ratios=(2, 2)),
        ),
        (
            Say("\n\nA line, then\r\n  another.\tTabs  too ", "sohee", "korean"),
            Say("Ωmega 你好 مر नम こ ü", "uncle_fu", repetition_penalty=1.05, non_streaming=False),
        ),
        dtype="BF16",
        shards=3,
    ),
    Parity(
        Case(
            name="custom_stops",
            talker=Stack(hidden=64, ffn=96, layers=2, heads=4, kv_heads=2, head_dim=16),
            codebook_size=32,
            eos_gain=1.0,
        ),
        (
            Say("Short.", "vivian", frames=ENDS_ITSELF),
            Say("It ends by itself.", "ryan", "english", non_streaming=False, frames=ENDS_ITSELF),
        ),
        stops=True,
    ),
    Parity(
        Case(
            name="clone_incremental",
            task="base",
            talker=Stack(hidden=64, ffn=96, layers=2, heads=4, kv_heads=2, head_dim=16),
            predictor=Stack(hidden=48, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=12),
            codec=SMALL_WINDOW,
            head_gain=8.0,
        ),
        (
            Say("Short.", clip=48_000, transcript="The clip has said more.", language="english"),
            Say("This text is longer than the clip, by far.", clip=9_600, transcript="Oh, Ü!"),
            Say("Only the vector of a clip.", clip=24_000, language="german"),
        ),
    ),
    Parity(
        Case(
            name="clone_whole_text",
            task="base",
            size="0b6",
            talker=Stack(hidden=48, ffn=96, layers=3, heads=3, kv_heads=3, head_dim=16),
            predictor=Stack(hidden=48, ffn=64, layers=2, heads=3, kv_heads=3, head_dim=16),
            code_groups=9,
            codebook_size=128,
            head_gain=8.0,
        ),
        (
            Say("Said whole.", clip=75_288, transcript="你好，世界。", non_streaming=True),
            Say("Also the vector.", clip=38_401, non_streaming=True, language="french"),
        ),
    ),
    Parity(
        Case(
            name="clone_split_role",
            task="base",
            talker=Stack(hidden=48, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=12),
            predictor=Stack(hidden=32, ffn=48, layers=2, heads=2, kv_heads=2, head_dim=16),
            codec=Codec(upsample_rates=(6, 5, 4, 4), encoder_hidden=48, encoder_filters=8),
            code_groups=16,
            codebook_size=256,
            head_gain=8.0,
            single_token_role=False,
        ),
        (
            Say("こんにちは", clip=57_001, transcript="A line.\n\nTwo lines of it"),
            Say(
                "Eins, zwei.",
                language="german",
                clip=30_000,
                transcript="Drei.",
                non_streaming=True,
            ),
        ),
    ),
)
BY_NAME = {parity.name: parity for parity in CASES}
