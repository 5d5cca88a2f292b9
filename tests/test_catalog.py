"""What models can do, and what a request means to one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.catalog import LANGUAGE_CODES, Catalog, language_id, public_languages
from engine.config import (
    CodecSpec,
    CodecTokens,
    DecoderSpec,
    GenerationDefaults,
    ModelSpec,
    Speaker,
    TalkerSpec,
    TextTokens,
)
from engine.errors import InvalidRequest, ModelNotFound, UnknownVoice, UnsupportedMode
from engine.request import SpeechRequest
from tests.checkpoints import LANGUAGES

WIDTH = 16
STACK = DecoderSpec(WIDTH, 24, 1, 2, 1, 8, 1e6, 1e-6, 100)
NAMED = (
    Speaker("Vivian", 3065),
    Speaker("ryan", 3061),
    Speaker("eric", 2875, "sichuan_dialect"),
    Speaker("dylan", 2878, "beijing_dialect"),
)


def talker(task: str = "custom_voice", size: str = "1b7", name: str = "tiny") -> TalkerSpec:
    return TalkerSpec(
        name=name,
        task=task,  # type: ignore[arg-type]
        size=size,
        code_groups=4,
        talker=STACK,
        vocab=1088,
        text_vocab=300,
        text_hidden=12,
        predictor=STACK,
        predictor_vocab=64,
        predictor_projection=False,
        codec_tokens=CodecTokens(164, 165, 166, 170, 171, 172, 173),
        text_tokens=TextTokens(1, 2, 3, 4, 5),
        languages=LANGUAGES,
        speakers=NAMED if task == "custom_voice" else (),
        generation=GenerationDefaults(),
    )


def model(*args: str, **kwargs: str) -> ModelSpec:
    codec = CodecSpec(24_000, 1920, 4, 1, 64, 32, 16, 32, 32, STACK, 72, (8, 5, 4, 3), (2, 2))
    return ModelSpec(talker(*args, **kwargs), codec, Path("talker.gguf"), Path("codec.gguf"))


def resolve(spec: TalkerSpec, strict: bool = False, **fields: Any) -> Any:
    request = SpeechRequest("Hello", **fields)
    return Catalog([model()], strict_instructions=strict).resolve(request, spec)


CUSTOM, SMALL = talker(), talker(size="0b6")
DESIGN, BASE = talker("voice_design"), talker("base")


# Languages


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("german", "german"),
        ("German", "german"),
        ("GERMAN", "german"),
        (" german ", "german"),
        ("de", "german"),
        ("DE", "german"),
        ("de-AT", "german"),
        ("de_CH", "german"),
        ("deu", "german"),
        ("ger", "german"),
        ("zh", "chinese"),
        ("zh-Hans-CN", "chinese"),
        ("cmn-Hans", "chinese"),
        ("Mandarin", "chinese"),
        ("pt-BR", "portuguese"),
        ("en-US", "english"),
        ("beijing_dialect", "beijing_dialect"),
        ("Beijing-Dialect", "beijing_dialect"),
    ],
)
def test_a_language_is_known_by_name_code_or_tag(language: str, name: str) -> None:
    assert language_id(language, CUSTOM) == LANGUAGES[name]


@pytest.mark.parametrize("code", sorted(LANGUAGE_CODES))
def test_every_published_language_has_an_iso_code(code: str) -> None:
    assert language_id(code, CUSTOM) == LANGUAGES[LANGUAGE_CODES[code]]


@pytest.mark.parametrize("language", ["auto", "Auto", "AUTO", "", "  "])
def test_auto_leaves_the_language_to_the_model(language: str) -> None:
    assert language_id(language, CUSTOM) is None


@pytest.mark.parametrize("language", ["klingon", "x", "xx-DE", "engl", "-", "en us"])
def test_an_unknown_language_is_refused_with_those_there_are(language: str) -> None:
    with pytest.raises(InvalidRequest, match="available: auto, chinese, english") as caught:
        language_id(language, CUSTOM)
    assert caught.value.field == "language"
    assert repr(language) in str(caught.value)
    assert "dialect" not in str(caught.value)


def test_dialects_are_not_offered_as_languages() -> None:
    assert public_languages(CUSTOM) == tuple(LANGUAGES)[:10]


# Dialects


@pytest.mark.parametrize("language", ["auto", "", "chinese", "zh", "zh-CN", "Mandarin"])
def test_a_dialect_speaker_speaks_the_dialect_in_chinese_and_auto(language: str) -> None:
    delivery = resolve(CUSTOM, voice="eric", language=language)
    assert delivery.language == LANGUAGES["sichuan_dialect"]


@pytest.mark.parametrize("language", ["english", "de", "beijing_dialect"])
def test_a_dialect_speaker_keeps_any_other_language(language: str) -> None:
    delivery = resolve(CUSTOM, voice="dylan" if language == "de" else "eric", language=language)
    assert delivery.language == language_id(language, CUSTOM)


def test_a_speaker_without_a_dialect_speaks_plain_chinese() -> None:
    assert resolve(CUSTOM, voice="ryan", language="zh").language == LANGUAGES["chinese"]
    assert resolve(CUSTOM, voice="ryan").language is None


# Voices


@pytest.mark.parametrize("voice", ["vivian", "Vivian", "VIVIAN", " vivian "])
def test_a_voice_is_found_in_any_case(voice: str) -> None:
    assert resolve(CUSTOM, voice=voice).speaker == NAMED[0]


def test_no_voice_is_the_first_speaker() -> None:
    assert resolve(CUSTOM).speaker == NAMED[0]


@pytest.mark.parametrize("voice", ["nobody", "", "viv"])
def test_an_unknown_voice_is_refused_with_those_there_are(voice: str) -> None:
    with pytest.raises(UnknownVoice, match="Vivian, dylan, eric, ryan") as caught:
        resolve(CUSTOM, voice=voice)
    assert caught.value.field == "voice"
    assert caught.value.known == ["Vivian", "dylan", "eric", "ryan"]


@pytest.mark.parametrize(("spec", "hint"), [(BASE, "speaker_embedding"), (DESIGN, "instructions")])
def test_a_model_without_voices_says_what_to_give_instead(spec: TalkerSpec, hint: str) -> None:
    with pytest.raises(UnsupportedMode, match=f"`{hint}`") as caught:
        resolve(spec, voice="vivian", instructions="Calm")
    assert caught.value.field == "voice"


# Tasks


@pytest.mark.parametrize("spec", [CUSTOM, DESIGN, BASE], ids=lambda spec: spec.task)
@pytest.mark.parametrize("task", ["custom_voice", "voice_design", "base"])
def test_a_task_is_accepted_by_its_own_model_only(spec: TalkerSpec, task: Any) -> None:
    if task == spec.task:
        assert resolve(spec, task=task, instructions="Calm").speaker == (
            NAMED[0] if task == "custom_voice" else None
        )
        return
    with pytest.raises(UnsupportedMode, match=f"cannot do {task}") as caught:
        resolve(spec, task=task, instructions="Calm")
    assert caught.value.field == "task"


# Speaker vectors


def test_a_base_model_takes_a_speaker_vector_or_none() -> None:
    vector = np.zeros(WIDTH, np.float32)
    assert resolve(BASE, speaker_embedding=vector).speaker is None
    assert resolve(BASE).speaker is None


# Instructions


@pytest.mark.parametrize("spec", [CUSTOM, DESIGN], ids=lambda spec: spec.task)
@pytest.mark.parametrize("strict", [False, True])
def test_models_that_follow_instructions_get_them_as_sent(spec: TalkerSpec, strict: bool) -> None:
    delivery = resolve(spec, strict, instructions="  Softly. ")
    assert delivery.instructions == "  Softly. "
    assert delivery.warnings == ()


@pytest.mark.parametrize("spec", [SMALL, BASE], ids=["small", "base"])
def test_models_that_cannot_follow_instructions_drop_them_with_a_warning(spec: TalkerSpec) -> None:
    delivery = resolve(spec, instructions="Softly")
    assert delivery.instructions is None
    assert "`instructions` have no effect" in delivery.warnings[0]


@pytest.mark.parametrize("spec", [SMALL, BASE], ids=["small", "base"])
def test_the_strict_setting_refuses_instructions_without_effect(spec: TalkerSpec) -> None:
    with pytest.raises(UnsupportedMode, match="no effect") as caught:
        resolve(spec, strict=True, instructions="Softly")
    assert caught.value.field == "instructions"
    assert resolve(spec, strict=True).warnings == ()


@pytest.mark.parametrize("instructions", [None, "", " \n"])
def test_empty_instructions_are_none(instructions: str | None) -> None:
    assert resolve(SMALL, strict=True, instructions=instructions).instructions is None
    assert resolve(CUSTOM, instructions=instructions).instructions is None


@pytest.mark.parametrize("instructions", [None, "", " \n"])
def test_voice_design_needs_a_description(instructions: str | None) -> None:
    with pytest.raises(InvalidRequest, match="must describe the voice") as caught:
        resolve(DESIGN, instructions=instructions)
    assert caught.value.field == "instructions"


# Layout


@pytest.mark.parametrize(
    ("spec", "wanted", "whole"),
    [
        (CUSTOM, None, True),
        (DESIGN, None, True),
        (BASE, None, False),
        (CUSTOM, False, False),
        (BASE, True, True),
    ],
)
def test_the_text_is_laid_out_as_asked_or_as_the_task_does_it(
    spec: TalkerSpec, wanted: bool | None, whole: bool
) -> None:
    delivery = resolve(spec, non_streaming_mode=wanted, instructions="Calm")
    assert delivery.whole_text is whole


# Routing


def test_models_are_found_by_name_in_any_case_and_the_first_is_the_default() -> None:
    first, second = model(name="Tiny-Custom"), model("base", name="tiny-base")
    catalog = Catalog([first, second])
    assert catalog.spec(None) is first
    assert catalog.spec("tiny-custom") is first
    assert catalog.spec("TINY-BASE") is second
    assert catalog.info("Tiny-Base") is catalog.models[1]
    assert catalog.info(None) is catalog.models[0]


@pytest.mark.parametrize("name", ["other", "", "tiny-custo"])
def test_an_unknown_model_is_refused_with_those_there_are(name: str) -> None:
    catalog = Catalog([model(name="tiny-custom"), model(name="tiny-base")])
    with pytest.raises(ModelNotFound, match="'tiny-custom', 'tiny-base'"):
        catalog.spec(name)


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="tiny"):
        Catalog([model(name="tiny"), model("base", name="Tiny")])


def test_a_model_shows_what_callers_may_ask_of_it() -> None:
    custom, small, design, base = Catalog(
        [
            model(name="custom"),
            model(size="0b6", name="small"),
            model("voice_design", name="design"),
            model("base", name="base"),
        ]
    ).models
    assert custom.speakers == ("Vivian", "ryan", "eric", "dylan")
    assert custom.default_voice == "Vivian"
    assert custom.languages == tuple(LANGUAGES)[:10]
    assert (custom.sample_rate, custom.samples_per_frame) == (24_000, 1920)
    assert custom.speaker_width == WIDTH
    assert [m.accepts_instructions for m in (custom, small, design, base)] == [
        True,
        False,
        True,
        False,
    ]
    assert design.default_voice is base.default_voice is None
    assert [m.task for m in (custom, design, base)] == ["custom_voice", "voice_design", "base"]
