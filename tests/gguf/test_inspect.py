"""The report of `inspect`."""

import subprocess
import sys

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.inspect import inspect
from tests.gguf import files


@pytest.fixture
def path(tmp_path):
    writer = files.GGUFWriter(str(tmp_path / "m.gguf"), "qwen3-tts")
    writer.add_string("general.name", "A voice")
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(1234)])
    writer.add_array("rates", [8, 5])
    writer.add_string("note", "two\nlines")
    writer.add_string("long", "x" * 200)
    writer.add_tensor("a.weight", np.zeros((3, 64), np.float32))
    writer.add_tensor("b.weight", np.zeros((4, 68), np.uint8), raw_dtype=8)
    writer.add_tensor("c.weight", np.zeros(5, np.float32))
    return files.finish(writer, tmp_path / "m.gguf")


def test_the_report_says_what_the_file_is(path):
    lines = [line.split(maxsplit=1) for line in inspect(path).splitlines() if line]
    facts = {line[0]: line[1] for line in lines if len(line) > 1}
    assert facts["architecture"] == "qwen3-tts"
    assert facts["name"] == "A voice"
    assert facts["bytes"] == f"{path.stat().st_size:,}"
    assert facts["parameters"] == "453"


def test_long_arrays_are_counted_and_short_ones_shown(path):
    rows = dict(line.split(maxsplit=1) for line in inspect(path).splitlines() if "  " in line)
    assert rows["tokenizer.ggml.tokens"] == "(1,234 items)"
    assert rows["rates"] == "8, 5"
    assert rows["note"] == r"'two\nlines'"
    assert rows["long"] == "x" * 80 + "..."


def test_tensors_are_grouped_by_type_and_listed(path):
    rows = [line.split() for line in inspect(path).splitlines()]
    assert ["F32", "2", "tensors", "197", "parameters", "788", "bytes"] in rows
    assert ["Q8_0", "1", "tensors", "256", "parameters", "272", "bytes"] in rows
    assert ["b.weight", "[4,", "64]", "Q8_0"] in rows


def test_a_file_without_tensors_or_metadata_is_reported_too(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(files.header())
    assert "architecture  (none)" in inspect(path)


def test_a_file_that_is_not_gguf_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"<html></html>")
    with pytest.raises(ModelFileError, match="HTML page"):
        inspect(path)


def test_inspecting_imports_no_torch(path):
    code = (
        "import sys; from engine.gguf.inspect import inspect; inspect(sys.argv[1]);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
