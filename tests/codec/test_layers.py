"""Every layer kind: causal, and streaming equals offline over any chunking."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engine.codec.conv import CausalConv1d, CausalConvTranspose1d
from engine.codec.decoder import ResidualUnit, Snake, UpBlock, UpsampleStage
from engine.codec.state import init_state, name_states
from engine.codec.transformer import Transformer
from tests.codec.specs import randomise, transformer_spec

LAYERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "conv-k1": (lambda: CausalConv1d(6, 4, 1), 1),
    "conv-k3": (lambda: CausalConv1d(6, 4, 3), 1),
    "conv-k7-dilation-9": (lambda: CausalConv1d(6, 6, 7, dilation=9), 1),
    "conv-k7-depthwise": (lambda: CausalConv1d(6, 6, 7, groups=6), 1),
    "transposed-k2-s2": (lambda: CausalConvTranspose1d(6, 4, 2, 2), 2),
    "transposed-k16-s8": (lambda: CausalConvTranspose1d(6, 4, 16, 8), 8),
    "transposed-k7-s3": (lambda: CausalConvTranspose1d(6, 4, 7, 3), 3),
    "transposed-k9-s2": (lambda: CausalConvTranspose1d(6, 4, 9, 2), 2),
    "residual-dilation-3": (lambda: ResidualUnit(6, 3), 1),
    "upsample-ratio-2": (lambda: UpsampleStage(6, 2), 2),
    "upsample-ratio-3": (lambda: UpsampleStage(6, 3), 3),
    "up-block-rate-5": (lambda: UpBlock(8, 4, 5), 5),
    "transformer-window-1": (lambda: Transformer(6, transformer_spec(), 1), 1),
    "transformer-window-5": (lambda: Transformer(6, transformer_spec(), 5), 1),
    "transformer-window-72": (lambda: Transformer(6, transformer_spec(kv_heads=4), 72), 1),
    "transformer-one-kv-head": (lambda: Transformer(6, transformer_spec(kv_heads=1), 9), 1),
}
CHUNKINGS = {"1": (1,), "2": (2,), "4": (4,), "7": (7,), "mixed": (3, 1, 8, 1, 5, 2)}
FRAMES = 40

each_layer = pytest.mark.parametrize("kind", LAYERS)


def make(kind: str) -> tuple[nn.Module, Tensor, int]:
    build, rate = LAYERS[kind]
    layer = randomise(build(), seed=1)
    name_states(layer)
    width = 8 if kind.startswith("up-block") else 6
    return layer, torch.randn(2, width, FRAMES, generator=torch.Generator().manual_seed(2)), rate


def chunks(x: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    parts, start, turn = [], 0, 0
    while start < x.shape[-1]:
        size = sizes[turn % len(sizes)]
        parts.append(x[..., start : start + size])
        start, turn = start + size, turn + 1
    return parts


@each_layer
@torch.no_grad()
def test_a_prefix_of_the_input_gives_a_prefix_of_the_output(kind):
    layer, x, rate = make(kind)
    whole = layer(x)
    assert whole.shape[-1] == FRAMES * rate
    for length in (1, 2, 11, 39):
        torch.testing.assert_close(
            layer(x[..., :length]), whole[..., : length * rate], atol=1e-5, rtol=0
        )


@each_layer
@torch.no_grad()
def test_the_last_input_column_changes_only_its_own_output_columns(kind):
    layer, x, rate = make(kind)
    other = x.clone()
    other[..., -1] += 1
    difference = (layer(x) - layer(other)).abs().amax((0, 1))
    assert difference[:-rate].max() == 0
    assert difference[-rate:].min() > 0


@pytest.mark.parametrize("sizes", CHUNKINGS.values(), ids=CHUNKINGS)
@each_layer
@torch.no_grad()
def test_streaming_equals_offline(kind, sizes):
    layer, x, _ = make(kind)
    state = init_state(layer, 2, device="cpu", dtype=torch.float32, nan_fill=True)
    streamed = torch.cat([layer(part, state) for part in chunks(x, sizes)], -1)
    torch.testing.assert_close(streamed, layer(x), atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_query_sees_exactly_its_window_its_own_position_included():
    layer = randomise(Transformer(6, transformer_spec(layers=1), 5), seed=1)
    x = torch.randn(1, 6, 20, generator=torch.Generator().manual_seed(3))
    other = x.clone()
    other[..., 10] += 1
    difference = (layer(x) - layer(other)).abs().amax((0, 1))
    assert (difference > 0).nonzero().flatten().tolist() == [10, 11, 12, 13, 14]


@torch.no_grad()
def test_rotation_depends_on_distance_alone():
    layer = randomise(Transformer(6, transformer_spec(), 5), seed=1)
    name_states(layer)
    x = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(4))
    near = init_state(layer, 1, device="cpu", dtype=torch.float32)
    far = init_state(layer, 1, device="cpu", dtype=torch.float32)
    far.position += 1000
    settled = 12  # both layers' windows hold only new columns by then
    expected = layer(x, near)[..., settled:]
    torch.testing.assert_close(layer(x, far)[..., settled:], expected, atol=1e-4, rtol=0)


def test_snake_is_its_formula():
    snake = randomise(Snake(3), seed=5)
    x = torch.linspace(-3, 3, 30).view(1, 3, 10)
    a, b = snake.alpha.exp()[:, None], snake.beta.exp()[:, None]
    torch.testing.assert_close(snake(x), x + torch.sin(a * x) ** 2 / (b + 1e-9))
