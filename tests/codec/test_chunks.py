"""Recorded batches of the decoder against `decode_lanes`, their plain twin."""

from __future__ import annotations

import pytest
import torch

from engine.codec.chunks import Chunks
from engine.codec.decoder import CodecDecoder, decode_lanes
from engine.models.graphs import Calls
from tests.codec.specs import ODD_RATES, random_codes, random_decoder

SHAPES = [(1, 1), (2, 1), (1, 4), (2, 4)]
# lanes and how many frames each decodes, call by call; some were not recorded
CALLS = [((0,), 1), ((0, 2), 1), ((1,), 4), ((2, 1), 4), ((0, 1, 2), 1), ((1, 0), 3), ((2,), 1)]


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return random_decoder(ODD_RATES)


class Counted(Calls):
    """Counts replays."""

    def __init__(self) -> None:
        self.replays = 0

    def record(self, function):
        def replay() -> None:
            self.replays += 1
            function()

        function()  # it may be run, so that lanes change
        return replay


def chunks_of(decoder: CodecDecoder, recorder: Calls) -> Chunks:
    chunks = Chunks(decoder, decoder.fresh_state(3, nan_fill=True))
    chunks.record(recorder, SHAPES)
    return chunks


@torch.inference_mode()
def test_recorded_batches_and_others_mix_and_sound_like_plain_ones(decoder):
    recorder = Counted()
    chunks, plain = chunks_of(decoder, recorder), decoder.fresh_state(3, nan_fill=True)
    for seed, (lanes, frames) in enumerate(CALLS):
        codes = random_codes(decoder.spec, len(lanes), frames, seed=seed)
        rows = torch.tensor(lanes)
        got = chunks.decode(rows, codes)
        torch.testing.assert_close(
            got, decode_lanes(decoder, plain, rows, codes), atol=1e-5, rtol=0
        )
    assert recorder.replays == 5


@torch.inference_mode()
def test_what_was_returned_stays_when_the_batch_is_used_again(decoder):
    chunks = chunks_of(decoder, Calls())
    first, second = (random_codes(decoder.spec, 1, 1, seed=seed) for seed in (1, 2))
    heard = chunks.decode(torch.tensor([0]), first)
    kept = heard.clone()
    chunks.decode(torch.tensor([1]), second)
    assert torch.equal(heard, kept)


def test_recording_leaves_all_lanes_fresh(decoder):
    state = decoder.fresh_state(3, nan_fill=True)
    Chunks(decoder, state).record(Counted(), SHAPES)
    fresh = decoder.fresh_state(3, nan_fill=True)
    assert torch.equal(state.position, fresh.position)
    for key, tensor in state.tensors.items():
        assert torch.equal(tensor.isnan(), fresh.tensors[key].isnan())
        assert torch.equal(tensor.nan_to_num(), fresh.tensors[key].nan_to_num())


def test_a_recorded_batch_asks_the_device_nothing():
    decoder = random_decoder(ODD_RATES).to("meta")
    chunks = Chunks(decoder, decoder.fresh_state(3))
    chunks.record(Counted(), SHAPES)  # a question to a device without numbers raises
    codes = random_codes(decoder.spec, 2, 4, seed=1).to("meta")
    lanes = torch.tensor([0, 2]).to("meta")
    with torch.inference_mode():
        assert chunks.decode(lanes, codes).device.type == "meta"


@pytest.mark.gpu
@torch.inference_mode()
def test_cuda_graphs_sound_like_plain_batches(decoder):
    from engine.models.graphs import CudaGraphs

    device = torch.device("cuda")
    moved = random_decoder(ODD_RATES).to(device)
    chunks, plain = Chunks(moved, moved.fresh_state(3)), moved.fresh_state(3)
    chunks.record(CudaGraphs(device), SHAPES)
    for seed, (lanes, frames) in enumerate(CALLS):
        codes = random_codes(moved.spec, len(lanes), frames, seed=seed).to(device)
        rows = torch.tensor(lanes, device=device)
        got = chunks.decode(rows, codes)
        torch.testing.assert_close(got, decode_lanes(moved, plain, rows, codes), atol=1e-3, rtol=0)
