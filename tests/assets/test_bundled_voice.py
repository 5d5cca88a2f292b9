"""The voice in the box: it says the words, ends by itself, and its speakers differ."""

import math
from collections import Counter

import numpy as np
import pytest

import engine
from engine import (
    DEFAULT_TEXT_STEPS,
    Audio,
    EngineConfig,
    FinishReason,
    Sampling,
    SpeechRequest,
)
from engine.assets import bundled_voice
from engine.gguf.spec import read_model_spec
from engine.text.frontend import Frontend
from tests.assets.recogniser import Recogniser, word_errors, words

SPEAKERS = ("robin", "heron", "wren")
SENTENCES = (
    "The council voted on Tuesday to close the old bridge for repairs.",
    "Heavy rain is expected across the northern valleys until the weekend.",
    "Where did you leave the keys to the garden gate?",
    "The price of bread rose for the third month in a row.",
    "I think we should wait until the others arrive.",
    "She opened the letter slowly and read it twice.",
)

NUMBERS = (
    "The ticket costs $25.",
    "About 60% of the 1,200 people agreed.",
    "Turn left after 150 m.",
    "The 3rd of May was a Tuesday.",
    "It weighs 12 kg and costs £9.99.",
)
SHORT = ("it is.", "I know.", "come in.", "thank you.", "not today.", "that is right.")


@pytest.fixture(scope="module")
def speaker():
    config = EngineConfig(dtype="f32", device="cpu", kernels="plain", slots=8)
    with engine.load(bundled_voice(), config) as loaded:
        yield loaded


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


@pytest.fixture(scope="module")
def recogniser():
    return Recogniser()


def level(pcm):
    return 10 * math.log10(np.mean(np.square(pcm, dtype=np.float64)))


def loud(pcm):
    """Which tenths of milliseconds hold sound above -45 dBFS."""
    blocks = pcm[: len(pcm) // 240 * 240].reshape(-1, 240)
    return np.flatnonzero(np.sqrt(np.square(blocks).mean(1)) > 10 ** (-45 / 20))


def pitch(pcm):
    """The strongest period of 60 to 330 Hz in the loud parts, as a median in Hz."""
    found = []
    for start in range(0, len(pcm) - 1440, 720):
        part = pcm[start : start + 1440].astype(np.float64)
        if np.sqrt(np.square(part).mean()) < 0.03:
            continue
        similar = np.correlate(part, part, "full")[1439:]
        lag = 72 + int(similar[72:400].argmax())
        if similar[lag] > 0.5 * similar[0]:
            found.append(24_000 / lag)
    return float(np.median(found))


def test_it_is_small_english_and_has_three_speakers():
    files = bundled_voice()
    spec = read_model_spec(files.talker, files.codec)
    assert tuple(s.name for s in spec.talker.speakers) == SPEAKERS
    assert set(spec.talker.languages) == {"english"}
    assert files.talker.stat().st_size + files.codec.stat().st_size <= 25_000_000
    assert spec.codec.samples_per_frame == 1920


@pytest.mark.parametrize("voice", SPEAKERS)
def test_a_recogniser_hears_the_words(say, recogniser, voice):
    wrong = 0
    for seed, text in enumerate(SENTENCES):
        pcm, reason = say(text, voice, seed=seed)
        assert reason is FinishReason.STOP
        wrong += word_errors(text, recogniser.hear(pcm))
    assert wrong <= 0.25 * sum(len(words(text)) for text in SENTENCES)


def test_text_that_comes_bit_by_bit_is_understood_too(say, recogniser):
    pcm, reason = say(SENTENCES[3], layout=False, seed=5)
    assert reason is FinishReason.STOP
    assert word_errors(SENTENCES[3], recogniser.hear(pcm)) <= 4


@pytest.mark.parametrize("voice", SPEAKERS)
@pytest.mark.parametrize("text", ["Yes.", "Hello."])
def test_a_single_word_is_said_once_and_ends(say, text, voice):
    pcm, reason = say(text, voice, seed=2)
    assert reason is FinishReason.STOP
    assert 0.2 <= len(pcm) / 24_000 <= 1.5


@pytest.mark.parametrize("voice", SPEAKERS)
def test_it_is_as_loud_as_speech_without_offset_clipping_or_long_silence(say, voice):
    pcm, _ = say(SENTENCES[0], voice, seed=4)
    assert -26.0 < level(pcm) < -16.0
    assert abs(np.mean(pcm)) < 0.001
    assert np.max(np.abs(pcm)) < 0.99
    sounding = loud(pcm)
    assert sounding[0] <= 20 and len(pcm) // 240 - sounding[-1] <= 20


def test_more_text_takes_more_time(say):
    lengths = [len(say(text, seed=1)[0]) for text in ("Hi.", "Hello there.", SENTENCES[0])]
    assert lengths[0] < lengths[1] < lengths[2] / 2


def test_speakers_differ_in_pitch(say):
    heron, robin, wren = (
        pitch(say(SENTENCES[0], voice, seed=3)[0]) for voice in ("heron", "robin", "wren")
    )
    assert heron < 0.8 * robin and robin < 0.95 * wren


@pytest.fixture(scope="module")
def reasons(speaker):
    def reasons(texts, seeds):
        asked = [
            SpeechRequest(text, voice=SPEAKERS[seed % 3], sampling=Sampling(seed=seed))
            for text in texts
            for seed in seeds
        ]
        streams = [speaker.speak(request) for request in asked]
        return Counter(list(stream)[-1].reason for stream in streams)

    return reasons


@pytest.mark.parametrize(
    "text", ["2 + 2 = 4, and 3 x 3 > 8!", ":-) ;-) well, :D", "3x", "Twice, deux fois, 3x."]
)
def test_signs_emoticons_and_other_languages_never_run_away(reasons, text):
    assert reasons([text], range(8)) == {FinishReason.STOP: 8}


def test_short_sentences_end_in_a_stop_and_not_in_silence(reasons):
    texts = [f"{start} {end}" for start in ("Yes,", "Well,", "No,") for end in SHORT]
    assert reasons(texts, range(2)) == {FinishReason.STOP: 2 * len(texts)}


def test_parallel_listeners_each_hear_their_own_words(speaker, recogniser):
    streams = [
        speaker.submit(SpeechRequest(text, voice="robin", sampling=Sampling(seed=seed)))
        for seed, text in enumerate(SENTENCES)
    ]
    for own, stream in zip(SENTENCES, streams, strict=True):
        pcm = np.concatenate([item.pcm for item in stream if isinstance(item, Audio)])
        heard = recogniser.hear(pcm)
        assert min(SENTENCES, key=lambda text: word_errors(text, heard)) == own


def test_a_text_that_pauses_is_spoken_to_its_end(speaker, recogniser):
    request = SpeechRequest("", voice="robin", sampling=Sampling(seed=3))
    live = speaker.open(request)
    said = " ".join(SENTENCES[:2]).split()
    for word in said[:5]:
        live.append(word + " ")
    items = iter(live)
    heard = [next(items)]
    for word in said[5:]:
        live.append(word + " ")
    live.end()
    heard += list(items)
    assert heard[-1].reason is FinishReason.STOP
    pcm = np.concatenate([item.pcm for item in heard if isinstance(item, Audio)])
    text = " ".join(said)
    assert word_errors(text, recogniser.hear(pcm)) <= 0.4 * len(words(text))


def test_numbers_are_understood_when_they_are_read_out_first(speaker, recogniser):
    frontend = Frontend()

    def read(text):
        passages = frontend.read(text, "english", DEFAULT_TEXT_STEPS).passages
        return " ".join(passage.text for passage in passages)

    def wrong(normalize):
        errors = 0
        for seed, text in enumerate(NUMBERS):
            request = SpeechRequest(
                text, "robin", "english", normalize=normalize, sampling=Sampling(seed=seed)
            )
            items = speaker.speak(request)
            pcm = np.concatenate([item.pcm for item in items if isinstance(item, Audio)])
            errors += word_errors(read(text), read(recogniser.hear(pcm)))
        return errors

    total = sum(len(words(read(text))) for text in NUMBERS)
    assert wrong(True) <= min(wrong(False), 0.3 * total)


def test_greedy_ends_too(say):
    assert say(SENTENCES[0], temperature=0, subtalker_temperature=0)[1] is FinishReason.STOP
