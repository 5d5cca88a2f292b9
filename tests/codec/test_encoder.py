"""The codec encoder on random weights: frames, chunks, causality, and the nearest codebook rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.codec import encoder as module
from engine.codec.encoder import CodecEncoder, ResidualEncoder, StridedConv1d
from engine.config import CodecEncoderSpec, DecoderSpec
from engine.errors import ModelFileError
from engine.gguf.spec import read_codec_spec
from engine.gguf.tensors import TensorFile
from engine.pieces import run_through
from tests.codec.specs import randomise, transformer_spec
from tests.gguf.files import rewrite

SPEC = CodecEncoderSpec(
    sample_rate=24000,
    samples_per_frame=1920,
    filters=4,
    kernel=7,
    last_kernel=3,
    residual_kernel=3,
    residual_layers=1,
    dilation_growth=2,
    compress=2,
    strides=(4, 5, 6, 8),
    downsample_stride=2,
    downsample_kernel=4,
    transformer=transformer_spec(),
    semantic_quantizers=1,
    acoustic_quantizers=3,
    codebook_size=64,
    codebook_width=6,
)
SMALL = replace(
    SPEC, samples_per_frame=24, strides=(3, 4), residual_layers=2, semantic_quantizers=2
)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


def random_encoder(spec=SPEC, seed=0):
    return randomise(CodecEncoder(spec), seed).eval()


def noise(samples, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(samples).astype("f4"))


def at_once(result):
    """Steps that are done already."""
    yield
    return result


@pytest.mark.parametrize("samples", [1, 1919, 1920, 1921, 9600, 75288])
def test_every_frame_a_clip_starts_has_codes(samples):
    codes = random_encoder()(noise(samples))
    assert codes.shape == (4, -(-samples // 1920))
    assert codes.dtype == torch.int64
    assert 0 <= int(codes.min()) <= int(codes.max()) < 64


@pytest.mark.parametrize("samples", [1, 23, 24, 25, 1000])
def test_other_strides_and_more_residual_layers_give_the_same_rule(samples):
    codes = random_encoder(SMALL)(noise(samples))
    assert codes.shape == (5, -(-samples // 24))


@pytest.mark.parametrize("seconds", [0.04, 0.2, 1.0])
def test_columns_do_not_depend_on_how_the_clip_is_chunked(seconds, monkeypatch):
    encoder, pcm = random_encoder(), noise(75_289)
    whole = encoder._layers(pcm[None, None], {})
    monkeypatch.setattr(module, "CHUNK_S", seconds)
    torch.testing.assert_close(run_through(encoder._convolve(pcm)), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("columns", "frames"), [(7, 3), (40, 1), (10_000, 10_000)])
def test_codes_do_not_depend_on_the_pieces(columns, frames, monkeypatch):
    encoder, pcm = random_encoder(), noise(1920 * 60 + 5)
    codes = encoder(pcm)
    monkeypatch.setattr(module, "COLUMNS", columns)
    monkeypatch.setattr(module, "FRAMES", frames)
    pieces = sum(1 for _ in encoder.steps(pcm))
    assert torch.equal(encoder(pcm), codes)
    assert pieces == 41 + 2 * -(-122 // columns) + -(-61 // frames)


def test_a_clip_may_be_encoded_between_the_pieces_of_another():
    encoder, one, other = random_encoder(), noise(1920 * 9, 1), noise(1920 * 9, 2)
    steps = encoder.steps(one)
    for _ in range(4):
        next(steps)
    between = encoder(other)
    assert torch.equal(run_through(steps), encoder(one))
    assert torch.equal(between, encoder(other))


def test_memory_of_the_convolutions_does_not_grow_with_the_clip(monkeypatch):
    heard = []
    forward = StridedConv1d.forward
    monkeypatch.setattr(
        StridedConv1d,
        "forward",
        lambda self, x, carried=None: heard.append(x.shape[-1]) or forward(self, x, carried),
    )
    random_encoder()(noise(24000 * 7))
    assert max(heard) == 2_880


def test_what_comes_later_changes_no_earlier_frame():
    pcm = noise(1920 * 20)
    changed = torch.cat((pcm[: 1920 * 12], noise(1920 * 8, seed=1)))
    encoder = random_encoder()
    one, other = encoder(pcm), encoder(changed)
    assert torch.equal(one[:, :12], other[:, :12])
    assert not torch.equal(one[:, 12:], other[:, 12:])


def test_attention_has_no_window():
    one_layer = replace(SPEC, transformer=transformer_spec(layers=1))
    encoder = random_encoder(one_layer)
    x = torch.randn(1, 400, 24, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, :100] *= -1  # the last query is further away than Mimi's window of 250
    last, other = (run_through(encoder._transform(each))[:, -1] for each in (x, changed))
    assert (last - other).abs().max() > 1e-5


def test_a_strided_convolution_pads_with_zeros_up_to_the_stride():
    conv = StridedConv1d(1, 1, 6, stride=3)
    x = torch.randn(1, 1, 7)
    padded = torch.nn.functional.pad(x, (3, 2))
    expected = torch.nn.functional.conv1d(padded, conv.weight, conv.bias, stride=3)
    torch.testing.assert_close(conv(x), expected)
    assert expected.shape[-1] == 3


def test_the_downsampling_repeats_the_outermost_columns():
    encoder = random_encoder()
    columns = torch.randn(1, 24, 5, generator=torch.Generator().manual_seed(0))
    encoder._convolve = lambda _: at_once(columns)
    encoder._transform = at_once
    seen = []
    encoder.downsample.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoder(torch.zeros(1))
    repeated = [0, 0, 0, 1, 2, 3, 4, 4]
    assert torch.equal(seen[0], columns[..., repeated])


def test_each_codebook_takes_the_row_nearest_to_what_is_left():
    quantizer = randomise(ResidualEncoder(SPEC, 3), 0)
    x = torch.randn(1, 24, 50, generator=torch.Generator().manual_seed(1))
    codes = quantizer(x)
    rest = quantizer.input_proj(x)[0].T.double()
    for index, row in enumerate(codes):
        book = quantizer.get_submodule(str(index)).codebook.double()
        distances = (rest[:, None] - book).square().sum(-1)
        assert torch.equal(row, distances.argmin(1))
        rest = rest - book[row]
    assert all(len(row.unique()) > 10 for row in codes)


def test_every_width_is_read_from_the_file(base):
    with TensorFile(base.codec) as file:
        spec = read_codec_spec(file).encoder
    stack = DecoderSpec(32, 64, 2, 2, 2, 16, 10000.0, spec.transformer.norm_eps, 1 << 24)
    assert spec == replace(SPEC, transformer=stack, codebook_width=16)
    assert spec.transformer.norm_eps == pytest.approx(1e-5)


def test_a_file_without_the_tensors_has_no_encoder(base, tmp_path):
    path = rewrite(base.codec, tmp_path / "plain.gguf", {}, "tok_enc.")
    with TensorFile(path) as file:
        assert read_codec_spec(file).encoder is None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("encode_downsample_rate", 960, "1920, 2 times the product"),
        ("encoder_valid_num_quantizers", 1, "an integer from 2 to 64"),
        ("encoder.num_filters", 3, "a multiple of 2"),
        ("encoder.num_filters", 1 << 18, "at most 65536"),
        ("encoder.codebook_size", 32, "`encoder.codebook_size` asks for"),
        ("encoder.head_dim", 15, "a multiple of 2"),
        ("encoder.rope_theta", None, "is missing"),
    ],
)
def test_a_value_that_cannot_be_is_named(key, value, expected, base, tmp_path):
    changes = {f"qwen3-tts-tokenizer.{key}": value}
    path = rewrite(base.codec, tmp_path / "changed.gguf", changes)
    with TensorFile(path) as file, pytest.raises(ModelFileError) as caught:
        read_codec_spec(file)
    assert expected in str(caught.value)
    assert key.removeprefix("encoder.") in str(caught.value)
