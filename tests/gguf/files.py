"""GGUF files for tests: valid ones by the gguf package's writer, crafted ones byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

U32, STRING, ARRAY = 4, 8, 9


def write(path: Path, tensors: Mapping[str, np.ndarray], arch: str = "test", **types: str) -> Path:
    """A file of these tensors; `types` gives the stored type of those that are raw bytes."""
    writer = GGUFWriter(str(path), arch)
    writer.add_string("general.name", "a name")
    for name, values in tensors.items():
        kind = GGMLQuantizationType[types[name]] if name in types else None
        writer.add_tensor(name, values, raw_dtype=kind)
    return finish(writer, path)


def finish(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rewrite(source: Path, out: Path, changes: Mapping[str, Any], drop: str = "") -> Path:
    """A copy with some metadata changed (None removes a key) and tensors under `drop` left out."""
    reader = GGUFReader(source)
    values = {
        name: (field.types, field.contents())
        for name, field in reader.fields.items()
        if not name.startswith(("GGUF.", "general.architecture"))
    }
    arch = changes.get("general.architecture", reader.fields["general.architecture"].contents())
    writer = GGUFWriter(str(out), arch)
    for name, (types, value) in values.items():
        if name not in changes:
            writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
    for name, value in changes.items():
        if name != "general.architecture" and value is not None:
            _add(writer, name, value)
    for tensor in reader.tensors:
        if not drop or not tensor.name.startswith(drop):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return finish(writer, out)


def _add(writer: GGUFWriter, name: str, value: Any) -> None:
    add = {
        bool: writer.add_bool,
        int: writer.add_int64,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    add[type(value)](name, value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(name: str = "t", dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    dimensions = struct.pack(f"<{len(dims)}Q", *dims)
    return text(name) + struct.pack("<I", len(dims)) + dimensions + struct.pack("<IQ", kind, offset)


def header(
    entries: bytes = b"",
    metadata: bytes = b"",
    *,
    n_tensors: int = 0,
    n_metadata: int = 0,
    version: int = 3,
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_metadata) + metadata + entries


def padded(head: bytes, data: bytes = b"") -> bytes:
    return head + b"\0" * (-len(head) % 32) + data
