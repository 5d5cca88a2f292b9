"""A faster decoder is taken only if it sounds like the plain one."""

from __future__ import annotations

import logging

import pytest
import torch

import engine
from engine.codec.choice import Way, choose_way
from engine.codec.packed import PackedDecoder
from tests.codec.specs import ODD_RATES, random_decoder


def quieter(factor: float) -> Way:
    def make(decoder):
        decoder.dec[-1].conv.weight.mul_(factor)
        return decoder

    return Way(f"{factor} of it", make)


def read():
    return random_decoder(ODD_RATES).requires_grad_(False)


@pytest.mark.parametrize(
    ("factors", "taken"),
    [((0.99, 1.0), 0), ((0.5, 1.0), 1), ((0.5, 0.95, 1.0), 1), ((0.5, 0.6), 1), ((0.5,), 0)],
)
def test_the_first_that_sounds_like_the_plain_decoder_is_taken(factors, taken, caplog):
    caplog.set_level(logging.INFO, logger="framecast.engine")
    made = choose_way(read, [quieter(factor) for factor in factors])
    wanted = read().dec[-1].conv.weight * factors[taken]
    assert torch.equal(made.dec[-1].conv.weight, wanted)
    assert caplog.messages[-1] == f"codec in {factors[taken]} of it"
    far = [message for message in caplog.messages if "far from the plain one" in message]
    assert len(far) == sum(factor < 0.9 for factor in factors[: taken + 1])


def test_numbers_that_are_none_are_never_taken():
    made = choose_way(read, [quieter(float("nan")), quieter(1.0)])
    assert made.dec[-1].conv.weight.isfinite().all()


@pytest.mark.parametrize("settings", [{}, {"dtype": "bf16"}, {"dtype": "bf16", "kernels": "plain"}])
def test_the_bundled_voice_is_never_decoded_in_bf16_unless_that_is_asked_for(monkeypatch, settings):
    monkeypatch.setattr("engine.tts.load.choose_dtype", lambda channels: torch.bfloat16)
    with engine.load(None, engine.EngineConfig(device="cpu", slots=1, **settings)) as speech:
        decoder = speech._runners[0]._vocoder._decoder
        assert decoder.fresh_state(1).tensors["pre_conv"].dtype == torch.float32


def test_a_precision_that_is_asked_for_is_used_and_warned_of(caplog):
    config = engine.EngineConfig(device="cpu", slots=1, codec_dtype="bf16")
    with engine.load(None, config) as speech:
        decoder = speech._runners[0]._vocoder._decoder
        assert isinstance(decoder, PackedDecoder)
        assert decoder.dtype == torch.bfloat16
    assert "far from the plain one" in caplog.text
