"""The codec encoder: samples in, code frames out.

Mirrors Qwen3TTSTokenizerV2Encoder of the official
core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py, which is Mimi's encoder. Attribute names are
the GGUF tensor names without their `tok_enc.` prefix.

    pcm [1, 1, n] -> conv.0 [1, filters, n] -> per stride: res.N, then conv.N (doubles the channels,
    lowers the rate) -> last conv [1, hidden, .] -> blk.N (same shape) -> downsample [1, hidden, T]
    -> vq_semantic and vq_acoustic: codes [groups, T], T = ceil(n / samples_per_frame)

It works in pieces (`CodecEncoder.steps`): the convolutions over a fraction of a second at a time,
carrying their last columns, so memory does not grow with the clip; what follows has 25 columns per
second and takes many at a time, each attending to all before it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.codec.quantizer import Codebook
from engine.config import CodecEncoderSpec, DecoderSpec
from engine.models.layers import Rope, attend_causal, attend_seen, rope_table, rotate
from engine.pieces import Steps, run_through

# Each piece takes some 50 ms on one core, so that it fits between two frames.
CHUNK_S = 0.12  # of sound, through the convolutions
COLUMNS = 250  # through one layer of the transformer
FRAMES = 100  # through the quantizers

# The last input columns of each convolution that has heard a chunk before.
Carried = dict[nn.Module, Tensor]
# Keys and values of a layer's columns so far; empty before the first.
Past = list[Tensor]


class StridedConv1d(nn.Conv1d):
    """A causal convolution of [1, C_in, T] to [1, C_out, ceil(T / stride)].

    Zeros stand before the first column and after the last. With `carried` it continues where the
    last call ended; every chunk but the last must be a multiple of the stride long.
    """

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        stride, context = self.stride[0], (self.kernel_size[0] - 1) * self.dilation[0]
        past = context - stride + 1
        if past:
            x = torch.cat((self._before(x, past, carried), x), dim=-1)
            if carried is not None:
                carried[self] = x[..., x.shape[-1] - past :].clone()
        return super().forward(F.pad(x, (0, -(x.shape[-1] - past) % stride)))

    def _before(self, x: Tensor, past: int, carried: Carried | None) -> Tensor:
        if carried is None or self not in carried:
            return x.new_zeros(1, x.shape[1], past)
        return carried[self]


class ResidualBlock(nn.Module):
    """Two ELU-activated convolutions around a residual path: [1, C, T] to the same."""

    def __init__(self, channels: int, spec: CodecEncoderSpec, dilation: int) -> None:
        super().__init__()
        narrow = channels // spec.compress
        first = StridedConv1d(channels, narrow, spec.residual_kernel, dilation=dilation)
        self.blk = nn.ModuleDict({"1": first, "3": StridedConv1d(narrow, channels, 1)})

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        h = x
        for conv in self.blk.values():
            h = conv(F.elu(h), carried)
        return x + h


class Block(nn.Module):
    """One pre-norm transformer layer over [1, T, hidden], causal without a window."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        hidden, queries = spec.hidden, spec.heads * spec.head_dim
        keys = spec.kv_heads * spec.head_dim
        self.attn_norm = nn.LayerNorm(hidden, eps=spec.norm_eps)
        self.attn_q = nn.Linear(hidden, queries, bias=False)
        self.attn_k = nn.Linear(hidden, keys, bias=False)
        self.attn_v = nn.Linear(hidden, keys, bias=False)
        self.attn_output = nn.Linear(queries, hidden, bias=False)
        self.attn_scale = nn.Parameter(torch.full((hidden,), 0.01))
        self.ffn_norm = nn.LayerNorm(hidden, eps=spec.norm_eps)
        self.ffn_up = nn.Linear(hidden, spec.ffn, bias=False)
        self.ffn_down = nn.Linear(spec.ffn, hidden, bias=False)
        self.ffn_scale = nn.Parameter(torch.full((hidden,), 0.01))

    def forward(self, x: Tensor, rope: Rope, past: Past | None = None) -> Tensor:
        """Columns that follow those of `past`, which is extended; `rope` holds their positions."""
        x = x + self._attend(self.attn_norm(x), rope, past) * self.attn_scale
        h = self.ffn_down(F.gelu(self.ffn_up(self.ffn_norm(x))))
        out: Tensor = x + h * self.ffn_scale
        return out

    def _attend(self, x: Tensor, rope: Rope, past: Past | None) -> Tensor:
        q, k = rotate(self._heads(self.attn_q(x)), rope), rotate(self._heads(self.attn_k(x)), rope)
        v = self._heads(self.attn_v(x))
        if past:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        if past is not None:
            past[:] = k, v
        y = _attend_after(q, k, v)
        out: Tensor = self.attn_output(y.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class ResidualEncoder(nn.Module):
    """Columns [1, hidden, T] to codes int64[quantizers, T]: each codebook takes what is left.

    Its codebooks are the children "0" to "K-1", as the file names them.
    """

    def __init__(self, spec: CodecEncoderSpec, quantizers: int) -> None:
        super().__init__()
        self.quantizers = quantizers
        width = spec.codebook_width
        self.input_proj = nn.Conv1d(spec.transformer.hidden, width, 1, bias=False)
        for index in range(quantizers):
            self.add_module(str(index), Codebook(spec.codebook_size, width))

    def forward(self, x: Tensor) -> Tensor:
        rest = self.input_proj(x)[0].T
        codes = []
        for index in range(self.quantizers):
            book: Tensor = self.get_submodule(str(index)).get_parameter("codebook")
            chosen = _nearest(rest, book)
            codes.append(chosen)
            rest = rest - book[chosen]
        return torch.stack(codes)


class CodecEncoder(nn.Module):
    """Samples F32[n] at `sample_rate` to codes int64[groups, ceil(n / samples_per_frame)].

    Rows are the semantic codebooks, then the acoustic ones. Always computed in F32: a code is the
    nearest of many vectors, and a rounded sum picks another.
    """

    def __init__(self, spec: CodecEncoderSpec) -> None:
        super().__init__()
        self.spec = spec
        hidden = spec.transformer.hidden
        self.conv, self.res = nn.ModuleDict(), nn.ModuleDict()
        self._add_convolutions(spec)
        self.blk = nn.ModuleList(Block(spec.transformer) for _ in range(spec.transformer.layers))
        self.downsample = nn.Conv1d(
            hidden, hidden, spec.downsample_kernel, spec.downsample_stride, bias=False
        )
        self.vq_semantic = ResidualEncoder(spec, spec.semantic_quantizers)
        self.vq_acoustic = ResidualEncoder(spec, spec.acoustic_quantizers)

    def forward(self, pcm: Tensor) -> Tensor:
        return run_through(self.steps(pcm))

    def steps(self, pcm: Tensor) -> Steps[Tensor]:
        """The same in pieces; what they come to does not depend on what is done between them."""
        columns = yield from self._convolve(pcm)
        x = yield from self._transform(columns.transpose(1, 2))
        # The outermost columns are repeated, where the strided convolutions before pad with zeros.
        stride = self.spec.downsample_stride
        before, after = self.spec.downsample_kernel - stride, -x.shape[1] % stride
        x = self.downsample(F.pad(x.transpose(1, 2), (before, after), mode="replicate"))
        codes = []
        for part in torch.split(x, FRAMES, dim=-1):
            codes.append(torch.cat((self.vq_semantic(part), self.vq_acoustic(part))))
            yield
        return torch.cat(codes, dim=1)

    def _add_convolutions(self, spec: CodecEncoderSpec) -> None:
        # Numbers count the activations between the layers, too.
        channels, index = spec.filters, 1
        self.conv["0"] = StridedConv1d(1, channels, spec.kernel)
        for stride in spec.strides:
            for layer in range(spec.residual_layers):
                dilation = spec.dilation_growth**layer
                self.res[str(index)] = ResidualBlock(channels, spec, dilation)
                index += 1
            down = StridedConv1d(channels, 2 * channels, 2 * stride, stride=stride)
            self.conv[str(index + 1)] = down
            channels, index = 2 * channels, index + 2
        last = StridedConv1d(channels, spec.transformer.hidden, spec.last_kernel)
        self.conv[str(index + 1)] = last

    def _convolve(self, pcm: Tensor) -> Steps[Tensor]:
        column = math.prod(self.spec.strides)
        samples = column * max(1, round(CHUNK_S * self.spec.sample_rate / column))
        carried: Carried = {}
        chunks = []
        for chunk in torch.split(pcm, samples):
            chunks.append(self._layers(chunk[None, None], carried))
            yield
        return torch.cat(chunks, dim=-1)

    def _layers(self, x: Tensor, carried: Carried) -> Tensor:
        order = sorted(
            [(int(key), layer) for part in (self.conv, self.res) for key, layer in part.items()],
            key=lambda entry: entry[0],
        )
        for index, layer in order:
            activated = index > 0 and isinstance(layer, StridedConv1d)
            x = layer(F.elu(x) if activated else x, carried)
        return x

    def _transform(self, x: Tensor) -> Steps[Tensor]:
        positions = torch.arange(x.shape[1], device=x.device)
        rope = rope_table(self.spec.transformer, positions, x.dtype)
        for block in self.blk:
            past: Past = []
            parts = []
            for part, cos, sin in zip(
                torch.split(x, COLUMNS, dim=1),
                torch.split(rope[0], COLUMNS),
                torch.split(rope[1], COLUMNS),
                strict=True,
            ):
                parts.append(block(part, (cos, sin), past))
                yield
            x = torch.cat(parts, dim=1)
        return x


def _attend_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The queries are those of the last columns; each sees its own column and all before."""
    new, there = q.shape[2], k.shape[2]
    if new == there:
        return attend_causal(q, k, v)
    seen = torch.ones(new, there, dtype=torch.bool, device=q.device).tril(there - new)
    return attend_seen(q, k, v, seen)


def _nearest(x: Tensor, codebook: Tensor) -> Tensor:
    """The row of the codebook [size, width] nearest to each row of x [T, width]: int64[T]."""
    # |x - c|^2 = |x|^2 - 2 (x c - |c|^2 / 2), and |x| is the same for all.
    closeness = x @ codebook.T - codebook.square().sum(1) / 2
    return closeness.argmax(dim=1)


__all__ = ["CodecEncoder"]
