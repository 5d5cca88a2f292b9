import json

import numpy as np
import pytest

import engine
from server.audio.formats import FORMATS
from server.bodies import parse_json
from server.names import Names
from server.schemas.speech import NOT_SERVED, SpeechBody
from tests.fakes import model_info

MODEL = model_info()
NAMES = Names([MODEL], {})


def parse_speech(content_type, body):
    return SpeechBody.checked(parse_json(content_type, body))


def parse(**fields):
    body = json.dumps({"input": "Hello.", **fields}).encode()
    return parse_speech("application/json", body)


def request(**fields):
    return parse(**fields).to_request(MODEL, NAMES, 100)


def refusal(**fields) -> engine.InvalidRequest:
    with pytest.raises(engine.InvalidRequest) as caught:
        body = parse(**fields)
        body.audio_format()
        body.streams()
        body.to_request(MODEL, NAMES, 100)
    return caught.value


def test_a_bare_input_asks_for_the_defaults():
    asked = request()
    assert (asked.text, asked.voice, asked.language) == ("Hello.", None, "auto")
    assert asked.instructions is None and asked.task is None
    assert asked.sampling == engine.Sampling()


def test_every_served_field_reaches_the_engine():
    sampling = {
        "seed": 7, "temperature": 0.5, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1,
        "max_new_tokens": 99, "min_new_tokens": 3, "no_repeat_ngram_size": 4,
        "subtalker_temperature": 0.25, "subtalker_top_k": 10, "subtalker_top_p": 0.75,
    }  # fmt: skip
    asked = request(
        voice="vivian", language="english", instructions="Softly.", task_type="CustomVoice",
        non_streaming_mode=True, speaker_embedding=[1, 2.5], **sampling,
    )  # fmt: skip
    assert asked.sampling == engine.Sampling(**sampling)
    assert (asked.voice, asked.language, asked.instructions) == ("vivian", "english", "Softly.")
    assert (asked.task, asked.non_streaming_mode, asked.model) == (
        "custom_voice", True, "fake-voice",
    )  # fmt: skip
    assert np.array_equal(asked.speaker_embedding, np.float32([1, 2.5]))


def test_null_means_absent_and_unknown_fields_are_ignored():
    asked = request(voice=None, seed=None, temperature=None, backend="x", user=[1], speed=None)
    assert asked.voice is None and asked.sampling == engine.Sampling()


def test_aliases_of_field_names_work_and_a_null_does_not_hide_them():
    assert request(speaker="vivian", instruct="Softly.").voice == "vivian"
    assert request(voice=None, speaker="vivian").voice == "vivian"
    assert request(instructions=None, instruct="Softly.").instructions == "Softly."


def test_a_voice_may_be_an_object_with_an_id():
    assert request(voice={"id": "vivian"}).voice == "vivian"


@pytest.mark.parametrize("text", ["None", "", "  ", " None "])
def test_instructions_that_say_none_are_none(text):
    assert request(instructions=text).instructions is None


@pytest.mark.parametrize("name", ["CustomVoice", "customvoice", "CUSTOM_VOICE", "custom_voice"])
def test_a_task_may_be_written_in_any_case(name):
    assert request(task_type=name).task == "custom_voice"


@pytest.mark.parametrize(
    "text",
    ["", "   ", "\n", "***", "-", "—", "...", "😀", "?!", "\u200b", "[ ]", "，。", "<>"],
)
def test_a_text_with_nothing_to_speak_is_refused(text):
    assert refusal(input=text).field == "input"


@pytest.mark.parametrize("text", ["a", "7", "你好", "привет", "नमस्ते", "안녕", "٣", "😀 hi"])
def test_one_letter_or_digit_of_any_script_is_enough(text):
    assert request(input=text).text == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", 5), ("input", ["Hello."]), ("model", 1), ("voice", 5), ("voice", {}),
        ("voice", {"id": 5}), ("voice", ["vivian"]), ("response_format", 3), ("speed", "1"),
        ("speed", True), ("instructions", 5), ("stream", "maybe"), ("stream", 1),
        ("stream_format", 1), ("language", 1), ("seed", "7"), ("seed", 1.5), ("seed", True),
        ("temperature", "0.5"), ("temperature", False), ("top_k", 1.5), ("top_p", "x"),
        ("max_new_tokens", "9"), ("task_type", 1), ("speaker_embedding", "x"),
        ("speaker_embedding", [1, "2"]), ("speaker_embedding", [True]),
        ("non_streaming_mode", "yes"), ("word_timestamps", "no"), ("sample_rate", "24000"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_refused_naming_the_field(field, value):
    error = refusal(**{field: value})
    assert error.field == field
    assert f"`{field}" in str(error) and "must be" in str(error)


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [
        ("temperature", -0.1, "between 0 and 2"), ("temperature", 2.01, "between 0 and 2"),
        ("top_k", -1, "between 0 and 4096"), ("top_p", 0, "above 0 and at most 1"),
        ("top_p", 1.1, "above 0 and at most 1"),
        ("repetition_penalty", 0, "above 0 and at most 10"),
        ("max_new_tokens", 0, "between 1 and 16384"),
        ("min_new_tokens", -1, "between 0 and 16384"),
        ("no_repeat_ngram_size", -1, "between 0 and 16384"),
        ("subtalker_temperature", 3, "between 0 and 2"),
        ("subtalker_top_k", 5000, "between 0 and 4096"),
        ("subtalker_top_p", -1, "above 0 and at most 1"),
        ("seed", 2**63, "between -9223372036854775808 and 9223372036854775807"),
        ("speed", 0, "between 0.25 and 4"), ("speed", 4.1, "between 0.25 and 4"),
        ("sample_rate", 4000, "between 8000 and 48000"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_is_refused_with_the_range(field, value, valid):
    error = refusal(**{field: value})
    assert error.field == field
    assert f"`{field}` must be {valid}, got {value}" in str(error)


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_yet_is_refused_and_never_ignored(name):
    error = refusal(**{name: True})
    assert error.field == name
    assert "not served yet" in str(error)


def test_the_frames_before_the_first_sound_reach_the_engine_and_none_are_the_default():
    assert request(initial_codec_chunk_frames=10).first_chunk_frames == 10
    assert request(initial_codec_chunk_frames=0).first_chunk_frames is None
    assert request().first_chunk_frames is None
    assert "between 0 and 64" in str(refusal(initial_codec_chunk_frames=65))


def test_values_that_change_nothing_are_accepted():
    asked = request(
        speed=1, stream_format="AUDIO", sample_rate=24_000, x_vector_only_mode=False,
        word_timestamps=False, return_text=False, seed=5.0,
    )  # fmt: skip
    assert asked.sampling.seed == 5


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (None, None), (True, True), (False, False), ([], ()),
        (["numbers", " Markup ", "drop_urls"], ("markup", "numbers", "drop_urls")),
    ],
)  # fmt: skip
def test_what_is_done_to_the_text_is_a_switch_or_a_list_of_steps(sent, meant):
    assert request(normalize=sent).normalize == meant


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (["nubmers"], "the list ['nubmers']"), ([1], "the list [1]"), ("numbers", "'numbers'"),
        (1, "the number 1"), ({}, "an object"),
    ],
)  # fmt: skip
def test_other_values_for_it_are_refused_with_the_steps_there_are(value, got):
    error = refusal(normalize=value)
    assert error.field == "normalize"
    assert "`true`, `false` or a list of characters, markup" in str(error)
    assert got in str(error)


@pytest.mark.parametrize("name", ["mpeg", "", "mp4", "mp3,wav"])
def test_an_unknown_format_is_refused_with_the_list(name):
    error = refusal(response_format=name)
    assert error.field == "response_format"
    assert "mp3, opus, aac, flac, wav, pcm" in str(error)


def test_an_unknown_stream_format_or_task_is_refused_with_the_list():
    with pytest.raises(engine.InvalidRequest, match="audio, sse") as caught:
        parse(stream_format="chunks").events()
    assert caught.value.field == "stream_format"
    assert "CustomVoice, VoiceDesign, Base" in str(refusal(task_type="Clone"))


def test_format_names_forgive_case_and_blanks():
    assert parse(response_format=" MP3 ").audio_format() == "mp3"
    assert parse().audio_format() == "mp3"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_streamed_unless_told_not_to(name):
    assert parse(response_format=name).streams()
    assert parse(response_format=name, stream=True).streams()
    assert not parse(response_format=name, stream=False).streams()


@pytest.mark.parametrize(
    ("fields", "setting", "events"),
    [
        ({}, False, False), ({}, True, False), ({"stream": True}, False, False),
        ({"stream": True}, True, True), ({"stream": False}, True, False),
        ({"stream": True, "stream_format": "audio"}, True, False),
        ({"stream_format": " SSE "}, False, True), ({"stream_format": "Audio"}, True, False),
        ({"stream": False, "stream_format": "sse"}, False, True),
    ],
)  # fmt: skip
def test_events_are_what_was_asked_for_or_what_the_setting_says_of_stream(fields, setting, events):
    assert parse(**fields).events(setting) is events


def test_a_shape_is_what_the_listener_asked_for():
    shape = parse(response_format="opus", speed=1.5, sample_rate=16_000, loudness_lufs=-20).shape()
    assert (shape.format.name, shape.speed, shape.sample_rate) == ("opus", 1.5, 16_000)
    assert shape.loudness_lufs == -20


def test_the_loudness_of_the_server_holds_unless_a_request_has_its_own_or_none():
    assert parse().shape(-18).loudness_lufs == -18
    assert parse(loudness_lufs=-23).shape(-18).loudness_lufs == -23
    assert parse(loudness_lufs=0).shape(-18).loudness_lufs is None
    assert parse().shape().loudness_lufs is None


@pytest.mark.parametrize("value", [-41, -9, 3, 0.5])
def test_a_loudness_nobody_can_want_is_refused_with_the_range(value):
    error = refusal(loudness_lufs=value)
    assert error.field == "loudness_lufs" and "-40 and -10" in str(error)


def test_texts_over_the_limit_are_refused_with_both_lengths():
    error = refusal(input="a" * 101)
    assert error.field == "input" and "101" in str(error) and "100" in str(error)
    assert refusal(instructions="a" * 101).field == "instructions"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"input": NaN}', b'{"input": "\\ud800"}', b"[" * 100_000],
)
def test_a_body_that_is_not_json_is_refused(body):
    with pytest.raises(engine.InvalidRequest, match="not valid JSON"):
        parse_speech("application/json", body)


@pytest.mark.parametrize("body", [b"[]", b"5", b'"input"', b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(engine.InvalidRequest, match="must be a JSON object"):
        parse_speech("application/json; charset=utf-8", body)


@pytest.mark.parametrize("name", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_another_content_type_is_refused(name):
    with pytest.raises(engine.InvalidRequest, match="application/json"):
        parse_speech(name, b'{"input": "Hello."}')


def test_a_missing_input_is_named():
    with pytest.raises(engine.InvalidRequest, match="`input` is required") as caught:
        parse_speech("application/json", b"{}")
    assert caught.value.field == "input"


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 300, "-1e400", "1" + "0" * 5000])
@pytest.mark.parametrize("field", ["seed", "temperature", "top_k", "speed", "sample_rate"])
def test_absurd_numbers_are_refused_without_an_accident(field, number):
    body = f'{{"input": "Hello.", "{field}": {number}}}'.encode()
    with pytest.raises(engine.InvalidRequest):
        parse_speech("application/json", body)


@pytest.mark.parametrize("vector", [[], [1e300]])
def test_an_embedding_must_hold_finite_32_bit_numbers(vector):
    assert refusal(speaker_embedding=vector).field == "speaker_embedding"
