import pytest

import engine
from server.names import OPENAI_VOICES, Meant, Names, is_openai_model
from tests.fakes import SPEAKERS, model_info

MODEL = model_info()
DESIGN = model_info(name="design", task="voice_design", speakers=(), default_voice=None)
BASE = model_info(name="base", task="base", speakers=(), default_voice=None)


def test_all_13_openai_voices_are_spread_over_the_speakers():
    aliases = Names([MODEL], {}).aliases(MODEL)
    assert tuple(aliases) == OPENAI_VOICES and len(OPENAI_VOICES) == 13
    assert set(aliases.values()) == set(SPEAKERS)


def test_an_alias_may_be_written_in_any_case():
    names = Names([MODEL], {"Alloy": "vivian"})
    assert names.voice("ALLOY", MODEL) == Meant("vivian")
    assert names.voice(" Shimmer ", MODEL) == names.voice("shimmer", MODEL)


def test_a_configured_alias_wins_over_the_default_and_over_a_speaker():
    names = Names([MODEL], {"aiden": "ryan", "narrator": "dylan"})
    assert names.voice("aiden", MODEL) == Meant("ryan")
    assert names.voice("narrator", MODEL) == Meant("dylan")


def test_a_speaker_with_an_openai_name_is_itself():
    model = model_info(speakers=("vivian", "Alloy"))
    assert Names([model], {}).voice("alloy", model) == Meant("alloy")


def test_no_voice_is_the_models_default_and_an_unknown_one_is_left_to_the_engine():
    names = Names([MODEL], {})
    assert names.voice(None, MODEL) == Meant()
    assert names.voice("zz", MODEL) == Meant("zz")


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_voice_is_refused(name):
    with pytest.raises(engine.InvalidRequest) as caught:
        Names([MODEL], {}).voice(name, MODEL)
    assert caught.value.field == "voice"


@pytest.mark.parametrize("model", [DESIGN, BASE])
def test_without_speakers_an_openai_voice_is_refused_with_the_way_to_set_one(model):
    with pytest.raises(engine.InvalidRequest, match="FRAMECAST_VOICE_ALIASES") as caught:
        Names([model], {}).voice("alloy", model)
    assert caught.value.field == "voice"


def test_on_a_voice_design_model_an_alias_is_a_description():
    names = Names([DESIGN], {"alloy": "A calm old man."})
    assert names.voice("alloy", DESIGN) == Meant(description="A calm old man.")


def test_a_target_no_model_has_is_refused_at_start():
    with pytest.raises(engine.InvalidRequest, match=r"'nobody'.*aiden"):
        Names([MODEL], {"alloy": "nobody"})


@pytest.mark.parametrize(
    "name",
    ["tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15", "kokoro", "TTS-1",
     "gpt-realtime-2.1-mini", "", None],
)  # fmt: skip
def test_openai_models_mean_the_default_one_even_in_strict_mode(name):
    assert Names([MODEL, DESIGN], {}, strict_models=True).model(name) is MODEL


def test_a_models_own_name_wins_in_any_case():
    assert Names([MODEL, DESIGN], {}).model("DESIGN") is DESIGN


def test_any_other_name_is_accepted_by_a_server_of_one_model_unless_strict():
    assert Names([MODEL], {}).model("whatever") is MODEL
    with pytest.raises(engine.ModelNotFound, match="fake-voice"):
        Names([MODEL], {}, strict_models=True).model("whatever")
    with pytest.raises(engine.ModelNotFound):
        Names([MODEL, DESIGN], {}).model("whatever")


def test_names_that_only_look_like_openais_are_not():
    assert not is_openai_model("tts-10") and not is_openai_model("gpt-4o-mini-tts-")
