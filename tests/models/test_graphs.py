"""Recorders: what is replayed does what the function did, and CUDA is asked in the right order."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from engine.models.graphs import Calls, CudaGraphs, SameStream, SideStream

CUDA = torch.device("cuda")


class Log(list):
    """Stands for `torch.cuda` and writes down what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        log, done = self, []
        self.done = done

        class Stream:
            def __init__(self, device: torch.device, name: str = "side") -> None:
                self.name = name

            def wait_stream(self, other: Stream) -> None:
                log.append(f"{self.name} waits for {other.name}")

        class Graph:
            def pool(self) -> str:
                return "pool"

            def replay(self) -> None:
                log.append("replay")

        class Event:
            def record(self, stream: Stream) -> None:
                log.append(f"event on {stream.name}")

            def query(self) -> bool:
                return bool(done)

        @contextmanager
        def within(what: str):
            log.append(f"begin {what}")
            yield
            log.append(f"end {what}")

        here = Stream(CUDA, "current")
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: here)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: within(stream.name))
        monkeypatch.setattr(
            torch.cuda,
            "graph",
            lambda graph, pool, stream, capture_error_mode: within(
                f"capture on {stream.name} in {pool}"
            ),
        )


def test_calls_are_the_function_itself():
    def function() -> None:
        """Does nothing."""

    assert Calls().record(function) is function


def test_a_function_runs_beside_the_current_stream_before_it_is_captured(monkeypatch):
    log = Log(monkeypatch)
    recorder = CudaGraphs(CUDA)
    recorder.record(lambda: log.append("run"))()
    recorder.record(lambda: log.append("other"))
    first = ["side waits for current", "begin side", "run", "run", "end side"]
    first += ["current waits for side", "begin capture on side in None", "run",
              "end capture on side in None"]  # fmt: skip
    assert log[:10] == [*first, "replay"]
    assert log[-3:] == ["begin capture on side in pool", "other",
                        "end capture on side in pool"]  # fmt: skip


class Taken:
    """A tensor that notes which stream still needs its memory."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def record_stream(self, stream) -> None:
        self.log.append(f"kept for {stream.name}")


def test_work_aside_comes_after_what_was_launched_before_and_tells_when_it_is_done(monkeypatch):
    log = Log(monkeypatch)
    aside = SideStream(CUDA)
    with aside():
        log.append("work")
    aside.takes(Taken(log))
    landed = aside.landed()
    assert log == ["side waits for current", "begin side", "work", "end side",
                   "kept for side", "event on side"]  # fmt: skip
    assert not landed()
    log.done.append(True)
    assert landed()


def test_where_there_is_no_other_place_work_is_done_at_once():
    aside = SameStream()
    with aside():
        made = torch.ones(1)
    aside.takes(made)
    assert aside.landed()()
    assert made.item() == 1


@pytest.mark.gpu
@torch.inference_mode()
def test_a_cuda_graph_replays_what_it_captured():
    total, step = torch.zeros(4, device=CUDA), torch.ones(4, device=CUDA)
    replay = CudaGraphs(CUDA).record(lambda: total.add_(step))
    total.zero_()
    step.fill_(3)
    replay()
    replay()
    assert total.tolist() == [6.0] * 4


@pytest.mark.gpu
def test_a_side_stream_lands():
    aside = SideStream(CUDA)
    with aside():
        made = torch.ones(1000, 1000, device=CUDA) @ torch.ones(1000, 1000, device=CUDA)
    landed = aside.landed()
    torch.cuda.synchronize()
    assert landed()
    assert made[0, 0].item() == 1000
