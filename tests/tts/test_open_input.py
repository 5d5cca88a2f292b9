"""A request whose text is still coming: the same codes, wherever and whenever it was cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import Cancelled, DeadlineExceeded, InputTimeout, InvalidRequest
from engine.request import FinishReason, Sampling, SpeechRequest
from engine.stream import Audio, Finished
from engine.tts.intake import Envelope
from tests.tts.bench import Bench, sound

TEXT = "Hello, Dr. Lee: 3.5  and so on!"


FRAMES = 36  # a little more than it has tokens


def request(seed: int = 1, frames: int | None = 40, text: str = "", **fields) -> SpeechRequest:
    return SpeechRequest(text, sampling=Sampling(seed=seed, max_new_tokens=frames), **fields)


class Writer:
    """Does for one open request what the worker does with what `LiveStream` posts."""

    def __init__(self, bench: Bench, ask: SpeechRequest, patience_s: float = 30.0) -> None:
        self.bench = bench
        self.request = ask
        nothing = (lambda: None, lambda: None)
        envelope = Envelope(f"job {ask.sampling.seed}", deadline=bench.now + 1000.0)
        self.entry, self.feed = bench.intake.open(ask, envelope, *nothing, patience_s)
        self.input = self.entry.input
        self.write(ask.text)

    def write(self, text: str) -> None:
        self.input.append(self.feed.push(text))

    def end(self) -> None:
        ids = self.feed.end()
        ceiling = self.bench.intake.ceiling(self.request, self.entry, self.feed.tokens)
        self.input.end(ids, ceiling)

    def admit(self) -> bool:
        """Take a slot as soon as the scheduler would give one."""
        if self.input.enough:
            self.bench.runner.admit(self.entry, self.bench.now)
        return self.input.enough

    def speak(self, pieces: list[str], steps: int = 0) -> list[list[int]]:
        """Write the pieces, up to `steps` frames after each, and return all codes."""
        running = self.admit()
        for piece in pieces:
            self.write(piece)
            running = running or self.admit()
            for _ in range(steps if running else 0):
                self.bench.step()
        self.end()
        if not running:
            self.admit()
        self.bench.finish()
        return self.codes

    @property
    def codes(self) -> list[list[int]]:
        return self.bench.codes.get(self.request.sampling.seed, [])

    @property
    def slot(self):
        found = [s for s in self.bench.runner.slots if s and s.entry.job.id == self.entry.job.id]
        return found[0] if found else None


def whole(bench: Bench, ask: SpeechRequest) -> tuple[list[list[int]], np.ndarray]:
    """Codes and sound of a request that comes at once, in the incremental layout."""
    seed = ask.sampling.seed
    heard = bench.run([replace(ask, non_streaming_mode=False)], [0])
    return bench.codes.pop(seed), heard[seed]


@pytest.fixture(scope="module")
def bench(custom_voice):
    return Bench(custom_voice, reference=True, kv_positions=1024, slots=2)


@pytest.fixture(scope="module")
def quick(custom_voice):
    """What nothing has to be bit-equal for."""
    return Bench(custom_voice, kv_positions=1024, slots=2)


@pytest.fixture(scope="module")
def cloning(base):
    return Bench(base, reference=True, kv_positions=1024, slots=2)


@pytest.fixture(scope="module")
def expected(bench):
    return whole(bench, request(text=TEXT, frames=FRAMES))


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, len(TEXT)), max_size=8), st.integers(0, 9))
def test_codes_are_those_of_the_whole_text_wherever_it_is_cut(bench, expected, places, steps):
    bench.codes.clear()
    writer = Writer(bench, request(frames=FRAMES))
    assert writer.speak(cut(TEXT, places), steps) == expected[0]
    heard = sound(writer.entry.stream)
    assert np.abs(heard - expected[1]).max() <= 1e-4
    assert bench.runner.books().balanced


@pytest.mark.parametrize("pieces", [list(TEXT), [TEXT]], ids=["characters", "whole"])
def test_codes_do_not_depend_on_what_runs_beside_it(bench, expected, pieces):
    bench.codes.clear()
    bench.admit(request(seed=9, text="Another voice speaks at the same time.", frames=20))
    assert Writer(bench, request(frames=FRAMES)).speak(pieces, steps=2) == expected[0]


def test_in_the_default_mode_codes_are_equal_too(custom_voice, expected):
    bench = Bench(custom_voice, kv_positions=1024)
    assert Writer(bench, request(frames=FRAMES)).speak(list(TEXT), steps=1) == expected[0]


def test_the_automatic_ceiling_is_that_of_the_whole_text(quick):
    for text in ("One.", "One two three four five six seven eight nine ten, and so on."):
        ask = request(frames=None, text=text, non_streaming_mode=False)
        writer = Writer(quick, replace(ask, text=""))
        assert writer.entry.ceiling > 192
        for piece in text:
            writer.write(piece)
        writer.end()
        assert writer.entry.ceiling == quick.entry(ask).max_frames


REFERENCE = {
    "reference_codes": np.random.RandomState(3).randint(0, 64, (4, 12)),
    "speaker_embedding": np.linspace(-1, 1, 64, dtype=np.float32),
}


@pytest.mark.parametrize("said", ["Short.", "What was said before, and it is longer."])
def test_an_in_context_clone_equals_the_whole_text_too(cloning, said):
    ask = request(seed=4, text=TEXT, frames=30, reference_text=said, **REFERENCE)
    codes, _ = whole(cloning, ask)
    writer = Writer(cloning, replace(ask, text=""))
    assert writer.speak(list(TEXT), steps=1) == codes
    # Less text than the reference is long: all of it is in the prompt.
    ask = replace(ask, text="No.", sampling=Sampling(seed=4, max_new_tokens=8))
    codes, _ = whole(cloning, ask)
    assert Writer(cloning, replace(ask, text="")).speak(["N", "o."], steps=3) == codes


def test_a_clone_by_vector_equals_the_whole_text_too(cloning):
    ask = request(seed=5, text=TEXT, frames=30, speaker_embedding=REFERENCE["speaker_embedding"])
    codes, _ = whole(cloning, ask)
    assert Writer(cloning, replace(ask, text="")).speak(list(TEXT), steps=1) == codes


# Waiting


def test_the_first_frames_come_before_the_text_is_complete(quick):
    writer = Writer(quick, request(frames=12))
    writer.write("Hello th")
    assert writer.admit()
    quick.finish()
    frames = writer.slot.frames
    assert frames == writer.feed.tokens > 0
    assert sum(len(item.pcm) for item in writer.entry.stream._items) == frames * 1920
    writer.end()
    quick.finish()


def test_five_words_a_pause_and_twenty_more_use_every_row_of_the_text(quick):
    first, rest = "a b c d e", " f g h i j k l m n o p q r s t u v w x y."
    writer = Writer(quick, request(frames=60))
    writer.write(first)
    writer.admit()
    quick.finish()
    held = writer.slot.frames
    for _ in range(3):
        quick.now += 1.0
        quick.runner.sweep(quick.now)
        assert not quick.runner.busy
        assert writer.slot.frames == held
    writer.write(rest)
    writer.end()
    rows = writer.slot.entry.plan.overlay_rows(len(writer.input.items)) + 1  # and the end
    while writer.slot is not None and quick.runner.busy:
        prompt = writer.slot.prompt
        quick.step()
    assert prompt.taken == len(writer.input.items) == writer.feed.tokens
    assert len(prompt.overlay) == rows < len(writer.codes)
    assert quick.runner.books().balanced


def test_a_slot_that_waits_for_text_stays_bit_identical_while_others_advance(quick):
    writer = Writer(quick, request())
    writer.write("Hello there ")
    writer.admit()
    quick.finish()
    index = writer.slot.index
    generator, state = quick.generator, quick.vocoder._state
    held = [generator.cache.k[:, index], generator.hidden[index], generator.logits[index]]
    held += [generator.seen[index], *(tensor[index] for tensor in state.tensors.values())]
    before = [tensor.clone() for tensor in held]
    quick.admit(request(seed=8, text="Somebody else.", frames=9), "else")
    quick.finish()
    assert len(quick.codes[8]) == 9
    for now, then in zip(held, before, strict=True):
        assert torch.equal(now.nan_to_num(), then.nan_to_num())
    writer.entry.stream.cancel()
    quick.runner.sweep(quick.now)
    assert quick.runner.books().balanced


def test_all_that_was_made_is_heard_before_a_wait_and_the_ramp_begins_anew(custom_voice):
    bench = Bench(custom_voice, kv_positions=1024, ramp=(1, 8))
    writer = Writer(bench, request(frames=60))
    writer.write("one two three four five six seven eight nine ten ")
    writer.admit()
    bench.finish()
    waiting = len(writer.entry.stream._items)
    assert writer.slot.decoded == writer.slot.frames
    writer.write("a b c d e f g h i j k l m n o p q r s t ")
    writer.end()
    bench.finish()
    sizes = [len(item.pcm) // 1920 for item in writer.entry.stream if isinstance(item, Audio)]
    assert sizes[waiting] == 1
    assert sizes[waiting + 1] == 8


@pytest.mark.parametrize("kernels", ["plain", "auto"])
def test_a_single_token_and_a_pause_are_no_failure(custom_voice, kernels):
    bench = Bench(custom_voice, kernels=kernels)
    writer = Writer(bench, request(frames=6))
    writer.write("I ")
    writer.admit()
    bench.finish()
    writer.write("am here. ")
    writer.end()
    bench.finish()
    assert list(writer.entry.stream)[-1].reason is FinishReason.LENGTH


def test_a_wait_counts_for_no_guard(custom_voice):
    bench = Bench(custom_voice, kv_positions=1024, silence_s=0.5)
    writer = Writer(bench, request(frames=20), patience_s=100.0)
    writer.write("Hello there ")
    writer.admit()
    bench.finish()
    for _ in range(40):
        bench.now += 2.0
        bench.runner.sweep(bench.now)
        bench.step()
    writer.end()
    bench.finish()
    assert list(writer.entry.stream)[-1].reason is FinishReason.LENGTH


def test_text_that_does_not_come_ends_the_request_once_it_is_needed(quick):
    writer = Writer(quick, request(frames=300), patience_s=5.0)
    writer.write("one two three four five six ")
    writer.admit()
    quick.now += 50.0  # it still has text to speak
    quick.runner.sweep(quick.now)
    quick.finish()
    quick.runner.sweep(quick.now)
    quick.now += 4.0
    quick.runner.sweep(quick.now)
    writer.write("seven ")
    quick.finish()
    quick.runner.sweep(quick.now)
    quick.now += 4.0
    quick.runner.sweep(quick.now)
    assert writer.slot
    quick.now += 2.0
    quick.runner.sweep(quick.now)
    assert quick.runner.books().balanced
    with pytest.raises(InputTimeout, match="5 s"):
        list(writer.entry.stream)


def test_a_deadline_counts_the_waiting_too(quick):
    writer = Writer(quick, request(), patience_s=5000.0)
    writer.write("one two ")
    writer.admit()
    quick.finish()
    quick.runner.sweep(quick.now + 1001.0)
    with pytest.raises(DeadlineExceeded):
        list(writer.entry.stream)
    assert quick.runner.books().balanced


def test_a_request_cancelled_while_it_waits_frees_its_slot(quick):
    writer = Writer(quick, request())
    writer.write("one two ")
    writer.admit()
    quick.finish()
    writer.entry.stream.cancel()
    quick.runner.cancel(writer.entry.job.id)
    writer.write("three four ")
    assert not quick.runner.busy
    assert quick.runner.books().balanced
    with pytest.raises(Cancelled):
        list(writer.entry.stream)


def test_a_frame_ceiling_reached_while_the_text_is_open_ends_with_length(quick):
    writer = Writer(quick, request(frames=3))
    writer.write("one two three four five six ")
    writer.admit()
    quick.finish()
    finished = list(writer.entry.stream)[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.stats.frames) == (FinishReason.LENGTH, 3)


# Limits


def test_the_text_may_take_what_leaves_every_token_its_frames(custom_voice):
    bench = Bench(custom_voice, kv_positions=400)
    writer = Writer(bench, request(frames=None))
    positions = writer.entry.plan.positions
    assert writer.feed.limit == (400 - positions) // 12
    with pytest.raises(InvalidRequest, match=f"holds {writer.feed.limit}"):
        writer.write("word " * 500)
    writer.write("word ")
    writer.end()
    writer.admit()
    bench.finish()
    assert list(writer.entry.stream)[-1].stats.frames == 192


def test_the_whole_text_layout_cannot_be_asked_for(quick):
    with pytest.raises(InvalidRequest) as caught:
        Writer(quick, request(non_streaming_mode=True))
    assert caught.value.field == "non_streaming_mode"


def test_a_slot_without_room_for_a_sentence_is_refused_at_once(custom_voice):
    bench = Bench(custom_voice, kv_positions=300)
    with pytest.raises(InvalidRequest, match="at least 16") as caught:
        Writer(bench, request(instructions="Calm, " * 60))
    assert caught.value.field == "instructions"
