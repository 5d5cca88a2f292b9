import math
import threading

import numpy as np
import pytest

import engine
from engine import Audio, EngineConfig, FinishReason, Sampling, SpeechRequest
from engine.assets import NOTICE, bundled_voice, placeholder
from engine.gguf.spec import read_model_spec

SENTENCE = "The quick brown fox jumps over the lazy dog."


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FRAMECAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_built_once_and_found_again(cache, monkeypatch):
    first = bundled_voice()
    monkeypatch.setattr(placeholder, "build", lambda folder: pytest.fail("built twice"))
    assert bundled_voice() == first
    assert [path.name for path in cache.iterdir()] == [first.talker.parent.name]


def test_two_builds_are_byte_for_byte_equal_and_small(tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append([path.read_bytes() for path in placeholder.build(tmp_path / name)])
    assert made[0] == made[1]
    assert sum(map(len, made[0])) < 3_000_000


def test_builders_side_by_side_end_with_one_complete_pair(cache):
    found = []
    threads = [threading.Thread(target=lambda: found.append(bundled_voice())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 3
    assert len(list(cache.iterdir())) == 1
    assert read_model_spec(found[0].talker, found[0].codec).name == placeholder.NAME


def test_a_failed_build_leaves_nothing_behind(cache, monkeypatch):
    def fail(folder):
        (folder / "talker.gguf").write_bytes(b"GGUF")
        raise RuntimeError("out of luck")

    monkeypatch.setattr(placeholder, "build", fail)
    with pytest.raises(RuntimeError, match="out of luck"):
        bundled_voice()
    assert list(cache.iterdir()) == []


def test_it_follows_the_users_cache_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("FRAMECAST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert bundled_voice().talker.is_relative_to(tmp_path / "framecast")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert bundled_voice().talker.is_relative_to(tmp_path / "home/.cache/framecast")


def test_where_nothing_can_be_kept_a_temporary_folder_serves(tmp_path, monkeypatch, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("FRAMECAST_CACHE", str(blocked / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert bundled_voice().talker.is_file()
    assert "cannot keep the placeholder voice" in caplog.text


def test_it_says_that_it_makes_sound_and_not_words(cache):
    assert bundled_voice().warnings == (NOTICE,)
    for text in ("sound, not words", "--talker", "--codec", "framecast convert"):
        assert text in NOTICE


def test_its_metadata_is_the_published_models_on_a_small_scale(cache):
    files = bundled_voice()
    spec = read_model_spec(files.talker, files.codec)
    talker = spec.talker
    assert [speaker.name for speaker in talker.speakers] == list(placeholder.SPEAKERS)
    dialects = {s.name: s.dialect for s in talker.speakers if s.dialect}
    assert dialects == {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
    assert set(dialects.values()) <= set(talker.languages)
    assert talker.vocab == spec.codec.codebook_size + 1024
    assert talker.codec_tokens.eos - spec.codec.codebook_size == 2150 - 2048
    assert talker.languages["english"] - spec.codec.codebook_size == 2050 - 2048
    assert spec.codec.upsample_rates == (8, 5, 4, 3)
    assert spec.codec.samples_per_frame == 1920


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAMECAST_CACHE", str(tmp_path_factory.mktemp("cache")))
        loaded = engine.load(bundled_voice(), EngineConfig(dtype="f32", device="cpu"))
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def say(speaker):
    def say(text, voice=None, layout=None, **sampling):
        request = SpeechRequest(
            text, voice=voice, non_streaming_mode=layout, sampling=Sampling(**sampling)
        )
        *audio, end = speaker.submit(request)
        assert all(isinstance(item, Audio) for item in audio)
        return np.concatenate([item.pcm for item in audio]), end.reason

    return say


def level(pcm):
    return 10 * math.log10(np.mean(np.square(pcm, dtype=np.float64)))


@pytest.mark.parametrize("seed", range(3))
def test_a_sentence_ends_by_itself_after_a_plausible_time(say, seed):
    pcm, reason = say(SENTENCE, seed=seed)
    assert reason is FinishReason.STOP
    assert 2.0 < len(pcm) / 24_000 < 6.0


def test_it_is_as_loud_as_speech_without_offset_or_clipping(say):
    pcm, _ = say(SENTENCE, seed=4)
    assert -22.0 < level(pcm) < -18.0
    assert abs(np.mean(pcm)) < 0.001
    assert np.max(np.abs(pcm)) < 0.9
    thirds = [level(part) for part in np.array_split(pcm, 3)]
    assert max(thirds) - min(thirds) < 3.0


def test_more_text_takes_more_time(say):
    lengths = [len(say(text, seed=1)[0]) for text in ("Hi.", "Hello there.", SENTENCE)]
    assert lengths[0] < lengths[1] < lengths[2] / 2


@pytest.mark.parametrize("voice", placeholder.SPEAKERS)
def test_two_words_of_every_speaker_are_short_and_audible(say, voice):
    pcm, reason = say("Hello there.", voice, seed=2)
    assert reason is FinishReason.STOP
    assert 0.4 <= len(pcm) / 24_000 <= 3.0
    assert level(pcm) > -24.0


def test_speakers_sound_different(say):
    first = {
        say("Hello there.", voice, seed=3)[0][:19_200].tobytes() for voice in ("ryan", "sohee")
    }
    assert len(first) == 2


def test_greedy_and_text_that_comes_bit_by_bit_end_too(say):
    assert say(SENTENCE, temperature=0)[1] in (FinishReason.STOP, FinishReason.LOOP)
    assert say(SENTENCE, layout=False, seed=5)[1] is FinishReason.STOP
