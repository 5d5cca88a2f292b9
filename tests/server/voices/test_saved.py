"""Saved voices and consents in their files: what is read back, and what is not believed."""

import json
import logging

import numpy as np
import pytest
from safetensors.numpy import save_file

import engine
from server.voices.naming import new_id
from server.voices.registry import Registry
from server.voices.saved import SavedVoice

VECTOR, CODES = np.linspace(-1, 1, 8, dtype=np.float32), np.ones((16, 4), np.int16)
VOICE = {"format": "framecast.voice", "version": "1", "name": "Anna", "created_at": "7"}
CONSENT = {"format": "framecast.consent", "version": "1", "name": "Anna", "language": "en",
           "created_at": "7"}  # fmt: skip
SAID = {"transcript": "What the clip says."}


def open_registry(folder):
    registry = Registry(folder, most=10, most_bytes=1 << 20)
    registry.restore()
    return registry


def plant(folder, facts, **arrays):
    path = folder / f"{new_id('voice')}.safetensors"
    save_file(arrays or {"embedding": VECTOR}, path, facts)
    return path


def test_a_voice_is_read_as_it_was_written(tmp_path):
    voice = engine.Voice(
        VECTOR, CODES.astype(np.int64), "Words.", tail_silence_s=2.0, warnings=("é \U0001f600",)
    )
    saved = SavedVoice("", "Anna", 7, voice, consent="yes", file_size=9)
    open_registry(tmp_path).add(saved)
    (read,) = open_registry(tmp_path).voices
    assert read.facts() == saved.facts() and read.voice.key == voice.key
    assert read.voice.warnings == voice.warnings


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "../x"},
        {"created_at": "x"},
        {"created_at": "-5"},
        {"created_at": str(10**30)},
        {"created_at": "9" * 13},
        {"created_at": "1" * 5000},
        {"file_size": "x"},
        {"file_size": "9" * 4000},
        {"version": "x"},
        {"version": "0"},
        {"format": "framecast.song"},
        {"tail_silence_s": "nan"},
        {"tail_silence_s": "2.5"},
        {"tail_silence_s": "-1"},
        {"tail_silence_s": "long"},
        {"warnings": "x"},
        {"warnings": "5"},
        {"warnings": "null"},
        {"warnings": "true"},
        {"warnings": "[1, 2]"},
        {"warnings": "[[1]]"},
        {"warnings": '{"a": 1}'},
        {"warnings": '["\\ud800"]'},
        {"warnings": "[" * 100_000},
        SAID,
    ],
    ids=lambda facts: json.dumps(facts)[:40],
)
def test_a_voice_with_an_odd_fact_is_set_aside_and_the_rest_loads(tmp_path, caplog, facts):
    path = plant(tmp_path, VOICE | facts)
    plant(tmp_path, VOICE | {"name": "Berta"})
    with caplog.at_level(logging.WARNING):
        assert [each.name for each in open_registry(tmp_path).voices] == ["Berta"]
    assert path.name in caplog.text and not path.exists()


@pytest.mark.parametrize("missing", ["name", "created_at", "version", "format"])
def test_a_voice_that_lacks_a_fact_is_set_aside(tmp_path, missing):
    path = plant(tmp_path, {name: value for name, value in VOICE.items() if name != missing})
    assert not open_registry(tmp_path).voices and not path.exists()


@pytest.mark.parametrize(
    "arrays",
    [
        {"embedding": VECTOR.reshape(2, 4)},
        {"embedding": VECTOR * np.inf},
        {"embedding": np.full(8, 1e300)},
        {"embedding": np.ones(8, bool)},
        {"embedding": VECTOR, "codes": CODES},
        {"other": VECTOR},
    ],
    ids=["shape", "infinite", "too large", "truth", "codes without words", "none"],
)
def test_a_voice_with_odd_arrays_is_set_aside(tmp_path, arrays):
    path = plant(tmp_path, VOICE, **arrays)
    assert not open_registry(tmp_path).voices and not path.exists()


@pytest.mark.parametrize(
    "codes", [CODES - 2, CODES.astype(np.uint64), CODES.astype(np.float32), CODES[:, :0]]
)
def test_a_voice_with_odd_codes_is_set_aside(tmp_path, codes):
    path = plant(tmp_path, VOICE | SAID, embedding=VECTOR, codes=codes)
    assert not open_registry(tmp_path).voices and not path.exists()


def test_a_voice_of_a_later_version_is_left_for_it(tmp_path, caplog):
    path = plant(tmp_path, VOICE | {"version": "2"})
    with caplog.at_level(logging.WARNING):
        assert not open_registry(tmp_path).voices
    assert path.exists() and "framecast.voice 2, not framecast.voice 1" in caplog.text


def test_consents_come_in_the_order_in_which_they_were_kept(tmp_path):
    registry = open_registry(tmp_path)
    kept = [registry.add_consent(str(number), "en", b"x", None).id for number in range(10)]
    renamed = registry.rename_consent(kept[3], "another")
    assert renamed.name == "another" and renamed.created_ns > 10**18
    for read in (registry, open_registry(tmp_path)):
        assert [each.id for each in read.consents] == kept


@pytest.mark.parametrize(
    ("facts", "read"),
    [({}, 7), ({"created_ns": str(9 * 10**9)}, 9), ({"created_ns": "x"}, None),
     ({"created_at": str(10**30)}, None)],
)  # fmt: skip
def test_the_time_of_a_consent_is_checked_and_may_be_in_seconds(tmp_path, facts, read):
    folder = tmp_path / "consents"
    folder.mkdir()
    path = folder / f"{new_id('cons')}.safetensors"
    save_file({"recording": np.ones(4, np.uint8)}, path, CONSENT | facts)
    found = [each.created_at for each in open_registry(tmp_path).consents]
    assert found == ([] if read is None else [read]) and path.exists() == bool(found)


def test_a_consent_without_its_recording_is_set_aside(tmp_path):
    folder = tmp_path / "consents"
    folder.mkdir()
    path = folder / f"{new_id('cons')}.safetensors"
    save_file({"other": np.ones(4, np.uint8)}, path, CONSENT)
    assert not open_registry(tmp_path).consents and not path.exists()
