"""Drawing codes: counter-based random numbers and one batched pass over all lanes.

Mirrors `src/sampling.h`, `src/sampling-graph.h` and `src/philox.h` of qwentts.cpp, and the logits
processors of the official generation call. A draw depends on seed, frame and code group only, so
it is the same in every batch. Scores are F32; probabilities are summed in F64, which makes the
result independent of how many candidates the neighbours ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.config import GenerationDefaults
from engine.errors import InvalidRequest
from engine.request import SEED_LIMIT, Sampling, draw_seed

NEG_INF = float("-inf")
_NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "subtalker_temperature",
    "subtalker_top_k",
    "subtalker_top_p",
    "repetition_penalty",
    "min_new_tokens",
)
LANE_NUMBERS = len(_NUMBERS)
COLDEST = 1e-5  # below it the best candidate alone is left, and scores / temperature may overflow


@dataclass(frozen=True, slots=True)
class LaneSampling:
    """One request's sampling with every default filled in. `top_k` 0 keeps all candidates."""

    seed: int
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    subtalker_temperature: float
    subtalker_top_k: int
    subtalker_top_p: float
    no_repeat_ngram_size: int
    min_new_tokens: int


# name -> (lowest, highest, lowest itself is allowed)
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 10.0, True),
    "top_k": (0, 2**31 - 1, True),
    "top_p": (0.0, 1.0, False),
    "repetition_penalty": (0.0, 10.0, False),
    "subtalker_temperature": (0.0, 10.0, True),
    "subtalker_top_k": (0, 2**31 - 1, True),
    "subtalker_top_p": (0.0, 1.0, False),
    "no_repeat_ngram_size": (0, 1024, True),
    "min_new_tokens": (0, 2**31 - 1, True),
    "max_new_tokens": (1, 2**31 - 1, True),
}


def validate(sampling: Sampling) -> None:
    """Raise `InvalidRequest` naming the first field out of range."""
    for name, (low, high, closed) in _RANGES.items():
        value = getattr(sampling, name)
        if value is None:
            continue
        if not (low <= value <= high) or (value == low and not closed):
            left = "from" if closed else "above"
            raise InvalidRequest(
                f"`{name}` must be {left} {low:g} to {high:g}, got {value!r}", name
            )
    if sampling.seed is not None and sampling.seed >= SEED_LIMIT:
        raise InvalidRequest(f"`seed` must be below 2**63, got {sampling.seed}", "seed")


def resolve(sampling: Sampling, file: GenerationDefaults) -> LaneSampling:
    """Fill in what the request leaves open: the file's value, then the published default.

    A temperature below `COLDEST` counts as 0, which is greedy.

    Raises:
        InvalidRequest: a field is out of range.
    """
    validate(sampling)
    published = GenerationDefaults(True, 0.9, 50, 1.0, 1.05, True, 0.9, 50, 1.0)

    def pick(name: str) -> float:
        for source in (sampling, file, published):
            value = getattr(source, name, None)
            if value is not None:
                return float(value)
        raise AssertionError(name)

    temperature = _thawed(pick("temperature"))
    if sampling.temperature is None and not file.do_sample:
        temperature = 0.0
    sub_temperature = _thawed(pick("subtalker_temperature"))
    if sampling.subtalker_temperature is None and (
        (sampling.temperature is not None and temperature == 0) or not file.subtalker_do_sample
    ):
        sub_temperature = 0.0
    seed = sampling.seed if sampling.seed is not None and sampling.seed >= 0 else draw_seed()
    return LaneSampling(
        seed=seed,
        temperature=temperature,
        top_k=int(pick("top_k")),
        top_p=pick("top_p"),
        repetition_penalty=pick("repetition_penalty"),
        subtalker_temperature=sub_temperature,
        subtalker_top_k=int(pick("subtalker_top_k")),
        subtalker_top_p=pick("subtalker_top_p"),
        no_repeat_ngram_size=sampling.no_repeat_ngram_size,
        min_new_tokens=sampling.min_new_tokens,
    )


def _thawed(temperature: float) -> float:
    return temperature if temperature >= COLDEST else 0.0


def philox_uniforms(
    seeds: Sequence[int], frames: Sequence[int], groups: int
) -> npt.NDArray[np.float32]:
    """Uniform draws of one frame per lane: F32[lanes, groups] in (0, 1].

    Philox4x32-10, key = the seed, counter = (0, 0, subsequence), subsequence = frame * groups + g,
    first output word x -> (F32(x) + 0.5) * 2**-32 in F32.
    """
    # Any: numpy's stubs promote mixed unsigned arithmetic to float, which numpy itself does not.
    seed: Any = np.asarray(seeds, dtype=np.uint64)[:, None]
    base: Any = np.asarray(frames, dtype=np.uint64)[:, None]
    subsequence = base * np.uint64(groups) + np.arange(groups, dtype=np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    key0, key1 = np.broadcast_arrays(seed & low, seed >> shift)
    c0 = np.zeros_like(subsequence)
    c1, c2, c3 = c0, subsequence & low, subsequence >> shift
    for _ in range(10):
        product0, product1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> shift) ^ c1 ^ key0,
            product1 & low,
            (product0 >> shift) ^ c3 ^ key1,
            product0 & low,
        )
        key0 = (key0 + np.uint64(0x9E3779B9)) & low
        key1 = (key1 + np.uint64(0xBB67AE85)) & low
    words: npt.NDArray[np.float32] = c0.astype(np.float32)
    return (words + np.float32(0.5)) * np.float32(2.0**-32)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What the lanes of a stage need at most, on which shapes depend: the most candidates, all of
    them, a nucleus."""

    kmax: int
    all_k: bool
    nucleus: bool

    @classmethod
    def of(cls, lanes: Sequence[tuple[int, float]]) -> _Bounds:
        """Of lanes' top k and top p."""
        counts = [top_k for top_k, _ in lanes]
        return cls(max(counts), 0 in counts, any(top_p < 1 for _, top_p in lanes))


_ANY = _Bounds(kmax=2**31 - 1, all_k=True, nucleus=True)


def lane_numbers(lane: LaneSampling) -> list[float]:
    """What draws take of a lane, as a row of `SamplerBatch.of`'s table."""
    return [float(getattr(lane, name)) for name in _NUMBERS]


def philox_draws(seeds: Tensor, frames: Tensor, groups: int) -> Tensor:
    """The draws of `philox_uniforms` where the seeds lie: int64[B] each, F32[B, groups].

    Signed products wrap to the bits of unsigned ones, and what is shifted is masked.
    """
    low = 0xFFFFFFFF
    steps = torch.arange(groups, device=seeds.device)
    subsequence = frames[:, None] * groups + steps
    key0, key1 = seeds[:, None] & low, (seeds[:, None] >> 32) & low
    c0 = torch.zeros_like(subsequence)
    c1, c2, c3 = c0, subsequence & low, (subsequence >> 32) & low
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            ((product1 >> 32) & low) ^ c1 ^ key0,
            product1 & low,
            ((product0 >> 32) & low) ^ c3 ^ key1,
            product0 & low,
        )
        key0, key1 = (key0 + 0x9E3779B9) & low, (key1 + 0xBB67AE85) & low
    return (c0.float() + 0.5) * 2.0**-32


class SamplerBatch:
    """The sampling parameters of a batch of lanes as tensors, built when the batch changes.

    Rows of `temperature`, `top_k`... are lanes; a greedy lane has temperature 1 and `greedy` set.
    """

    def __init__(self, lanes: Sequence[LaneSampling], device: torch.device) -> None:
        self.lanes = tuple(lanes)
        table = torch.tensor([lane_numbers(lane) for lane in lanes], dtype=torch.float64)
        self._build(
            table,
            device,
            _Bounds.of([(s.top_k, s.top_p) for s in lanes]),
            _Bounds.of([(s.subtalker_top_k, s.subtalker_top_p) for s in lanes]),
        )

    @classmethod
    def of(cls, table: Tensor) -> SamplerBatch:
        """Lanes that are rows of numbers F64[B, numbers], whatever they hold: what is done with
        them depends on B alone, and all of it is done where the table lies."""
        batch = cls.__new__(cls)
        batch.lanes = ()
        batch._build(table, table.device, _ANY, _ANY)
        return batch

    def _build(self, table: Tensor, device: torch.device, first: _Bounds, rest: _Bounds) -> None:
        def column(name: str, dtype: torch.dtype) -> Tensor:
            return table[:, _NUMBERS.index(name)].to(dtype).to(device)

        def stage(prefix: str, bounds: _Bounds) -> Stage:
            return Stage(
                column(f"{prefix}temperature", torch.float32),
                column(f"{prefix}top_k", torch.int64),
                column(f"{prefix}top_p", torch.float32),
                bounds,
            )

        self.precise = torch.float32 if device.type == "mps" else torch.float64
        self.penalty = column("repetition_penalty", torch.float32)[:, None]
        self.min_new = column("min_new_tokens", torch.int64)
        self.first, self.rest = stage("", first), stage("subtalker_", rest)

    def draw_first(self, scores: Tensor, u: Tensor) -> Tensor:
        """Codebook 0 from processed F32 scores [B, V] and u F32[B]: int64[B].

        The candidate is the first, in vocabulary order, at which the running sum of weights
        reaches u * total.
        """
        stage = self.first
        kept = scores / stage.divisor
        if not (stage.bounds.all_k and stage.bounds.kmax == 0):
            kept = _keep_top_k(kept, stage)
        if stage.bounds.nucleus:
            kept = _keep_top_p(kept, stage, self.precise)
        weights = (kept - kept.amax(-1, keepdim=True)).to(self.precise).exp()
        sums = weights.cumsum(-1)
        wanted = u.to(self.precise)[:, None] * sums[:, -1:]
        token = (sums < wanted).sum(-1)
        last = weights.shape[-1] - 1 - (kept > NEG_INF).flip(-1).int().argmax(-1)
        return torch.where(stage.greedy, scores.argmax(-1), torch.minimum(token, last))

    def frame(self, u: Tensor) -> FrameDraw:
        """The draws of a frame's acoustic codes from u F32[B, code_groups - 1]."""
        return FrameDraw(self, u)

    def draw_rest(self, scores: Tensor, u: Tensor) -> Tensor:
        """An acoustic code from F32 scores [B, V] and u F32[B]: int64[B].

        The candidates are sorted by falling score, ties by id; the code is the first at which the
        running probability exceeds u.
        """
        stage = self.rest
        count = scores.shape[-1] if stage.bounds.all_k else min(stage.bounds.kmax, scores.shape[-1])
        ids = _sorted_ids(scores, count)
        kept = scores.gather(-1, ids) / stage.divisor
        rank = torch.arange(count, device=scores.device)
        limit = torch.where(stage.top_k > 0, stage.top_k, count)[:, None]
        kept = kept.masked_fill(rank >= limit, NEG_INF)
        if stage.bounds.nucleus:
            before = kept.to(self.precise).softmax(-1).cumsum(-1).roll(1, -1)
            before[:, 0] = 0
            cut = (before >= stage.top_p[:, None]) & (stage.top_p < 1)[:, None]
            cut[:, 0] = False  # a top p may be 0 in F32
            kept = kept.masked_fill(cut, NEG_INF)
        sums = kept.to(self.precise).softmax(-1).cumsum(-1)
        place = (sums <= u.to(self.precise)[:, None]).sum(-1)
        # Of scores that are not numbers none is left, but what is drawn must exist.
        place = torch.minimum(place, (kept > NEG_INF).sum(-1) - 1).clamp_min_(0)
        place = place.masked_fill(stage.greedy, 0)
        return ids.gather(-1, place[:, None])[:, 0]


@dataclass(frozen=True, slots=True)
class FrameDraw:
    """The sampler of a frame's acoustic codes: called with the index of a code from 0 and its F32
    scores [B, vocab], it gives codes int64[B].

    `firsts` are the scores of code 0 it has seen, one F32[B] per call: not numbers where a lane's
    scores are not.
    """

    sampler: SamplerBatch
    u: Tensor
    firsts: list[Tensor] = field(default_factory=list)

    def __call__(self, step: int, scores: Tensor) -> Tensor:
        self.firsts.append(scores[:, 0])
        return self.sampler.draw_rest(scores, self.u[:, step])

    def lanes(self) -> tuple[Tensor, ...]:
        """As `engine.models.code_predictor.Drawing` says."""
        return (*self.sampler.rest.lanes, self.u.contiguous())


class Stage:
    """One stage's parameters per lane."""

    def __init__(self, temperature: Tensor, top_k: Tensor, top_p: Tensor, bounds: _Bounds) -> None:
        self.greedy = temperature <= 0
        self.divisor = temperature.masked_fill(self.greedy, 1.0)[:, None]
        self.top_k = top_k
        self.top_p = top_p
        self.bounds = bounds
        self.lanes = (self.divisor.flatten(), top_k, top_p, self.greedy.long())


def penalise(scores: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Divide (score >= 0) or multiply (score < 0) the scores [B, V] of codes already drawn."""
    changed = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(seen, changed, scores)


def repeated_ngram(history: Sequence[int], size: int) -> list[int]:
    """The codes that would complete an n-gram already in `history` (Hugging Face's rule)."""
    if size <= 0 or len(history) + 1 < size:
        return []
    tail = tuple(history[len(history) - size + 1 :])
    starts = range(len(history) - size + 1)
    return [history[i + size - 1] for i in starts if tuple(history[i : i + size - 1]) == tail]


def _keep_top_k(scores: Tensor, stage: Stage) -> Tensor:
    count = min(stage.bounds.kmax, scores.shape[-1])
    best = scores.topk(count, dim=-1).values
    place = (stage.top_k.clamp(1, count) - 1)[:, None]
    threshold = best.gather(-1, place)
    # A lane that keeps everything, by 0 or by asking for more than there are.
    unlimited = (stage.top_k <= 0) | (stage.top_k >= scores.shape[-1])
    return scores.masked_fill((scores < threshold) & ~unlimited[:, None], NEG_INF)


def _keep_top_p(scores: Tensor, stage: Stage, precise: torch.dtype) -> Tensor:
    ids = scores.argsort(dim=-1, descending=True, stable=True)
    probabilities = scores.to(precise).softmax(-1).gather(-1, ids)
    before = probabilities.cumsum(-1) - probabilities
    cut = (before >= stage.top_p[:, None]) & (stage.top_p < 1)[:, None]
    cut[:, 0] = False
    return scores.masked_fill(torch.zeros_like(cut).scatter(-1, ids, cut), NEG_INF)


def _sorted_ids(scores: Tensor, count: int) -> Tensor:
    # An order-preserving integer key with the id in its low half: ties go to the lower id, and
    # the choice does not depend on the algorithm behind `topk`.
    bits = (scores + 0.0).contiguous().view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    ids = torch.arange(scores.shape[-1], device=scores.device)
    keys = (ordered << 32) | (0xFFFFFFFF - ids)
    return 0xFFFFFFFF - (keys.topk(count, dim=-1).values & 0xFFFFFFFF)


__all__ = [
    "LANE_NUMBERS",
    "NEG_INF",
    "FrameDraw",
    "LaneSampling",
    "SamplerBatch",
    "lane_numbers",
    "penalise",
    "philox_draws",
    "philox_uniforms",
    "repeated_ngram",
    "resolve",
    "validate",
]
