"""The fields that carry a voice as sound, and a saved voice in `voice`."""

import numpy as np
import pytest

import engine
from server.names import Names
from server.schemas.reference import Reference
from server.schemas.speech import SpeechBody
from server.voices.registry import Registry
from server.voices.saved import SavedVoice
from tests.fakes import base_info, model_info

BASE, PRESET = base_info(), model_info()


@pytest.fixture
def saved(tmp_path):
    registry = Registry(tmp_path, most=10, most_bytes=1 << 20)
    codes = np.ones((16, 9), np.int64)
    voice = engine.Voice(np.ones(8), codes, "What the clip says.", model="fake-base")
    kept, _ = registry.add(SavedVoice("", "Anna", 1, voice))
    return registry, kept


def body(**fields):
    return SpeechBody.checked({"input": "Hello.", **fields})


def request(names=None, model=BASE, **fields):
    return body(**fields).to_request(model, names or Names([model], {}), 100)


def refusal(**fields):
    with pytest.raises(engine.InvalidRequest) as caught:
        request(**fields)
    return caught.value


def test_a_clip_with_its_text_is_continued_and_without_it_only_sounded_like():
    assert body(ref_audio="AA", ref_text="Hi.").reference() == Reference(
        "AA", "ref_audio", "Hi.", 0.5
    )
    assert body(ref_audio="AA").reference().text is None
    assert body(ref_audio="AA", ref_text=" ").reference().text is None
    assert body(ref_audio="AA", ref_text="Hi.", x_vector_only_mode=True).reference().text is None
    assert body(ref_audio="AA", ref_tail_silence=0).reference().tail_silence_s == 0
    assert body().reference() is None


@pytest.mark.parametrize("name", ["audio_path", "audio"])
def test_references_say_the_same_in_another_way(name):
    given = body(references=[{name: "AA", "text": "Hi."}]).reference()
    assert given == Reference("AA", "references", "Hi.", 0.5)


def test_text_and_silence_of_the_clip_reach_the_engine():
    asked = request(ref_audio="AA", ref_text="Hi.", ref_tail_silence=1.5)
    assert (asked.reference_text, asked.ref_tail_silence) == ("Hi.", 1.5)
    assert asked.voice is None and asked.reference is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"references": []}, "references"),
        ({"references": [{"audio_path": "AA"}, {"audio_path": "AA"}]}, "references"),
        ({"references": "AA"}, "references"),
        ({"references": [{"text": "Hi."}]}, "references"),
        ({"references": [{"audio_path": "AA"}], "ref_audio": "AA"}, "ref_audio"),
        ({"references": [{"audio_path": "AA"}], "ref_text": "Hi."}, "ref_text"),
        ({"ref_text": "Hi."}, "ref_text"),
        ({"ref_tail_silence": 0.5}, "ref_tail_silence"),
        ({"ref_audio": "AA", "ref_tail_silence": 2.5}, "ref_tail_silence"),
        ({"ref_audio": "AA", "ref_tail_silence": -1}, "ref_tail_silence"),
        ({"ref_audio": "AA", "ref_tail_silence": "long"}, "ref_tail_silence"),
        ({"ref_audio": " "}, "ref_audio"),
        ({"ref_audio": 5}, "ref_audio"),
        ({"x_vector_only_mode": True}, "x_vector_only_mode"),
        ({"ref_audio": "AA", "x_vector_only_mode": "yes"}, "x_vector_only_mode"),
    ],
)
def test_what_contradicts_itself_is_refused_naming_the_field(fields, param):
    assert refusal(**fields).field == param


@pytest.mark.parametrize(
    ("references", "told"),
    [
        ("x", "`references` must be a list of one object with `audio_path`"),
        ({}, "`references` must be a list of one object with `audio_path`"),
        (["data:"], "`references.0` must be an object, got the string 'data:'"),
        ([{"audio_path": 5}], "`references.0.audio_path` must be a string"),
    ],
)
def test_references_are_told_with_what_they_may_be(references, told):
    error = refusal(references=references)
    assert told in str(error) and error.field == "references"


def test_a_name_that_only_fills_a_field_does_not_hinder_a_clip():
    assert request(ref_audio="AA", voice="alloy").voice is None
    assert refusal(voice="alloy").field == "voice"


@pytest.mark.parametrize("name", ["Anna", "anna", " ANNA ", "id"])
def test_a_saved_voice_is_found_by_name_in_any_case_or_by_id(saved, name):
    registry, kept = saved
    names = Names([BASE], {}, saved=registry)
    wanted = kept.id if name == "id" else name
    assert request(names, voice=wanted).voice is kept.voice
    assert request(names, voice={"id": wanted}).voice is kept.voice


def test_a_saved_voice_may_speak_by_its_vector_alone(saved):
    registry, kept = saved
    names = Names([BASE], {}, saved=registry)
    voice = request(names, voice="anna", x_vector_only_mode=True).voice
    assert voice.codes is None and np.array_equal(voice.embedding, kept.voice.embedding)


@pytest.mark.parametrize("field", ["ref_text", "ref_tail_silence"])
def test_what_a_saved_voice_holds_cannot_be_said_again(saved, field):
    names = Names([BASE], {}, saved=saved[0])
    value = "Hi." if field == "ref_text" else 1
    assert refusal(names=names, voice="anna", **{field: value}).field == field


@pytest.mark.parametrize(
    ("fields", "names", "field"),
    [
        ({"voice": "anna", "ref_audio": "AA"}, ("voice", "ref_audio"), "ref_audio"),
        ({"voice": "anna", "references": [{"audio": "AA"}]}, ("voice", "references"), "references"),
        ({"voice": "anna", "speaker_embedding": [1.0]}, ("voice", "speaker_embedding"),
         "speaker_embedding"),
        ({"ref_audio": "AA", "speaker_embedding": [1.0]}, ("ref_audio", "speaker_embedding"),
         "speaker_embedding"),
    ],
)  # fmt: skip
def test_a_request_has_one_voice_by_the_names_that_were_sent(saved, fields, names, field):
    error = refusal(names=Names([BASE], {}, saved=saved[0]), **fields)
    assert "`{}` and `{}` exclude each other".format(*names) in str(error)
    assert error.field == field


def test_openais_names_can_stand_for_saved_voices(saved):
    registry, kept = saved
    names = Names([BASE], {"alloy": "anna", "echo": "nobody"}, saved=registry)
    assert request(names, voice="Alloy").voice is kept.voice
    assert names.known_voices(BASE) == ["alloy", "Anna"]
    assert "stands for 'nobody'" in str(refusal(names=names, voice="echo"))


def test_a_preset_name_on_a_base_model_is_refused_saying_what_there_is(saved):
    error = refusal(names=Names([BASE], {}, saved=saved[0]), voice="vivian")
    assert isinstance(error, engine.UnsupportedMode) and error.field == "voice"
    assert "Base model" in str(error) and "Anna" in str(error) and "`ref_audio`" in str(error)


def test_a_saved_voice_on_a_preset_model_is_refused_saying_what_it_needs(saved):
    names = Names([PRESET], {}, saved=saved[0])
    error = refusal(names=names, model=PRESET, voice="anna")
    assert isinstance(error, engine.UnsupportedMode) and "Base model" in str(error)
    assert names.known_voices(PRESET)[:4] == list(PRESET.speakers) and (
        "Anna" not in names.known_voices(PRESET)
    )


def test_a_speaker_wins_over_a_saved_voice_of_its_name(saved):
    names = Names([model_info(speakers=("Anna",))], {}, saved=saved[0])
    assert request(names, model_info(speakers=("Anna",)), voice="anna").voice == "anna"


def test_a_request_that_needs_a_base_model_finds_it_among_others(saved):
    registry, _ = saved
    names = Names([PRESET, BASE], {"echo": "anna"}, saved=registry)
    for fields in (
        {"ref_audio": "AA"}, {"speaker_embedding": [1.0]}, {"voice": "anna"}, {"voice": "Echo"},
        {"task_type": "base"},
    ):  # fmt: skip
        asked = body(**fields)
        assert names.model(asked.model, asked.wanted_task(names)) is BASE
    for fields in ({}, {"voice": "vivian"}, {"task_type": "CustomVoice"}):
        asked = body(**fields)
        assert names.model(asked.model, asked.wanted_task(names)) is PRESET


def test_a_voice_of_another_width_is_not_listed(saved):
    wide = base_info(name="wide", speaker_width=16)
    assert Names([wide], {}, saved=saved[0]).known_voices(wide) == []


def test_an_alias_of_nothing_is_warned_about_at_start(saved, caplog):
    Names([BASE], {"alloy": "anna", "echo": "nobody"}, saved=saved[0]).warn_of_unresolved()
    assert "'nobody'" in caplog.text and "'anna'" not in caplog.text
