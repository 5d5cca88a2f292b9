"""Which type a tensor is stored as, and the conversion to it."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.convert import quantize as module
from engine.convert.quantize import TYPES, encode, parse_type, stored_size, tensor_type
from engine.errors import InvalidRequest, ModelFileError

QUANTISED = ("q8_0", "q5_0", "q4_0")
PLAIN = ("f32", "bf16", "f16")


@pytest.mark.parametrize("name", [*PLAIN, *QUANTISED, "Q8_0", "F16"])
def test_a_type_is_known_by_its_name_in_either_case(name):
    assert parse_type(name) is GGMLQuantizationType[name.upper()]


@pytest.mark.parametrize("name", ["", "q4_k", "int8", "iq4_nl"])
def test_an_unknown_type_is_refused_with_the_valid_ones(name):
    with pytest.raises(InvalidRequest) as caught:
        parse_type(name)
    assert caught.value.field == "type"
    assert all(f"`{valid}`" in str(caught.value) for valid in (*PLAIN, *QUANTISED))


@pytest.mark.parametrize("wanted", [*PLAIN, *QUANTISED])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("talker.output_norm.weight", (1024,)),
        ("tok_dec.dec.1.snake.alpha", (1536,)),
        ("tok_dec.vq_first.0.codebook", (2048, 256)),
        ("tok_dec.vq_rest.output_proj.weight", (512, 256, 1)),
        ("tok_enc.vq_acoustic.input_proj.weight", (256, 512, 1)),
        ("spk_enc.fc.weight", (1024, 3072, 1)),
    ],
)
def test_what_a_search_or_an_activation_depends_on_stays_f32(wanted, name, shape):
    assert tensor_type(name, shape, TYPES[wanted]) is GGMLQuantizationType.F32


@pytest.mark.parametrize("wanted", QUANTISED)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("tok_dec.pre_conv.weight", (1024, 512, 3)),
        ("tok_dec.dec.1.conv_t.weight", (1536, 768, 16)),
        ("spk_enc.conv0.weight", (512, 128, 5)),
        ("spk_enc.mfa.weight", (1536, 1536, 1)),
        ("code_pred.mtp_proj.weight", (64, 48)),
    ],
)
def test_rows_without_whole_blocks_become_f16(wanted, name, shape):
    assert tensor_type(name, shape, TYPES[wanted]) is GGMLQuantizationType.F16


@pytest.mark.parametrize("wanted", [*PLAIN, *QUANTISED])
def test_every_other_matrix_takes_the_type_asked_for(wanted):
    for name in ("talker.text_embd.weight", "talker.blk.0.attn_q.weight", "tok_enc.blk.0.ffn_up"):
        assert tensor_type(name, (96, 64), TYPES[wanted]) is TYPES[wanted]


@pytest.mark.parametrize("wanted", PLAIN)
def test_a_convolution_takes_a_plain_type(wanted):
    assert tensor_type("tok_dec.pre_conv.weight", (64, 32, 3), TYPES[wanted]) is TYPES[wanted]


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*PLAIN, *QUANTISED])
def test_encoding_in_parts_equals_the_package_quantiser(name, source, monkeypatch):
    values = torch.randn(7, 2, 64, generator=torch.Generator().manual_seed(3)).to(source)
    kind = TYPES[name]
    monkeypatch.setattr(module, "_CHUNK", 3 * 64)
    encoded = encode("t", values, kind)
    whole = quantize(values.float().numpy(), kind)
    assert encoded.nbytes == stored_size(values.shape, kind)
    assert encoded.tobytes() == whole.tobytes()
    back = dequantize(encoded.reshape(14, -1), kind).reshape(values.shape)
    assert np.abs(back - values.float().numpy()).max() < 0.4


def test_a_value_beyond_f16_is_refused_by_name():
    values = torch.tensor([[1.0, 70000.0]])
    with pytest.raises(ModelFileError, match=r"`a\.weight` holds the value 70000.*`bf16`"):
        encode("a.weight", values, GGMLQuantizationType.F16)
    assert encode("a.weight", values, GGMLQuantizationType.BF16).nbytes == 4
