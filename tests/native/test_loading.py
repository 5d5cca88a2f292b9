"""Models of quantised weights, loaded into compiled kernels."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import engine
from engine.codec.packed import PackedDecoder
from engine.models.kv_cache import KVCache
from engine.tts import load
from tests.checkpoints import make_checkpoint
from tests.models.test_packing import CASE, POSITIONS, check_neighbours, divergence, inputs
from tests.tts.bench import Bench
from tests.tts.test_isolation import ORDERS, REQUESTS


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    root = tmp_path_factory.mktemp("native")
    checkpoint = make_checkpoint(CASE, root / "checkpoint")
    return lambda kind: engine.convert_checkpoint(checkpoint, root / kind, kind)


@pytest.fixture
def native_bench(team, monkeypatch):
    """A runner whose weights are worth compiling for, whatever a measurement says."""
    monkeypatch.setattr(load, "WORTH_COMPILING", 0)
    monkeypatch.setattr("engine.models.kernels._BETWEEN", 1e9)
    return lambda files, **config: Bench(files, kernels="auto", **config)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q5_0"])
def test_scores_are_those_of_plain_kernels(convert, native_bench, kind):
    files = convert(kind)
    fast, plain = native_bench(files).generator, Bench(files).generator
    assert fast.talker.packed
    assert fast.predictor.fast is not None
    x = inputs(plain.talker)[:1]
    torch.testing.assert_close(inputs(fast.talker)[:1], x, atol=0.1, rtol=0.02)

    def scores(generator) -> torch.Tensor:
        talker, spec = generator.talker, generator.talker.spec
        kept = KVCache(spec, 1, POSITIONS, device=torch.device("cpu"), dtype=torch.bfloat16)
        rope = talker.rope(POSITIONS).span(0, POSITIONS)
        return talker.logits(talker(x, rope, kept.prefill(0, POSITIONS)))

    assert divergence(scores(plain), scores(fast)) <= 1e-3


@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_codes_do_not_depend_on_the_neighbours(convert, native_bench, order, arrivals):
    check_neighbours(native_bench(convert("q8_0")), order, arrivals)


def test_whole_weights_and_small_models_need_no_compiled_kernel(convert, native_bench, monkeypatch):
    assert native_bench(convert("bf16")).generator.predictor.fast is None
    monkeypatch.setattr(load, "WORTH_COMPILING", 50_000_000)
    assert native_bench(convert("q8_0")).generator.predictor.fast is None


def test_a_compiler_that_does_not_load_is_left_out(convert, native_bench, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "engine.native.team", None)
    assert native_bench(convert("q8_0")).generator.predictor.fast is None
    assert "compiled kernels are left out" in caplog.text


def test_the_heaviest_layers_of_a_quantised_codec_are_native(
    convert, native_bench, monkeypatch, caplog
):
    monkeypatch.setattr("engine.codec.packed._MANY", 0)  # all layers, which is more than is heard
    monkeypatch.setattr("engine.codec.choice.LEAST_DB", 14.0)
    files = convert("q8_0")
    with caplog.at_level("INFO", "framecast.engine"):
        bench = native_bench(files)
    assert "heaviest layers in int8" in caplog.text
    plain = Bench(files)
    request = REQUESTS[0]
    decoder = bench.vocoder._decoder
    assert isinstance(decoder, PackedDecoder)
    assert any(type(part).__name__ == "Native" for part in decoder.modules())
    sound = plain.run([request], [0])[request.sampling.seed]
    codes = torch.tensor(plain.codes[request.sampling.seed]).T[None]
    with torch.inference_mode():
        got = decoder(codes)[0].numpy()
    assert np.square(got - sound).mean() ** 0.5 < 0.2 * sound.std()


def test_a_named_precision_of_the_codec_is_kept_throughout(convert, native_bench, monkeypatch):
    monkeypatch.setattr("engine.codec.packed._MANY", 0)
    decoder = native_bench(convert("q8_0"), codec_dtype="f32").vocoder._decoder
    assert not any(type(part).__name__ == "Native" for part in decoder.modules())
