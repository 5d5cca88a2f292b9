"""What the intake makes of a text: its front end, its pauses, the parts and their seeds."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.engine import load
from engine.errors import InvalidRequest
from engine.request import Sampling, SpeechRequest, derive_seed
from tests.tts.bench import Bench
from tests.waiting import promptly


@pytest.fixture(scope="module")
def bench(custom_voice):
    return Bench(custom_voice, kv_positions=2560)


def texts(parts):
    return [part.request.text for part in parts]


def test_a_text_is_prepared_before_it_is_split(bench):
    (part,) = bench.intake.parts(SpeechRequest("# It costs $5", language="english"))
    assert part.request.text == "It costs five dollars."


@pytest.mark.parametrize("text", ["It costs $5", "**5%** [laugh]", "a [pause:1s] b", "  5\u200b "])
def test_switched_off_for_a_request_the_text_is_spoken_byte_for_byte(bench, text):
    (part,) = bench.intake.parts(SpeechRequest(text, normalize=False))
    assert part.request.text == text


def test_switched_off_for_the_engine_only_the_final_mark_is_added(custom_voice):
    plain = Bench(custom_voice, kv_positions=2560, normalize=())
    assert texts(plain.intake.parts(SpeechRequest("It costs $5"))) == ["It costs $5."]
    asked = SpeechRequest("It costs $5", language="en", normalize=True)
    assert texts(plain.intake.parts(asked)) == ["It costs five dollars."]


def test_a_request_may_name_its_steps(bench):
    request = SpeechRequest("**5** apples", language="en", normalize=("markup",))
    assert texts(bench.intake.parts(request)) == ["5 apples."]
    with pytest.raises(InvalidRequest, match="unknown `normalize` step 'x'"):
        bench.intake.parts(SpeechRequest("5 apples", normalize=("x",)))


def test_pauses_are_exact_in_samples_and_each_stretch_is_a_part_with_its_own_mark(bench):
    text = "[pause:0.1s]One... [pause:1.5s] two [pause:1ms]three[pause:0.25s]"
    parts = bench.intake.parts(SpeechRequest(text, sampling=Sampling(seed=5)))
    assert texts(parts) == ["One...", "two.", "three."]
    assert [part.pause_samples for part in parts] == [2_400, 36_000, 24]
    assert [part.tail_samples for part in parts] == [0, 0, 6_000]
    seeds = [part.request.sampling.seed for part in parts]
    assert seeds == [derive_seed(5, index) for index in range(3)]


def test_a_long_stretch_behind_a_pause_is_split_and_its_seeds_run_on(custom_voice):
    bench = Bench(custom_voice, kv_positions=300, paragraph_pause_s=0.4)
    sentence = "This is a sentence, and it says little. "
    text = f"Hello there. [pause:2s] {sentence * 6}\n\n{sentence * 6}"
    parts = bench.intake.parts(SpeechRequest(text, sampling=Sampling(seed=5)))
    assert len(parts) > 3
    assert [part.pause_samples for part in parts[:3]] == [0, 48_000, 0]
    assert 9_600 in [part.pause_samples for part in parts[3:]]
    seeds = [part.request.sampling.seed for part in parts]
    assert seeds == [derive_seed(5, index) for index in range(len(parts))]


def test_control_tokens_and_instructions_are_not_touched(bench):
    request = SpeechRequest("a <|im_end|> b", instructions="Say *5* things. [laugh]")
    (part,) = bench.intake.parts(request)
    assert part.request.text == "a <|im_end|> b."
    assert part.request.instructions == request.instructions


def test_an_unknown_language_is_still_refused(bench):
    with pytest.raises(InvalidRequest, match="unknown language 'klingon'"):
        bench.intake.parts(SpeechRequest("It costs $5", language="klingon"))


def test_a_text_of_directions_only_is_refused_and_spoken_as_it_is_on_request(bench):
    with pytest.raises(InvalidRequest, match="nothing that can be spoken") as caught:
        bench.intake.parts(SpeechRequest("[laugh]"))
    assert caught.value.field == "text"
    assert texts(bench.intake.parts(SpeechRequest("[laugh]", normalize=False))) == ["[laugh]"]


def test_a_lexicon_is_read_at_start_and_a_bad_one_is_refused(custom_voice, tmp_path):
    file = tmp_path / "words.toml"
    file.write_text('[all]\nQwen = "Kwen"\n', encoding="utf-8")
    bench = Bench(custom_voice, kv_positions=2560, lexicon=file)
    assert texts(bench.intake.parts(SpeechRequest("Qwen speaks."))) == ["Kwen speaks."]
    file.write_text("Qwen", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="lexicon"):
        Bench(custom_voice, kv_positions=2560, lexicon=file)


def test_unknown_steps_are_refused_with_the_engines_settings():
    with pytest.raises(InvalidRequest, match="unknown `normalize` step 'x'") as caught:
        EngineConfig(normalize=("x",))
    assert caught.value.field == "normalize"


@pytest.mark.parametrize("redraw", [False, True])
def test_a_spoken_pause_is_exact_silence(custom_voice, redraw):
    config = EngineConfig(slots=2, kv_positions=256, device="cpu", normalize=("pauses",))
    text = "[pause:7ms]One... [pause:1.5s] two.[pause:0.1s]"
    sampling = Sampling(seed=3, max_new_tokens=3)
    with load(custom_voice, config) as engine:
        utterance = engine.speak(SpeechRequest(text, sampling=sampling), redraw=redraw)
        *audio, end = promptly(lambda: list(utterance))
        alone = engine.speak(SpeechRequest("One...", sampling=sampling))
        *first, _ = promptly(lambda: list(alone))
    assert utterance.spoken_text == "[pause:0.007s] One... [pause:1.5s] two. [pause:0.1s]"
    pcm = np.concatenate([item.pcm for item in audio])
    spoken = np.concatenate([item.pcm for item in first])
    assert not pcm[:168].any()
    assert np.array_equal(pcm[168 : 168 + spoken.size], spoken)
    pause = pcm[168 + spoken.size :][:36_000]
    assert pause.size == 36_000 and not pause.any()
    assert not pcm[-2_400:].any()
    assert pcm[168 + spoken.size + 36_000] != 0
    assert end.stats.frames == pcm.size // 1920
