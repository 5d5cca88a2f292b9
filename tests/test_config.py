"""Settings that cannot work are refused before a model is loaded."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from engine.config import EngineConfig, ModelFiles
from engine.errors import InvalidRequest


def test_the_defaults_are_valid_and_frozen() -> None:
    config = EngineConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.slots = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("field", "lowest"),
    [
        ("slots", 1),
        ("kv_positions", 64),
        ("max_queue", 0),
        ("max_frames", 1),
        ("stream_bytes", 1),
    ],
)
def test_a_setting_below_its_least_value_is_refused_by_name(field: str, lowest: int) -> None:
    assert getattr(EngineConfig(**{field: lowest}), field) == lowest  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=f"`{field}` must be at least {lowest}") as caught:
        EngineConfig(**{field: lowest - 1})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "tpu"),
        ("dtype", "int8"),
        ("read_timeout_s", -1.0),
        ("loop_window", -1),
        ("loop_max_period", -1),
        ("loop_repeats", -1),
        ("silence_s", -0.5),
        ("silence_s", float("nan")),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"`{field}`") as caught:
        EngineConfig(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("ramp", [(), (0,), (1, 2, 0), (-1,)])
def test_a_ramp_that_would_never_flush_is_refused(ramp: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="`ramp`") as caught:
        EngineConfig(ramp=ramp)
    assert caught.value.field == "ramp"


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_reference_mode_is_refused_in_half_precision(dtype: Any) -> None:
    with pytest.raises(InvalidRequest, match="f32"):
        EngineConfig(reference=True, dtype=dtype)


@pytest.mark.parametrize("dtype", ["auto", "f32"])
def test_the_reference_mode_runs_in_f32(dtype: Any) -> None:
    assert EngineConfig(reference=True, dtype=dtype).reference


def test_model_files_have_no_name_of_their_own_by_default(tmp_path: Any) -> None:
    files = ModelFiles(tmp_path / "talker.gguf", tmp_path / "codec.gguf")
    assert files.name is None
