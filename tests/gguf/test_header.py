"""Headers: good ones are read, damaged and crafted ones refused at no cost."""

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.header import read_header
from tests.gguf import files
from tests.gguf.files import ARRAY, STRING, U32, entry, header, padded, text

HUGE = 1 << 60


def refusal(path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def refusal_of(tmp_path, content: bytes) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return refusal(path)


def test_a_written_file_reads_back_with_row_major_shapes(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path = files.write(tmp_path / "m.gguf", {"a": values, "b": values[0, 0]})
    found = read_header(path)
    assert found.metadata == {"general.architecture": "test", "general.name": "a name"}
    assert {name: tensor.shape for name, tensor in found.tensors.items()} == {
        "a": (2, 3, 4),
        "b": (4,),
    }
    start = found.tensors["a"].offset
    stored = np.frombuffer(path.read_bytes()[start : start + 96], np.float32)
    assert (stored == values.ravel()).all()


def test_every_kind_of_metadata_value_is_read(tmp_path):
    writer = files.GGUFWriter(str(tmp_path / "m.gguf"), "test")
    wanted = {
        "u8": 200,
        "i8": -3,
        "u16": 60000,
        "i16": -300,
        "u32": 1 << 31,
        "i32": -(1 << 31),
        "u64": 1 << 63,
        "i64": -(1 << 62),
        "f32": 0.9,
        "f64": 0.1,
        "flag": True,
        "text": "héllo ▁",
        "ints": (1, -2, 3),
        "floats": (0.5, 2.0),
        "texts": ("a", "", "ü"),
    }
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        key = kind.replace("uint", "u").replace("int", "i")
        getattr(writer, f"add_{kind}")(key, wanted[key])
    writer.add_float32("f32", 0.9)
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_string("text", wanted["text"])
    for key in ("ints", "floats", "texts"):
        writer.add_array(key, list(wanted[key]))
    path = files.finish(writer, tmp_path / "m.gguf")
    found = dict(read_header(path).metadata)
    assert found.pop("general.architecture") == "test"
    assert found == wanted


def test_version_2_is_read_like_version_3(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(padded(header(entry(), n_tensors=1, version=2), b"\0" * 32))
    assert read_header(path).version == 2


def test_a_last_tensor_without_padding_is_complete(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(padded(header(entry(dims=(3,)), n_tensors=1), b"\0" * 12))
    assert read_header(path).tensors["t"].nbytes == 12


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "pipe.gguf` is not a regular file" in refusal(tmp_path / "pipe.gguf")


def test_a_device_is_refused():
    assert "`/dev/zero` is not a regular file" in refusal(Path("/dev/zero"))


def test_a_missing_file_a_directory_and_an_empty_file_are_told_apart(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.gguf")
    assert "is a directory" in refusal(tmp_path)
    assert "is empty" in refusal_of(tmp_path, b"")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
        (b"\n  <html lang='en'>", "HTML page"),
        (struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"', "safetensors"),
        (b"PK\x03\x04rest of an archive", "zip archive"),
        (b"RIFF....WAVE", "b'RIFF'"),
        (b"GG", "b'GG'"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content, expected):
    message = refusal_of(tmp_path, content)
    assert "not a GGUF file" in message
    assert expected in message


@pytest.mark.parametrize("version", [0, 1, 4, 999])
def test_an_unsupported_version_is_named(tmp_path, version):
    message = refusal_of(tmp_path, header(version=version))
    assert f"version {version} is not supported" in message


def test_a_big_endian_file_is_called_that(tmp_path):
    assert "big-endian" in refusal_of(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))


def test_a_file_cut_in_its_tensor_data_is_refused_with_both_sizes(tmp_path):
    path = files.write(tmp_path / "m.gguf", {"a": np.zeros((64, 64), np.float32)})
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 1):
        message = refusal_of(tmp_path, whole[:size])
        assert "truncated" in message
        assert f"need {len(whole)} bytes, it has {size}" in message


def test_a_file_cut_in_its_last_padding_is_refused(tmp_path):
    path = files.write(tmp_path / "m.gguf", {"a": np.zeros(5, np.float32)})
    whole = path.read_bytes()
    assert "truncated" in refusal_of(tmp_path, whole[:-1])


def test_a_file_cut_anywhere_in_its_header_is_refused(tmp_path):
    path = files.write(tmp_path / "m.gguf", {"a": np.zeros(32, np.float32)})
    whole = path.read_bytes()
    for size in range(4, len(whole) - 128):
        assert "truncated" in refusal_of(tmp_path, whole[:size])


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, number: int, items: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, number) + items


CRAFTED = {
    "dimensions": (
        header(text("t") + struct.pack("<I", 1_000_000) + b"\0" * 64, n_tensors=1),
        "declares 1000000 dimensions",
    ),
    "no dimensions": (header(entry(dims=()) + b"\0" * 8, n_tensors=1), "declares 0 dimensions"),
    "tensor count": (header(n_tensors=HUGE), f"declares {HUGE} tensors"),
    "metadata count": (header(n_metadata=HUGE), f"declares {HUGE} metadata entries"),
    "key length": (
        header(metadata=struct.pack("<Q", HUGE) + b"\0" * 32, n_metadata=1),
        f"a metadata key is {HUGE} bytes long",
    ),
    "name length": (
        header(struct.pack("<Q", HUGE) + b"\0" * 32, n_tensors=1),
        f"a tensor name is {HUGE} bytes long",
    ),
    "string length": (
        header(metadata=pair("k", STRING, struct.pack("<Q", HUGE)), n_metadata=1),
        f"`k` at byte 45 needs {HUGE} bytes",
    ),
    "array length": (
        header(metadata=pair("k", ARRAY, array(U32, HUGE)), n_metadata=1),
        f"declares {HUGE} items in `k`",
    ),
    "string array length": (
        header(metadata=pair("k", ARRAY, array(STRING, HUGE)), n_metadata=1),
        f"declares {HUGE} strings in `k`",
    ),
    "string in an array": (
        header(metadata=pair("k", ARRAY, array(STRING, 1, struct.pack("<Q", HUGE))), n_metadata=1),
        "`k` runs past the end",
    ),
    "nested array": (
        header(metadata=pair("k", ARRAY, array(ARRAY, 1, b"\0" * 32)), n_metadata=1),
        "unsupported item type 9",
    ),
    "value type": (header(metadata=pair("k", 77, b"\0" * 8), n_metadata=1), "value type 77"),
    "key twice": (
        header(metadata=pair("k", U32, b"\0" * 4) * 2, n_metadata=2),
        "`k` appears twice",
    ),
    "text": (
        header(metadata=pair("k", STRING, text(b"\xff\xfe")), n_metadata=1),
        "not valid UTF-8",
    ),
    "text in an array": (
        header(metadata=pair("k", ARRAY, array(STRING, 1, text(b"\xff"))), n_metadata=1),
        "has an item at byte",
    ),
    "alignment": (
        header(metadata=pair("general.alignment", U32, struct.pack("<I", 24)), n_metadata=1),
        "must be a power of two",
    ),
    "named type": (header(entry(kind=20), n_tensors=1), "unsupported type IQ4_NL"),
    "unknown type": (header(entry(kind=4040), n_tensors=1), "unsupported type 4040"),
    "empty dimension": (header(entry(dims=(8, 0)), n_tensors=1), "empty dimension: [0, 8]"),
    "blocks": (header(entry(dims=(33,), kind=8), n_tensors=1), "not a multiple of 32 (Q8_0)"),
    "size": (header(entry(dims=(1 << 62, 1 << 62)), n_tensors=1), "the file is truncated"),
    "far offset": (header(entry(offset=1 << 40), n_tensors=1), "the file is truncated"),
    "tensor twice": (
        padded(header(entry() + entry(offset=32), n_tensors=2), b"\0" * 64),
        "tensor `t` appears twice",
    ),
    "unaligned": (
        padded(header(entry(offset=16), n_tensors=1), b"\0" * 64),
        "not aligned to 32 bytes",
    ),
    "overlap": (
        padded(header(entry(dims=(64,)) + entry("u", offset=32), n_tensors=2), b"\0" * 256),
        "tensor `u` overlaps",
    ),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_header_is_refused_without_a_large_allocation(tmp_path, case):
    content, expected = CRAFTED[case]
    tracemalloc.start()
    try:
        message = refusal_of(tmp_path, content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert expected in message
    assert peak < 1 << 20


def test_a_vocabulary_of_published_size_is_read_whole(tmp_path):
    tokens = [f"token{number}" for number in range(151_936)]
    writer = files.GGUFWriter(str(tmp_path / "m.gguf"), "test")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [1] * len(tokens))
    metadata = read_header(files.finish(writer, tmp_path / "m.gguf")).metadata
    assert metadata["tokenizer.ggml.tokens"] == tuple(tokens)
    assert metadata["tokenizer.ggml.token_type"] == (1,) * len(tokens)
