"""Talker and predictor in packed kernels against their plain twins, from the same file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import engine
from engine.errors import ModelFileError
from engine.gguf.spec import read_model_spec
from engine.gguf.tensors import TensorFile, load_module
from engine.models.code_predictor import CodePredictor
from engine.models.fused import FusedLayer, pair_order
from engine.models.kernels import Plan, module_nbytes
from engine.models.kv_cache import KVCache
from engine.models.layers import attend_causal
from engine.models.packing import load_packed
from engine.models.talker import Talker
from engine.tts import load
from tests.checkpoints import TINY, Stack, make_checkpoint
from tests.tts.bench import Bench
from tests.tts.test_isolation import ORDERS, REQUESTS

# Wide enough that rounding averages out as it does at full size, and whole blocks of Q8_0.
CASE = replace(
    TINY,
    name="packed",
    talker=Stack(hidden=256, ffn=384, layers=3, heads=4, kv_heads=2, head_dim=64),
    predictor=Stack(hidden=128, ffn=256, layers=2, heads=4, kv_heads=2, head_dim=32),
    text_hidden=96,
    head_gain=1.0,
)
PLANS = {
    "int8": (Plan("int8", "f32"), "q8_0"),
    "int8-of-4-bits": (Plan("int8", "f32"), "q4_0"),
    "int8w": (Plan("int8w", "f32"), "q8_0"),
    "bf16": (Plan("bf16", "bf16"), "bf16"),
    "f32": (Plan("f32", "f32"), "f32"),
}
POSITIONS = 20


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    root = tmp_path_factory.mktemp("packed")
    checkpoint = make_checkpoint(CASE, root / "checkpoint")
    return lambda kind: engine.convert_checkpoint(checkpoint, root / kind, kind)


@pytest.fixture(scope="module")
def q8(convert):
    return convert("q8_0")


def empty(spec) -> tuple[Talker, CodePredictor]:
    with torch.device("meta"):
        return Talker(spec.talker), CodePredictor(spec.talker)


@pytest.fixture(scope="module", params=PLANS)
def twins(request, convert):
    """Plain talker and predictor, and the packed ones."""
    plan, kind = PLANS[request.param]
    files = convert(kind)
    spec = read_model_spec(files.talker, files.codec)
    plain, fast = empty(spec), empty(spec)
    with TensorFile(files.talker) as file:
        for module, prefix in zip(plain, ("talker.", "code_pred."), strict=True):
            load_module(module, file, prefix, device="cpu", dtype=torch.float32)
        load_packed(*fast, spec.talker, file, plan)
    return plain, fast


def inputs(talker: Talker) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    text = torch.randint(60, (2, POSITIONS), generator=generator)
    codes = torch.randint(64, (2, POSITIONS), generator=generator)
    return talker.embed_text(text) + talker.codec_embd(codes)


def divergence(wanted: torch.Tensor, got: torch.Tensor) -> float:
    p, q = wanted.log_softmax(-1), got.log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


@torch.inference_mode()
def test_every_packed_layer_is_its_plain_twin(twins):
    (plain, _), (fast, _) = twins
    x = inputs(plain)
    ropes = plain.rope(POSITIONS).span(0, POSITIONS), fast.rope(POSITIONS).span(0, POSITIONS)
    for layer, twin in zip(plain.blk, fast.blk, strict=True):
        wanted, got = layer(x, ropes[0], attend_causal), twin(x, ropes[1], attend_causal)
        assert F.cosine_similarity((got - x).flatten(), (wanted - x).flatten(), dim=0) >= 0.999
        x = wanted


@torch.inference_mode()
def test_packed_scores_are_the_plain_scores(twins):
    (plain, _), (fast, _) = twins
    x = inputs(plain)

    def scores(talker: Talker) -> torch.Tensor:
        rope = talker.rope(POSITIONS).span(0, POSITIONS)
        return talker.logits(talker(x, rope, [attend_causal] * len(talker.blk)))

    assert divergence(scores(plain), scores(fast)) <= 1e-3
    torch.testing.assert_close(inputs(fast), x, atol=0.1, rtol=0.02)


@torch.inference_mode()
def test_packed_predictor_scores_are_the_plain_scores(twins):
    (talker, plain), (_, fast) = twins
    x = inputs(talker)[:, : len(plain.lm_head) + 1]

    def scores(predictor: CodePredictor) -> torch.Tensor:
        rope = predictor.rope(x.shape[1]).span(0, x.shape[1])
        hidden = predictor(x, rope, [attend_causal] * len(predictor.blk))[:, 1:]
        pairs = zip(predictor.lm_head, hidden.unbind(1), strict=True)
        return torch.stack([head(each) for head, each in pairs])

    assert divergence(scores(plain), scores(fast)) <= 1e-3


@torch.inference_mode()
def test_packed_single_steps_from_a_narrow_cache_equal_the_whole_sequence(twins):
    _, (fast, _) = twins
    x, table, spec = inputs(fast), fast.rope(POSITIONS), fast.spec
    whole = fast(x, table.span(0, POSITIONS), [attend_causal] * spec.layers)
    cache = KVCache(
        spec, 2, POSITIONS, device=torch.device("cpu"), dtype=torch.bfloat16, nan_fill=True
    )
    for lane, count in enumerate((5, 9)):
        for start, end in ((0, 3), (3, count)):  # a prompt in two pieces
            piece = x[lane : lane + 1, start:end]
            fast(piece, table.span(start, end), cache.prefill(lane, end - start))
    for step in range(4):
        at = torch.tensor([5 + step, 9 + step])
        given = x[torch.arange(2), at][:, None]
        out = fast(given, table.rows(at), cache.decode([0, 1]))[:, 0]
        wanted = whole[torch.arange(2), at]
        assert F.cosine_similarity(out.flatten(), wanted.flatten(), dim=0) >= 0.999


def test_reordered_heads_keep_their_scores():
    order = pair_order(8)
    assert order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_packed_weights_take_about_as_much_memory_as_the_file(q8):
    spec = read_model_spec(q8.talker, q8.codec)
    talker, predictor = empty(spec)
    with TensorFile(q8.talker) as file:
        load_packed(talker, predictor, spec.talker, file, Plan("int8", "f32"))
    stacks = sum(module_nbytes(module.blk) for module in (talker, predictor))
    weights = sum(
        int(np.prod(shape))
        for name, shape in _shapes(q8.talker).items()
        if ".blk." in name and len(shape) == 2
    )
    assert weights <= stacks < 1.1 * weights
    assert all(isinstance(block, FusedLayer) for block in (*talker.blk, *predictor.blk))


def _shapes(path):
    with TensorFile(path) as file:
        return dict(file.shapes)


def test_a_file_that_lacks_a_tensor_is_refused_before_anything_is_packed(q8):
    spec = read_model_spec(q8.talker, q8.codec)
    more = replace(spec.talker, talker=replace(spec.talker.talker, layers=4))
    talker, predictor = empty(replace(spec, talker=more))
    with TensorFile(q8.talker) as file, pytest.raises(ModelFileError, match=r"talker\.blk\.3"):
        load_packed(talker, predictor, more, file, Plan("int8", "f32"))
    assert all(value.is_meta for value in talker.parameters())


@pytest.fixture
def packed_bench(monkeypatch, q8):
    monkeypatch.setattr(load, "choose", lambda *_: Plan("int8", "bf16"))
    monkeypatch.setattr(load, "choose_dtype", lambda _: torch.bfloat16)
    return lambda **config: Bench(q8, kernels="auto", **config)


def check_neighbours(bench: Bench, order, arrivals) -> None:
    """Every request draws the codes it draws alone, and sounds the same within rounding."""
    solo = {}
    for request in REQUESTS:
        sound = bench.run([request], [0])[request.sampling.seed]
        solo[request.sampling.seed] = (list(bench.codes[request.sampling.seed]), sound)
    together = bench.run([REQUESTS[i] for i in order], arrivals)
    for seed, (codes, sound) in solo.items():
        assert bench.codes[seed] == codes
        assert together[seed].shape == sound.shape
        # The codec's chunks differ. What that changes in the seventh digit may round to another
        # BF16 value.
        assert np.square(together[seed] - sound).mean() ** 0.5 < 0.02 * sound.std()


@pytest.mark.parametrize(("order", "arrivals"), ORDERS)
def test_packed_codes_do_not_depend_on_the_neighbours(packed_bench, order, arrivals):
    check_neighbours(packed_bench(), order, arrivals)


def test_reference_mode_and_a_named_precision_use_no_packed_kernel(q8, monkeypatch):
    monkeypatch.setattr(load, "choose", None)  # calling it would fail
    for config in ({"reference": True}, {"dtype": "f32"}, {"kernels": "plain"}):
        bench = Bench(q8, **{"kernels": "auto", **config})
        assert not bench.generator.talker.packed
        assert bench.generator.cache.k.dtype == torch.float32


def test_keys_and_values_are_kept_as_asked_for(packed_bench, q8):
    assert packed_bench().generator.cache.k.dtype == torch.bfloat16
    assert packed_bench(kv_dtype="f32").generator.cache.k.dtype == torch.float32
    assert Bench(q8, kv_dtype="bf16").generator.cache.k.dtype == torch.bfloat16


def test_the_codec_decodes_in_the_precision_asked_for(packed_bench, monkeypatch):
    assert packed_bench().vocoder._decoder.dtype == torch.float32, "BF16 is far from it"
    assert packed_bench(codec_dtype="bf16").vocoder._decoder.dtype == torch.bfloat16
    monkeypatch.setattr("engine.codec.choice.LEAST_DB", -100.0)
    assert packed_bench().vocoder._decoder.dtype == torch.bfloat16
    assert packed_bench(codec_dtype="f32").vocoder._decoder.dtype == torch.float32


def test_the_chosen_kernels_are_logged(q8, caplog):
    with caplog.at_level("INFO", "framecast.engine"):
        Bench(q8, kernels="auto")
    assert "for quantised weights" in caplog.text
    assert "ms at width 4" in caplog.text
