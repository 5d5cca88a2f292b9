"""Functions over static tensors, recorded once and replayed: CUDA graphs, and their plain twin.

What is recorded reads and writes tensors that stay where they are, has shapes that do not change,
and asks the device nothing: then a replay is one launch in place of thousands. `Calls` runs the
function itself and is the plain twin, on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

# Runs of a function before it is recorded: libraries load and set up what they need in the first.
_WARM_RUNS = 2


class Recorder(Protocol):
    """Makes functions fast to run again and again."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """What does the same as `function`; may run it, so that its tensors change."""
        ...


class Calls:
    """Runs functions as they are."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        return function


class CudaGraphs:
    """Captures functions as CUDA graphs, whose scratch memory is one pool: replay one at a time,
    and keep what they give in tensors of your own.

    All of them are run and captured on one stream of its own, for a stream has a workspace that
    its graphs go on using, and that goes when a graph captured on it does.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _new_stream(device)
        self._pool: Any = None  # an opaque handle, once there is a first graph

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_RUNS):
                function()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            function()
        if self._pool is None:
            self._pool = graph.pool()
        replay: Callable[[], None] = graph.replay
        return replay


class Aside(Protocol):
    """Where work is done beside the frames."""

    def __call__(self) -> AbstractContextManager[None]:
        """A context: what is launched in it comes after all that was launched outside before."""
        ...

    def takes(self, tensor: Tensor) -> None:
        """Keep a tensor's memory until what is launched in it is done, whoever else lets go."""
        ...

    def landed(self) -> Callable[[], bool]:
        """Tells whether all that has been launched in it so far is done."""
        ...


class SameStream:
    """No other place: done when it was asked for."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        yield

    def takes(self, tensor: Tensor) -> None:
        """Nothing is done later."""

    def landed(self) -> Callable[[], bool]:
        return _always


class SideStream:
    """A CUDA stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _new_stream(device)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def takes(self, tensor: Tensor) -> None:
        tensor.record_stream(self._stream)

    def landed(self) -> Callable[[], bool]:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        query: Callable[[], bool] = event.query
        return query


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def _always() -> bool:
    return True


__all__ = ["Aside", "Calls", "CudaGraphs", "Recorder", "SameStream", "SideStream"]
