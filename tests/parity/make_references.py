"""Run the official package on the cases and store what it computed.

    python -m tests.parity.make_references [case ...]

from the repository root, in an environment of its own (see README.md). Everything goes through
the package's public calls; its inner `generate` calls are wrapped only to look at inputs and
scores. For each case the first seed is taken whose greedy choices are all clear: a margin below
`MIN_MARGIN` between the two best candidates anywhere, an early eos (or none, where one is due),
silence or clipping make the script try the next seed.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

# The 25 Hz tokenizer needs packages that nothing here uses.
_unused = types.ModuleType("qwen_tts.core.tokenizer_25hz.modeling_qwen3_tts_tokenizer_v1")
_unused.Qwen3TTSTokenizerV1Model = type("Qwen3TTSTokenizerV1Model", (), {})
sys.modules[_unused.__name__] = _unused

from qwen_tts import Qwen3TTSModel, VoiceClonePromptItem  # noqa: E402
from qwen_tts.core.models import Qwen3TTSForConditionalGeneration  # noqa: E402
from transformers import Qwen2Tokenizer, Qwen2TokenizerFast  # noqa: E402

from tests.checkpoints import Case, make_checkpoint  # noqa: E402
from tests.parity.cases import BY_NAME, REFERENCES, Parity, Say, speaker_vector  # noqa: E402
from tests.parity.make_voice_references import MIN_MARGIN as MIN_VOICE_MARGIN  # noqa: E402
from tests.parity.make_voice_references import Margins  # noqa: E402
from tests.parity.voice_cases import RATE, clip  # noqa: E402

MIN_MARGIN = 1e-3
MIN_FRAMES = 48
AUDIO_HEAD, AUDIO_TAIL = 2, 10  # frames of sound that are stored


class UnusableSeedError(Exception):
    """This seed gives a case that would test nothing; the next one is tried."""


class Official:
    """The official model on one checkpoint, with its inner calls recorded."""

    def __init__(self, root: Path) -> None:
        model, info = _load(root)
        for loaded in info:
            assert not any(loaded.values()), f"keys differ from the official model: {loaded}"
        # The plain slow tokenizer: loading by AutoProcessor may change the split pattern.
        self.tokenizer = Qwen2Tokenizer.from_pretrained(str(root))
        self.fast = Qwen2TokenizerFast.from_pretrained(str(root))
        self.model = Qwen3TTSModel(model, self._encode, model.generate_config)
        self.ids: list[np.ndarray] = []
        self.talker: Any = None
        self.talker_inputs: dict[str, Any] = {}
        self.predictor_scores: list[torch.Tensor] = []
        self.reference = np.zeros((0, 0))
        self._record(model.talker, self._on_talker)
        self._record(model.talker.code_predictor, self._on_predictor)

    def say(self, case: Case, say: Say) -> dict[str, np.ndarray]:
        self.ids, self.predictor_scores = [], []
        self.reference = np.zeros((case.code_groups, 0))
        audio = self._generate(case, say)
        codes = self._codes(case)
        margins = self._margins(codes)
        return {
            "ids": self.ids[0],
            "instruction_ids": self._second_ids(say.instructions),
            "reference_ids": self._second_ids(say.transcript),
            "reference_codes": self.reference.astype(np.int16),
            "embeddings": self.talker_inputs["inputs_embeds"][0].numpy(),
            "overlay": self.talker_inputs["trailing_text_hidden"][0].numpy(),
            "pad": self.talker_inputs["tts_pad_embed"][0, 0].numpy(),
            "first_logits": self.talker.logits[0][0].numpy(),
            "codes": codes.astype(np.int16),
            "margins": margins.astype(np.float32),
            "audio": audio,
        }

    def _encode(self, text: str, **options: Any) -> Any:
        encoded = self.tokenizer(text, **options)
        ids = encoded["input_ids"].numpy().ravel()
        assert ids.tolist() == self.fast(text)["input_ids"], "slow and fast tokenizer differ"
        self.ids.append(ids)
        return encoded

    def _second_ids(self, text: str | None) -> np.ndarray:
        given = text is not None and len(self.ids) > 1
        return self.ids[1] if given else np.zeros(0, np.int64)

    def _generate(self, case: Case, say: Say) -> np.ndarray:
        options: dict[str, Any] = {
            "text": say.text,
            "language": say.language,
            "do_sample": False,
            "subtalker_dosample": False,
            "repetition_penalty": say.repetition_penalty,
            "max_new_tokens": say.frames + 1,  # the last c0 is never expanded to a frame
        }
        if say.non_streaming is not None:
            options["non_streaming_mode"] = say.non_streaming
        if case.task == "base":
            voice = self._voice(case, say)
            audio, _ = self.model.generate_voice_clone(voice_clone_prompt=[voice], **options)
        elif case.task == "voice_design":
            audio, _ = self.model.generate_voice_design(instruct=say.instructions, **options)
        else:
            options |= {"speaker": say.speaker, "instruct": say.instructions}
            audio, _ = self.model.generate_custom_voice(**options)
        return audio[0]

    def _voice(self, case: Case, say: Say) -> Any:
        if say.clip is None:
            vector = torch.from_numpy(speaker_vector(case))
            return VoiceClonePromptItem(None, vector, say.voiced, icl_mode=False)
        margins = Margins(case.code_groups)
        try:
            voice = self.model.create_voice_clone_prompt(
                (clip(say.clip), RATE), say.transcript, say.transcript is None
            )[0]
        finally:
            margins.stop()
        if min(margins.found) < MIN_VOICE_MARGIN:
            raise UnusableSeedError(f"margin of the clip's codes {min(margins.found):.1e}")
        if voice.ref_code is not None:
            self.reference = voice.ref_code.numpy().T
        return voice

    def _codes(self, case: Case) -> np.ndarray:
        frames = [hidden[-1] for hidden in self.talker.hidden_states if hidden[-1] is not None]
        codes = torch.cat(frames).numpy()
        ends = np.flatnonzero(codes[:, 0] == case.eos)
        return codes[: ends[0]] if len(ends) else codes

    def _margins(self, codes: np.ndarray) -> np.ndarray:
        """F32[steps, code groups]; the step that chose eos has its own row, then inf."""
        steps = len(self.talker.scores)
        margins = np.full((steps, codes.shape[1]), np.inf)
        margins[:, 0] = _gaps(torch.cat(self.talker.scores))
        predicted = _gaps(torch.cat(self.predictor_scores)).reshape(-1, codes.shape[1] - 1)
        margins[: len(codes), 1:] = predicted[: len(codes)]
        return margins[: len(codes) + 1]

    def _on_talker(self, inputs: dict[str, Any], result: Any) -> None:
        self.talker_inputs, self.talker = inputs, result

    def _on_predictor(self, _: dict[str, Any], result: Any) -> None:
        self.predictor_scores.extend(result.scores)
        _check_margin(float(_gaps(torch.cat(result.scores)).min()))  # early: a frame is slow

    @staticmethod
    def _record(module: Any, seen: Any) -> None:
        generate = module.generate

        def recorded(**inputs: Any) -> Any:
            result = generate(**inputs, output_scores=True, output_logits=True)
            seen(inputs, result)
            return result

        module.generate = recorded


def _load(root: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The official model, and what each of its two loads found missing or unexpected."""
    from transformers import PreTrainedModel

    reports: list[dict[str, Any]] = []
    original = PreTrainedModel.from_pretrained.__func__

    def reporting(cls: Any, *args: Any, **options: Any) -> Any:
        model, report = original(cls, *args, **options, output_loading_info=True)
        reports.append(report)
        return model

    PreTrainedModel.from_pretrained = classmethod(reporting)
    try:
        model = Qwen3TTSForConditionalGeneration.from_pretrained(
            str(root), dtype=torch.float32, attn_implementation="eager"
        )
    finally:
        PreTrainedModel.from_pretrained = classmethod(original)
    assert len(reports) == 2
    return model.eval(), reports


def _gaps(scores: torch.Tensor) -> np.ndarray:
    best = scores.topk(2, dim=-1).values
    return (best[:, 0] - best[:, 1]).numpy()


def _check_margin(margin: float) -> None:
    if margin < MIN_MARGIN:
        raise UnusableSeedError(f"margin {margin:.1e}")


def _check(parity: Parity, said: dict[str, np.ndarray], say: Say) -> None:
    frames, audio = len(said["codes"]), said["audio"]
    _check_margin(float(said["margins"].min()))
    if parity.stops and not 5 <= frames < say.frames:
        raise UnusableSeedError(f"{frames} frames: should end by itself, soon")
    if not parity.stops and frames < max(MIN_FRAMES, say.frames):
        raise UnusableSeedError(f"eos after {frames} frames")
    if len(np.unique(said["codes"][:, 0])) < 5:
        raise UnusableSeedError("the codes hardly vary")
    level, clipped = float(np.sqrt(np.mean(audio**2))), float(np.mean(np.abs(audio) >= 1.0))
    if not 0.02 < level < 0.5 or clipped > 0.02:
        raise UnusableSeedError(f"level {level:.3f}, clipped {clipped:.3f}")


def _reference(parity: Parity) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        root = make_checkpoint(parity.case, Path(folder), dtype=parity.dtype, shards=parity.shards)
        official = Official(root)
        arrays: dict[str, np.ndarray] = {"seed": np.array(parity.case.seed)}
        for i, say in enumerate(parity.says):
            said = official.say(parity.case, say)
            _check(parity, said, say)
            _trim_audio(parity.case, said, keep=i == 0)
            arrays |= {f"{i}.{key}": value for key, value in said.items()}
    return arrays


def _trim_audio(case: Case, said: dict[str, np.ndarray], *, keep: bool) -> None:
    audio, per_frame = said.pop("audio"), case.codec.samples_per_frame
    assert len(audio) == len(said["codes"]) * per_frame
    if keep:
        said["audio_head"] = audio[: AUDIO_HEAD * per_frame]
        said["audio_tail"] = audio[-AUDIO_TAIL * per_frame :]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)  # tiny matrices: a second thread only waits
    torch.set_grad_enabled(False)
    REFERENCES.mkdir(exist_ok=True)
    for name in names or BY_NAME:
        for seed in itertools.count():
            parity = BY_NAME[name].seeded(seed)
            try:
                arrays = _reference(parity)
            except UnusableSeedError as why:
                print(f"{name}: seed {seed} not used: {why}", flush=True)
                continue
            np.savez_compressed(parity.path, **arrays)
            print(json.dumps(_summary(name, arrays)), flush=True)
            break


def _summary(name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    codes = [value for key, value in arrays.items() if key.endswith(".codes")]
    margins = [value.min() for key, value in arrays.items() if key.endswith(".margins")]
    return {
        "case": name,
        "seed": int(arrays["seed"]),
        "frames": [len(rows) for rows in codes],
        "distinct c0": [len(np.unique(rows[:, 0])) for rows in codes],
        "smallest margin": round(float(min(margins)), 5),
        "bytes": BY_NAME[name].path.stat().st_size,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
