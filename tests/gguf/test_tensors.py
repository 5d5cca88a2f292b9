"""Stored tensors come back as values, and modules are filled or refused whole."""

import gguf.quants
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from torch import nn

from engine.errors import ModelFileError
from engine.gguf import tensors
from engine.gguf.tensors import TensorFile, load_module
from tests.gguf import files

RANDOM = np.random.RandomState(7)


def stored(tmp_path, kind: str, values: np.ndarray) -> TensorFile:
    packed = gguf.quants.quantize(values, GGMLQuantizationType[kind])
    return TensorFile(files.write(tmp_path / "m.gguf", {"t": packed}, t=kind))


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        ("F32", 0.0),
        ("F16", 2**-11),
        ("BF16", 2**-8),
        ("Q8_0", 1 / 200),
        ("Q5_0", 1 / 15),
        ("Q5_1", 1 / 30),
        ("Q4_0", 1 / 7),
        ("Q4_1", 1 / 14),
    ],
)
def test_a_type_comes_back_within_its_own_precision(tmp_path, kind, tolerance):
    values = RANDOM.uniform(-1, 1, (6, 3, 64)).astype(np.float32)
    with stored(tmp_path, kind, values) as file:
        assert file.type_of("t") == kind
        assert file.shapes == {"t": (6, 3, 64)}
        loaded = file.load("t")
    assert loaded.dtype == torch.float32
    assert np.abs(loaded.numpy() - values).max() <= tolerance


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_0"])
def test_rows_are_read_as_they_are_needed_and_none_when_none_are(tmp_path, kind):
    values = RANDOM.uniform(-1, 1, (6, 64)).astype(np.float32)
    with stored(tmp_path, kind, values) as file:
        rows, whole = file.rows("t"), file.load("t")
    asked = torch.tensor([[4, 0], [0, 5]])
    assert torch.equal(rows(asked), whole[asked])
    assert rows(torch.zeros(0, dtype=torch.int64)).shape == (0, 64)
    assert rows(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 64)


def half(value: float) -> bytes:
    return np.float16(value).tobytes()


# One block whose packed fields are all equal, and the value the format's formula gives.
K_BLOCKS = {
    # scale 1, minimum 2, quant 3: 2 * 1 * 3 - 0.5 * 2
    "Q2_K": (b"\x21" * 16 + b"\xff" * 64 + half(2) + half(0.5), 5.0),
    # high bit set, quant 3, scale 33 - 32: 2 * 1 * 3
    "Q3_K": (b"\xff" * 32 + b"\xff" * 64 + b"\x11" * 8 + b"\xaa" * 4 + half(2), 6.0),
    # scale 3, minimum 2, quant 5: 2 * 3 * 5 - 0.5 * 2
    "Q4_K": (
        half(2) + half(0.5) + b"\x03" * 4 + b"\x02" * 4 + b"\x23" * 4 + b"\x55" * 128,
        29.0,
    ),
    # the same with the fifth bit: 2 * 3 * 21 - 0.5 * 2
    "Q5_K": (
        half(2)
        + half(0.5)
        + b"\x03" * 4
        + b"\x02" * 4
        + b"\x23" * 4
        + b"\xff" * 32
        + b"\x55" * 128,
        125.0,
    ),
    # quant 35 - 32, scale 2: 0.5 * 2 * 3
    "Q6_K": (b"\x33" * 128 + b"\xaa" * 64 + b"\x02" * 16 + half(0.5), 3.0),
}


@pytest.mark.parametrize("kind", K_BLOCKS)
def test_a_k_block_is_decoded_by_its_formula(tmp_path, kind):
    block, value = K_BLOCKS[kind]
    raw = np.frombuffer(block * 4, np.uint8).reshape(2, -1)
    with TensorFile(files.write(tmp_path / "m.gguf", {"t": raw}, t=kind)) as file:
        loaded = file.load("t")
    assert loaded.shape == (2, 512)
    assert (loaded == value).all()


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0"])
def test_loading_in_parts_equals_loading_at_once(tmp_path, kind, monkeypatch):
    values = RANDOM.standard_normal((37, 64)).astype(np.float32)
    with stored(tmp_path, kind, values) as file:
        whole = file.load("t")
        monkeypatch.setattr(tensors, "_CHUNK", 5 * 64)
        assert torch.equal(file.load("t"), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_tensor_is_loaded_in_the_dtype_asked_for(tmp_path, dtype):
    values = RANDOM.standard_normal((4, 32)).astype(np.float32)
    with stored(tmp_path, "F32", values) as file:
        assert torch.equal(file.load("t", dtype), torch.from_numpy(values).to(dtype))


def test_loaded_tensors_outlive_the_file_and_are_writable(tmp_path):
    values = RANDOM.standard_normal((4, 32)).astype(np.float32)
    with stored(tmp_path, "F32", values) as file:
        loaded = file.load("t")
    loaded += 1
    assert np.array_equal(loaded.numpy(), values + 1)


def test_an_unknown_tensor_is_named(tmp_path):
    with stored(tmp_path, "F32", np.zeros((2, 2), np.float32)) as file:
        for call in (file.load, file.type_of):
            with pytest.raises(ModelFileError, match="has no tensor `u`"):
                call("u")


def test_the_architecture_is_empty_where_the_file_has_none(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(files.header())
    with TensorFile(path) as file:
        assert file.architecture == ""


class Layer(nn.Module):
    keep_f32 = frozenset({"norm"})

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 3)
        self.norm = nn.Parameter(torch.empty(3))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blk = nn.ModuleList(Layer() for _ in range(2))
        self.conv = nn.Conv1d(5, 1, 3, bias=False)
        self.register_buffer("table", torch.empty(2, 2))


def meta_stack() -> Stack:
    with torch.device("meta"):
        return Stack()


def arrays(prefix: str = "part.") -> dict[str, np.ndarray]:
    return {
        prefix + name: RANDOM.standard_normal(tuple(entry.shape)).astype(np.float32)
        for name, entry in meta_stack().state_dict().items()
    }


def test_a_module_on_meta_is_filled_under_its_prefix(tmp_path):
    values = arrays()
    module = meta_stack()
    with TensorFile(files.write(tmp_path / "m.gguf", values)) as file:
        load_module(module, file, "part.", device="cpu", dtype=torch.float32)
    state = module.state_dict()
    assert {f"part.{name}" for name in state} == set(values)
    for name, tensor in state.items():
        assert np.array_equal(tensor.numpy(), values[f"part.{name}"])
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_a_module_takes_the_dtype_except_what_it_keeps_in_f32(tmp_path):
    module = meta_stack()
    with TensorFile(files.write(tmp_path / "m.gguf", arrays())) as file:
        load_module(module, file, "part.", device="cpu", dtype=torch.bfloat16)
    kept = {name for name, tensor in module.state_dict().items() if tensor.dtype != torch.bfloat16}
    assert kept == {"blk.0.norm", "blk.1.norm"}
    assert module.blk[0].norm.dtype == torch.float32


def test_dimensions_of_size_one_at_either_end_may_differ(tmp_path):
    values = arrays()
    values["part.conv.weight"] = values["part.conv.weight"][0]
    values["part.blk.0.proj.weight"] = values["part.blk.0.proj.weight"][:, :, None]
    module = meta_stack()
    with TensorFile(files.write(tmp_path / "m.gguf", values)) as file:
        load_module(module, file, "part.", device="cpu", dtype=torch.float32)
    assert module.conv.weight.shape == (1, 5, 3)
    assert np.array_equal(module.conv.weight[0].numpy(), values["part.conv.weight"])
    assert module.blk[0].proj.weight.shape == (3, 4)


def test_all_missing_and_wrong_tensors_are_reported_at_once_and_nothing_is_filled(tmp_path):
    values = arrays()
    del values["part.blk.0.norm"], values["part.table"]
    values["part.blk.1.norm"] = np.zeros(9, np.float32)
    module = meta_stack()
    with (
        TensorFile(files.write(tmp_path / "m.gguf", values)) as file,
        pytest.raises(ModelFileError) as caught,
    ):
        load_module(module, file, "part.", device="cpu", dtype=torch.float32)
    message = str(caught.value)
    assert "2 tensors missing: `part.table`, `part.blk.0.norm`" in message
    assert "1 tensor of the wrong shape: `part.blk.1.norm` is [9] instead of [3]" in message
    assert all(tensor.is_meta for tensor in module.state_dict().values())


def test_a_long_list_of_missing_tensors_is_cut_and_counted(tmp_path):
    with torch.device("meta"):
        module = nn.ModuleList(nn.Linear(2, 2) for _ in range(8))
    with (
        TensorFile(files.write(tmp_path / "m.gguf", {"a": np.zeros(2, np.float32)})) as file,
        pytest.raises(ModelFileError) as caught,
    ):
        load_module(module, file, "x.", device="cpu", dtype=torch.float32)
    message = str(caught.value)
    assert "16 tensors missing" in message
    assert message.count("`x.") == 10
    assert message.endswith("and 6 more")


def test_a_file_that_is_not_gguf_is_refused_on_opening(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(files.header(version=9))
    with pytest.raises(ModelFileError, match="version 9 is not supported"):
        TensorFile(path)
