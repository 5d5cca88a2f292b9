"""Captured frames against their plain twin: the generator that makes a frame stage by stage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from math import nan

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from engine.config import EngineConfig
from engine.errors import GenerationFailed, InvalidRequest
from engine.request import FinishReason, Sampling, SpeechRequest
from engine.stream import Finished
from engine.tts.captured import CapturedGenerator, spans
from engine.tts.load import captures, set_up_cuda
from engine.tts.rows import frame_ropes
from tests.tts.bench import Bench, sound
from tests.tts.test_isolation import ORDERS, REQUESTS
from tests.tts.test_open_input import FRAMES, TEXT, Writer, request, whole

MORE = [
    SpeechRequest(
        "No three codes twice, and at least so many.",
        voice="ryan",
        sampling=Sampling(seed=5, no_repeat_ngram_size=2, min_new_tokens=12, max_new_tokens=25),
    ),
    SpeechRequest(
        "The best candidates alone, by a top p that is 0 in F32.",
        voice="ryan",
        sampling=Sampling(seed=6, top_p=1e-46, subtalker_top_p=1e-46, max_new_tokens=9),
    ),
    SpeechRequest(
        "Everything may be drawn.",
        voice="vivian",
        sampling=Sampling(seed=2**62, top_k=0, subtalker_top_k=0, top_p=0.9, max_new_tokens=25),
    ),
]

STATE = ("given", "text", "length", "made", "seed", "numbers", "banned", "seen")


class Frozen:
    """Replays the operations of one run, as CUDA does: whatever the host decides between them is
    decided once and for all."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        def traced(nothing: torch.Tensor) -> torch.Tensor:
            function()
            return nothing

        graph = make_fx(traced)(torch.zeros(1))
        return lambda: graph(torch.zeros(1))


@pytest.fixture(scope="module")
def plain(custom_voice):
    """Each request alone, stage by stage: the codes and the sound to equal."""
    bench = Bench(custom_voice)
    expected = {}
    for ask in [*REQUESTS, *MORE]:
        seed = ask.sampling.seed
        heard = bench.run([ask], [0])[seed]
        expected[seed] = (list(bench.codes[seed]), heard)
    return expected


@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_captured_frames_have_the_codes_and_the_sound_of_plain_ones(
    custom_voice, plain, order, arrivals
):
    bench = Bench(custom_voice, kernels="captured")
    sounds = bench.run([REQUESTS[i] for i in order], arrivals)
    for seed, heard in sounds.items():
        assert bench.codes[seed] == plain[seed][0]
        assert np.abs(heard - plain[seed][1]).max() <= 1e-4


def test_every_kind_of_sampling_is_captured(custom_voice, plain):
    bench = Bench(custom_voice, kernels="captured")
    sounds = bench.run(MORE, [0, 2, 3])
    assert {seed: bench.codes[seed] for seed in sounds} == {
        ask.sampling.seed: plain[ask.sampling.seed][0] for ask in MORE
    }


def test_nothing_of_a_captured_frame_is_decided_by_the_host(custom_voice, plain, monkeypatch):
    monkeypatch.setattr("engine.tts.load.Calls", Frozen)
    monkeypatch.setattr("engine.codec.decoder.check_codes", lambda *_: None)  # on CPUs alone
    bench = Bench(custom_voice, kernels="captured", slots=2, ramp=(1, 2))
    requests = [REQUESTS[3], MORE[0], MORE[2]]
    for seed, heard in bench.run(requests, [0, 2, 4]).items():
        assert bench.codes[seed] == plain[seed][0]
        assert np.abs(heard - plain[seed][1]).max() <= 1e-4


def test_a_captured_frame_asks_the_device_nothing(custom_voice):
    bench = Bench(custom_voice, kernels="captured")
    generator = bench.generator
    for owner in (generator, generator.cache, generator._frame_cache):
        for name, value in vars(owner).items():
            if isinstance(value, torch.Tensor):
                setattr(owner, name, value.to("meta"))
    generator.device = torch.device("meta")
    generator.talker.to("meta")
    generator.predictor.to("meta")
    generator._rope = generator.talker.rope(generator.cache.positions)
    generator._frame_ropes = frame_ropes(generator.predictor, generator.spec.code_groups)
    with torch.inference_mode():
        generator._frame(3, 256)  # a question to a device without numbers raises
    assert generator.out.device.type == "meta"


def test_the_spans_double_up_to_all_positions():
    assert spans(2560) == [512, 1024, 2048, 2560]
    assert spans(512) == [512]
    assert spans(64) == [64]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_text_that_is_still_coming_is_captured_too(custom_voice, steps):
    ask = request(frames=FRAMES, text=TEXT)
    expected, heard = whole(Bench(custom_voice, kv_positions=1024), ask)
    bench = Bench(custom_voice, kernels="captured", kv_positions=1024, slots=2)
    bench.admit(request(seed=9, text="Another voice speaks.", frames=20))
    writer = Writer(bench, request(frames=FRAMES))
    assert writer.speak(list(TEXT), steps) == expected
    assert np.abs(sound(writer.entry.stream) - heard).max() <= 1e-4
    assert bench.runner.books().balanced


def test_a_captured_slot_that_pauses_stays_bit_identical_while_others_advance(custom_voice):
    bench = Bench(custom_voice, kernels="captured")
    paused, other = (bench.admit(ask) for ask in REQUESTS[:2])
    for _ in range(3):
        bench.step()
    paused.stream._max_bytes = 1  # its reader is full now
    index = next(s.index for s in bench.runner.slots if s and s.entry is paused)
    generator, state = bench.generator, bench.vocoder._state
    held = [getattr(generator, name)[index] for name in STATE]
    held += [generator.cache.k[:, index], generator.cache.v[:, index]]
    held += [tensor[index] for tensor in state.tensors.values()]
    before = [tensor.clone() for tensor in held]
    for _ in range(4):
        bench.step()
    for now, then in zip(held, before, strict=True):
        assert torch.equal(now.nan_to_num(), then.nan_to_num())
    assert len(bench.codes[other.sampling.seed]) == 7


@pytest.mark.parametrize(
    ("where", "kernels"),
    [("talker", "captured"), ("predictor", "captured"), ("predictor", "plain")],
)
def test_scores_that_are_not_numbers_end_their_own_request_alone(
    custom_voice, plain, where, kernels
):
    bench = Bench(custom_voice, kernels=kernels)
    well, sick = (bench.admit(ask) for ask in REQUESTS[:2])
    bench.step()
    row = next(s.index for s in bench.runner.slots if s and s.entry is sick)
    head = bench.generator.predictor.lm_head[1]
    if where == "talker":
        bench.generator.given[row] = float("nan")
    else:
        head.register_forward_hook(lambda _, given, out: out.index_fill(0, torch.tensor([1]), nan))
    bench.step()
    head._forward_hooks.clear()
    bench.finish()
    with pytest.raises(GenerationFailed, match="scores were not numbers"):
        list(sick.stream)
    assert np.abs(sound(well.stream) - plain[1][1]).max() <= 1e-4
    again = bench.run([REQUESTS[1]], [0])
    assert bench.codes[2] == plain[2][0]
    assert np.abs(again[2] - plain[2][1]).max() <= 1e-4


def test_a_captured_request_that_draws_eos_stops(custom_voice):
    bench = Bench(custom_voice, kernels="captured")
    entry = bench.admit(REQUESTS[0])
    for _ in range(3):
        bench.step()
    eos = bench.runner.spec.talker.codec_tokens.eos
    allowed = bench.generator._allowed

    def want_eos(*given):
        return allowed(*given).index_fill(1, torch.tensor([eos]), 1e4)

    bench.generator._allowed = want_eos
    # What the predictor makes of a frame that is not one does not matter.
    head = bench.generator.predictor.lm_head[0]
    head.register_forward_hook(lambda _, given, out: out.fill_(nan))
    bench.finish()
    finished = list(entry.stream)[-1]
    assert (finished.reason, finished.stats.frames) == (FinishReason.STOP, 3)


class Elsewhere:
    """A place where work goes on until the test says that it is done."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self):
        return nullcontext()

    def takes(self, tensor: torch.Tensor) -> None:
        """It is kept anyway."""

    def landed(self) -> Callable[[], bool]:
        return lambda: self.done


def test_a_slot_joins_when_the_device_is_done_with_its_prompt(custom_voice, plain):
    bench = Bench(custom_voice, kernels="captured")
    first = bench.admit(REQUESTS[0])
    bench.step()
    elsewhere = bench.generator.aside = Elsewhere()
    second = bench.admit(REQUESTS[1])
    for _ in range(3):
        bench.step()
    assert [len(bench.codes.get(seed, [])) for seed in (1, 2)] == [4, 0]
    assert bench.runner.busy
    elsewhere.done = True
    bench.finish()
    assert [bench.codes[seed] for seed in (1, 2)] == [plain[seed][0] for seed in (1, 2)]
    assert isinstance(list(first.stream)[-1], Finished)
    assert isinstance(list(second.stream)[-1], Finished)


def test_captured_frames_are_refused_where_there_is_no_f64():
    with pytest.raises(InvalidRequest, match="not on mps"):
        captures(EngineConfig(kernels="captured"), torch.device("mps"))
    assert not captures(EngineConfig(), torch.device("mps"))
    assert captures(EngineConfig(), torch.device("cuda"))
    assert not captures(EngineConfig(reference=True), torch.device("cuda"))


def test_cuda_is_set_up_for_full_precision_and_for_attention_without_plans():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled()
    try:
        set_up_cuda()
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.backends.cuda.enable_cudnn_sdp(before[1])


@pytest.fixture
def collected():
    """Graphs of benches before are gone, which are part of a cycle."""
    gc.collect()


@pytest.mark.gpu
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_cuda_graphs_have_the_codes_of_plain_frames(custom_voice, order, arrivals):
    requests = [[*REQUESTS, *MORE][i + 2] for i in order]
    settings = {"device": "cuda", "dtype": "f32", "kv_positions": 1024}
    stages = Bench(custom_voice, kernels="plain", **settings)
    expected = {}
    for ask in requests:
        expected |= stages.run([ask], [0])
        expected |= {("codes", seed): list(codes) for seed, codes in stages.codes.items()}
    bench = Bench(custom_voice, **settings)
    assert isinstance(bench.generator, CapturedGenerator)
    for seed, heard in bench.run(requests, arrivals).items():
        assert bench.codes[seed] == expected["codes", seed]
        assert np.abs(heard - expected[seed]).max() <= 1e-3


@pytest.mark.gpu
@pytest.mark.usefixtures("collected")
def test_cuda_graphs_speak_in_bf16(custom_voice):
    bench = Bench(custom_voice, device="cuda")
    for seed, heard in bench.run(REQUESTS, [0, 1, 2, 3]).items():
        assert np.isfinite(heard).all()
        assert len(bench.codes[seed]) * 1920 == len(heard) > 0
