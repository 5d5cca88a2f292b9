from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.config import EngineConfig, ModelFiles
from engine.gguf.spec import read_model_spec
from engine.tts.load import load_runner
from engine.tts.prompt import PromptPlan, build_prompt, codec_tags


@pytest.fixture(scope="module")
def model(base: ModelFiles):
    spec = read_model_spec(base.talker, base.codec)
    runner = load_runner(
        spec, EngineConfig(slots=1, kv_positions=64, device="cpu", kernels="plain")
    )
    return spec.talker, runner._generator


def plan(spec, **changes) -> PromptPlan:
    fields = {
        "role": (1, 2, 3),
        "text": (10, 11, 12, 13),
        "instructions": (),
        "tags": codec_tags(spec, None),
        "speaker_row": None,
        "speaker_vector": None,
        "reference_text": (),
        "reference_codes": None,
        "whole_text": True,
    }
    return PromptPlan(**{**fields, **changes})


def build(model, the_plan):
    spec, generator = model
    with torch.inference_mode():
        return build_prompt(the_plan, generator.talker, generator.predictor, spec)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "incremental"])
@pytest.mark.parametrize("text", [(10,), (10, 11, 12, 13)], ids=["one-id", "four-ids"])
@pytest.mark.parametrize("frames", [0, 2, 30], ids=["no-reference", "short", "long"])
@pytest.mark.parametrize("voice", ["none", "row", "vector"])
def test_a_plan_knows_the_length_of_its_prompt(model, whole, text, frames, voice):
    spec, _ = model
    codes = np.random.RandomState(0).randint(0, 64, (frames, spec.code_groups)) if frames else None
    the_plan = plan(
        spec,
        text=text,
        whole_text=whole,
        instructions=(5, 6),
        tags=codec_tags(spec, spec.languages["english"]),
        speaker_row=70 if voice == "row" else None,
        speaker_vector=np.ones(spec.talker.hidden, np.float32) if voice == "vector" else None,
        reference_text=(20, 21) if frames else (),
        reference_codes=codes,
    )
    assert len(build(model, the_plan).embeds) == the_plan.positions


def test_the_whole_text_layout_leaves_only_padding_as_overlay(model):
    prompt = build(model, plan(model[0]))
    assert len(prompt.overlay) == 0
    assert torch.equal(prompt.overlay_after(0), prompt.pad)


def test_the_incremental_layout_overlays_the_rest_of_the_text_then_eos_then_padding(model):
    spec, generator = model
    prompt = build(model, plan(spec, whole_text=False))
    with torch.inference_mode():
        rest = generator.talker.embed_text(torch.tensor([11, 12, 13, spec.text_tokens.tts_eos]))
    torch.testing.assert_close(prompt.overlay, rest)
    torch.testing.assert_close(prompt.overlay_after(3), rest[3])
    assert torch.equal(prompt.overlay_after(4), prompt.pad)


def test_tags_name_the_language_or_leave_it_to_the_model(model):
    spec, _ = model
    ids = spec.codec_tokens
    assert codec_tags(spec, None) == (ids.nothink, ids.think_bos, ids.think_eos)
    assert codec_tags(spec, 99) == (ids.think, ids.think_bos, 99, ids.think_eos)


def test_a_speaker_vector_stands_where_a_speaker_row_would(model):
    spec, generator = model
    row = generator.talker.codec_embd.weight[70].detach()
    named = build(model, plan(spec, speaker_row=70))
    given = build(model, plan(spec, speaker_vector=row.numpy()))
    assert torch.equal(named.embeds, given.embeds)


def test_a_longer_reference_text_than_its_codes_becomes_the_overlay(model):
    spec, _ = model
    codes = np.zeros((2, spec.code_groups), np.int64)
    the_plan = plan(spec, whole_text=False, reference_text=(20, 21, 22), reference_codes=codes)
    # reference + text + eos = 3 + 4 + 1 positions of text over bos + 2 frames of codes
    assert len(build(model, the_plan).overlay) == 8 - 3
