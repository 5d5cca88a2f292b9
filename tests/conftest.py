"""Fixtures every test folder shares: tiny random models, converted once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

import engine
from tests.checkpoints import TINY, Case, make_checkpoint

# The same examples in every run, however slow the machine; `--hypothesis-profile search` draws new.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("steady")

torch.set_num_threads(1)  # tiny matrices: a second thread only waits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], engine.ModelFiles]:
    """Checkpoint case -> its F32 GGUF pair; each case is made once."""
    made: dict[str, engine.ModelFiles] = {}

    def convert(case: Case) -> engine.ModelFiles:
        if case.name not in made:
            folder = tmp_path_factory.mktemp("model")
            make_checkpoint(case, folder / "checkpoint")
            made[case.name] = engine.convert_checkpoint(
                folder / "checkpoint", folder / "gguf", "f32"
            )
        return made[case.name]

    return convert


@pytest.fixture(scope="session")
def custom_voice(converted: Callable[[Case], engine.ModelFiles]) -> engine.ModelFiles:
    return converted(TINY)


@pytest.fixture(scope="session")
def voice_design(converted: Callable[[Case], engine.ModelFiles]) -> engine.ModelFiles:
    return converted(replace(TINY, name="tiny-design", task="voice_design"))


@pytest.fixture(scope="session")
def base(converted: Callable[[Case], engine.ModelFiles]) -> engine.ModelFiles:
    return converted(replace(TINY, name="tiny-base", task="base"))


@pytest.fixture
def start(custom_voice: engine.ModelFiles) -> Iterator[Callable[..., engine.Engine]]:
    """Start engines that are closed, with balanced books, at the end of the test."""
    engines: list[engine.Engine] = []

    def begin(files: Any = None, **settings: Any) -> engine.Engine:
        defaults = {"slots": 4, "kv_positions": 512, "nan_fill": True, "device": "cpu"}
        config = engine.EngineConfig(**{**defaults, "kernels": "plain", **settings})
        engines.append(engine.load(files or custom_voice, config))
        return engines[-1]

    yield begin
    for each in engines:
        each.close()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official layout of the tiny CustomVoice checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(TINY, folder)
    return folder
