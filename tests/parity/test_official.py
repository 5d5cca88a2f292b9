"""The engine against the official package, on tiny random checkpoints (see README.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import engine
from tests.checkpoints import Case, make_checkpoint
from tests.parity.adapter import Ours, Prepared, Spoken
from tests.parity.cases import CASES, Parity, Say, speaker_vector
from tests.parity.voice_cases import clip
from tests.waiting import PATIENCE_S

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Loaded:
    """A case's model in our engine, and the stored results of the official package."""

    parity: Parity
    stored: dict[str, np.ndarray]
    ours: Ours

    def expected(self, index: int) -> dict[str, np.ndarray]:
        prefix = f"{index}."
        return {k.removeprefix(prefix): v for k, v in self.stored.items() if k.startswith(prefix)}


@pytest.fixture(scope="session", params=CASES, ids=lambda parity: parity.name)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    with np.load(request.param.path) as file:
        stored = dict(file)
    parity = request.param.seeded(int(stored["seed"]))
    root = tmp_path_factory.mktemp(parity.name)
    checkpoint = make_checkpoint(
        parity.case, root / "checkpoint", dtype=parity.dtype, shards=parity.shards
    )
    files = engine.convert_checkpoint(checkpoint, root / "gguf", "f32")
    ours = Ours(files, terminal_mark=False)
    yield Loaded(parity, stored, ours)
    ours.close()


def request_of(case: Case, say: Say) -> engine.SpeechRequest:
    """The same request in our terms: greedy, as many frames at most."""
    sampling = engine.Sampling(
        temperature=0.0,
        repetition_penalty=say.repetition_penalty,
        max_new_tokens=say.frames,
        seed=1,
    )
    return engine.SpeechRequest(
        say.text,
        voice=say.speaker,
        language=say.language,
        instructions=say.instructions,
        speaker_embedding=speaker_vector(case) if say.voiced else None,
        reference=None if say.clip is None else engine.Clip.of(clip(say.clip)),
        reference_text=say.transcript,
        ref_tail_silence=0.0,
        non_streaming_mode=say.non_streaming,
        sampling=sampling,
    )


def prepared(loaded: Loaded) -> list[tuple[Prepared, dict[str, np.ndarray]]]:
    case = loaded.parity.case
    return [
        (loaded.ours.prepare(request_of(case, say)), loaded.expected(index))
        for index, say in enumerate(loaded.parity.says)
    ]


def test_prompt_ids_are_the_official_tokenizers(loaded: Loaded) -> None:
    for ours, official in prepared(loaded):
        assert ours.ids.tolist() == official["ids"].tolist()
        assert ours.instruction_ids.tolist() == official["instruction_ids"].tolist()


def test_prompt_embeddings_and_overlay_are_the_official_ones(loaded: Loaded) -> None:
    for ours, official in prepared(loaded):
        close(ours.embeddings, official["embeddings"])
        close(ours.pad, official["pad"])
        close(
            padded(ours.overlay, ours.pad, len(official["overlay"])),
            official["overlay"],
        )


def test_first_logits_are_the_official_ones(loaded: Loaded) -> None:
    for ours, official in prepared(loaded):
        close(ours.first_logits, official["first_logits"])


def test_greedy_codes_and_sound_are_the_official_ones(loaded: Loaded) -> None:
    for index, say in enumerate(loaded.parity.says):
        official = loaded.expected(index)
        spoken = loaded.ours.speak(request_of(loaded.parity.case, say))
        same_codes(spoken.codes, official["codes"], official["margins"])
        assert spoken.reason == ("stop" if loaded.parity.stops else "length")
        check_sound(spoken, official, loaded.parity.case)


def test_a_clip_becomes_the_official_reference(loaded: Loaded) -> None:
    for say, (ours, official) in zip(loaded.parity.says, prepared(loaded), strict=True):
        if say.clip is not None:
            assert ours.reference_ids.tolist() == official["reference_ids"][3:-2].tolist()
            assert ours.reference_codes.tolist() == official["reference_codes"].tolist()


def test_saved_voices_and_inline_clips_sound_alike_streamed_and_whole(loaded: Loaded) -> None:
    request = request_of(loaded.parity.case, loaded.parity.says[0])
    if request.reference is None:
        return
    pending = loaded.ours.engine.extract_voice(
        request.reference, transcript=request.reference_text, ref_tail_silence=0.0
    )
    voice = pending.result(PATIENCE_S)
    saved = replace(request, voice=voice, reference=None, reference_text=None)
    inline, streamed = loaded.ours.speak(request), loaded.ours.speak(saved)
    utterance = loaded.ours.engine.speak(saved, streaming=False)
    whole = np.concatenate([item.pcm for item in utterance if isinstance(item, engine.Audio)])
    assert streamed.codes.tolist() == inline.codes.tolist()
    close(streamed.audio, inline.audio)
    close(whole, inline.audio)


def test_stored_cases_are_long_and_clear_enough(loaded: Loaded) -> None:
    for index, _ in enumerate(loaded.parity.says):
        official = loaded.expected(index)
        assert len(official["codes"]) >= (5 if loaded.parity.stops else 48)
        assert official["margins"].min() >= 1e-3


def test_instructions_are_used_or_dropped_with_a_warning_like_the_official_ones(
    loaded: Loaded,
) -> None:
    case, says = loaded.parity.case, loaded.parity.says
    for index, say in enumerate(says):
        drops = say.instructions is not None and case.size == "0b6"
        spoken = loaded.ours.engine.submit(request_of(case, say))
        spoken.cancel()
        assert any("`instructions`" in warning for warning in spoken.warnings) == drops
        used = len(loaded.expected(index)["instruction_ids"]) > 0
        assert used == (say.instructions is not None and not drops)


def padded(overlay: np.ndarray, pad: np.ndarray, length: int) -> np.ndarray:
    # In the whole-text layout the official overlay is the pad vector once; ours is empty then.
    return np.concatenate((overlay, np.tile(pad, (max(0, length - len(overlay)), 1))))


def same_codes(ours: np.ndarray, official: np.ndarray, margins: np.ndarray) -> None:
    count = min(len(ours), len(official))
    differing = np.argwhere(ours[:count] != official[:count])
    if len(differing):
        frame, group = differing[0]
        margin = margins[frame, group]
        pytest.fail(f"frame {frame}, code group {group} differs (margin there {margin:.2g})")
    assert len(ours) == len(official)


def check_sound(spoken: Spoken, official: dict[str, np.ndarray], case: Case) -> None:
    assert len(spoken.audio) == len(spoken.codes) * case.codec.samples_per_frame
    if "audio_head" in official:
        head, tail = official["audio_head"], official["audio_tail"]
        close(spoken.audio[: len(head)], head)
        close(spoken.audio[-len(tail) :], tail)


def close(ours: np.ndarray, official: np.ndarray) -> None:
    assert ours.shape == official.shape
    np.testing.assert_allclose(ours, official, rtol=0, atol=TOLERANCE)
