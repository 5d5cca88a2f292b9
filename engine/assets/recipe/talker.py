"""Step 5, talker: text to codes, with the engine's own talker and code predictor.

Two heads of one layer are taught at first to look at the word being said.
Prompts come in all the layouts a server uses: English or automatic language, whole text or
incremental text. Saves `talker.pt` once a minute and goes on from it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import teacher
import torch
import torch.nn.functional as F
from codec import Clock, Optimizers, rate
from torch import Tensor, nn
from vocabulary import ROWS, load, tokens

from engine.config import TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.layers import attend_causal, rope_table
from engine.models.talker import Talker
from engine.tts.prompt import ROLE, SUFFIX, PromptPlan, build_prompt, codec_tags
from engine.tts.tokenizer import Tokenizer

GUIDED_LAYER, GUIDED_HEADS = 1, 2
POSITIONS = 2048
HIDDEN = 0.15
NOT_YET = teacher.CODES - 1  # of code 0, before the first word
IGNORED = -100


class Model(nn.Module):
    def __init__(self, spec: TalkerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.talker, self.predictor = Talker(spec), CodePredictor(spec)
        self.rope = rope_table(spec.talker, torch.arange(POSITIONS), torch.float32)
        places = torch.arange(spec.code_groups)
        self.small_rope = rope_table(spec.predictor, places, torch.float32)
        # Training only: what the guided heads read should already tell the phonemes.
        self.reader = nn.Linear(
            GUIDED_HEADS * spec.talker.head_dim, teacher.PER_FRAME * teacher.CODES
        )
        for name, value in self.named_parameters():
            if value.dim() > 1:
                table = "embd" in name
                nn.init.normal_(value, 0, 0.05 if table else 0.6 * value.shape[1] ** -0.5)

    def acoustic_loss(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """hidden [N, H], codes int64[N, K] -> mean cross-entropy of each acoustic code [K - 1]."""
        embeds = self.predictor.codec_embd
        parts = [hidden, self.talker.codec_embd(codes[:, 0])]
        parts += [embed(codes[:, i + 1]) for i, embed in enumerate(embeds[:-1])]
        attends = [attend_causal] * len(self.predictor.blk)
        out = self.predictor(torch.stack(parts, 1), self.small_rope, attends)
        heads = self.predictor.lm_head
        losses = [F.cross_entropy(h(out[:, i + 1]), codes[:, i + 1]) for i, h in enumerate(heads)]
        return torch.stack(losses)


# Data


@dataclass
class Example:
    plan: PromptPlan
    codes: np.ndarray  # int16[T, K]
    words: np.ndarray  # bool[2, T, text ids]

    @property
    def size(self) -> int:
        return self.plan.positions + len(self.codes)


class Corpus:
    def __init__(self, work: Path, tokenizer: Tokenizer, spec: TalkerSpec) -> None:
        self.tokenizer, self.spec = tokenizer, spec
        self.lines = teacher.lines_of(work, held=False)
        self.held = teacher.lines_of(work, held=True)
        self.spelling = Spelling(tokens(work))
        self.lines = [line for line in self.lines if self.counted(line)]
        self.held = [line for line in self.held if self.counted(line)]

    def counted(self, line: teacher.Line) -> bool:
        """Whether text and timing have the same number of words; figures are read as several."""
        ids = self.tokenizer.utterance(line.text)[ROLE:-SUFFIX]
        opens = self.spelling.opens[list(ids)]
        return int(opens.sum() - opens[0]) == _spoken(line.steps)[-1]

    def example(self, line: teacher.Line, rng: random.Random) -> Example:
        speaker = rng.randrange(len(self.spec.speakers))
        whole = rng.random() > 0.1
        if not whole:
            # The text is still arriving: two more frames of silence before the voice sets in.
            wait = np.zeros(2 * teacher.PER_FRAME, np.uint8)
            steps = np.concatenate([wait, line.steps])
            pitch = np.concatenate([np.zeros(2 * len(wait), np.float16), line.pitch])
            line = teacher.Line(line.text, steps, pitch, line.spoken)
        ids = self.tokenizer.utterance(line.text)
        language = self.spec.languages["english"] if rng.random() < 0.6 else None
        plan = PromptPlan(
            role=tuple(ids[:ROLE]),
            text=tuple(ids[ROLE:-SUFFIX]),
            instructions=(),
            tags=codec_tags(self.spec, language),
            speaker_row=self.spec.speakers[speaker].id,
            speaker_vector=None,
            reference_text=(),
            reference_codes=None,
            whole_text=whole,
        )
        codes = teacher.codes(line, speaker, np.random.default_rng(rng.getrandbits(32)))
        near, piece = words(plan.text, self.spelling, codes)
        return Example(plan, np.concatenate([piece[:, None], codes], 1), near)

    def epoch(self, positions: int, rng: random.Random) -> Iterator[list[Example]]:
        """Batches of like length, at most `positions` padded rows each."""
        lines = rng.sample(self.lines, len(self.lines))
        while lines:
            pool, lines = lines[:1000], lines[1000:]
            for _ in range(len(pool) // 8):
                pair = rng.sample(pool, rng.choice([2, 2, 3]))
                if sum(len(p.steps) for p in pair) < 500:
                    pool.append(teacher.joined(pair))
            examples = sorted((self.example(x, rng) for x in pool), key=lambda e: e.size)
            batches: list[list[Example]] = [[]]
            for e in examples:
                if e.size * (len(batches[-1]) + 1) > positions and batches[-1]:
                    batches.append([])
                batches[-1].append(e)
            yield from rng.sample(batches, len(batches))


# Loss


class Guide:
    """Attention as usual, and the cost of two heads for not looking at the word being said."""

    def __init__(self, allowed: Tensor) -> None:
        self.allowed, self.loss, self.read = allowed, torch.zeros(()), torch.zeros(())

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = torch.einsum("bhtd,bsd->bhts", q[:, :GUIDED_HEADS], k[:, 0]) / q.shape[-1] ** 0.5
        length = q.shape[2]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = heads.masked_fill(future, float("-inf")).softmax(-1)
        mass = (weights * self.allowed).sum(-1)
        asked = self.allowed.any(-1)
        self.loss = -mass[asked].clamp(min=1e-4).log().mean()
        out = attend_causal(q, k, v)
        self.read = out[:, :GUIDED_HEADS].transpose(1, 2).flatten(2)
        return out


def allowed(batch: list[Example], starts: list[int], length: int) -> Tensor:
    """bool[B, heads, T, T]: which rows of the prompt hold what each frame says."""
    out = torch.zeros(len(batch), GUIDED_HEADS, length, length, dtype=torch.bool)
    for row, (example, start) in enumerate(zip(batch, starts, strict=True)):
        if example.plan.whole_text:
            text = len(example.plan.text)
            first = start - text - 1  # the text lies right before its end marker and bos
            rows = slice(start, start + len(example.codes))
            out[row, :, rows, first : first + text] = torch.from_numpy(example.words)
    return out


class Spelling:
    """Which ids open a word, and how many letters each has."""

    def __init__(self, tokens: list[str]) -> None:
        self.opens = np.array([t.startswith("Ġ") for t in tokens] + [False] * ROWS)
        self.letters = np.array([max(1, len(t.lstrip("Ġ"))) for t in tokens] + [1] * ROWS)


def _spoken(steps: np.ndarray) -> np.ndarray:
    """The number of the word each step belongs to; a gap belongs to the word behind it."""
    gap = np.isin(steps, (0, teacher.GAP))
    sounding = np.maximum.accumulate(~gap)
    enters = gap & ~np.concatenate([[True], gap[:-1]]) & sounding
    count = np.cumsum(enters)
    last = count[np.flatnonzero(~gap)[-1]] if sounding[-1] else 0
    return np.minimum(count, last)


def words(
    ids: tuple[int, ...], spelling: Spelling, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """bool[2, T, ids]: does an id belong to the word of a frame, and to its part of it?

    And int16[T], the id reached at each frame's end. Between words the teacher has a gap of its
    own; within a word letters and steps are counted off proportionally.
    """
    steps = codes[:, : teacher.PER_FRAME].ravel()
    spoken = _spoken(steps)
    opens, letters = spelling.opens[list(ids)], spelling.letters[list(ids)]
    written = np.minimum(np.cumsum(opens) - opens[0], spoken[-1])
    frames = spoken.reshape(-1, teacher.PER_FRAME)
    coarse = (frames.min(1)[:, None] <= written) & (written <= frames.max(1)[:, None])
    # Both sides as places on one axis: the number of the word and how much of it has passed.
    said = (spoken + _passed(spoken, np.ones(len(spoken)))).reshape(frames.shape)
    ends = written + _passed(written, letters)
    begins = ends - letters / np.bincount(written, letters)[written]
    early, late = said.min(1)[:, None] - 0.2, said.max(1)[:, None] + 0.2
    fine = (begins[None] <= late) & (ends[None] >= early)
    reached = np.minimum(np.searchsorted(ends, said[:, -1] - 1e-3), len(ids) - 1)
    begun = np.maximum.accumulate(~np.isin(steps, (0, teacher.GAP))).reshape(frames.shape)[:, -1]
    piece = np.where(begun, np.array(ids)[reached], NOT_YET).astype(np.int16)
    return np.stack([coarse, fine]), piece


def _passed(word: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How much of its word is over at the end of each part, up to just under 1."""
    total = np.cumsum(sizes)
    before = np.concatenate([[0], np.cumsum(np.bincount(word, sizes))])[word]
    part: np.ndarray = (total - before) / np.bincount(word, sizes)[word]
    return part * 0.999


def losses(model: Model, batch: list[Example], *, guide: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of code 0, those of codes 1 to K-1 [K - 1], and the guide's cost."""
    spec, inputs, targets, starts, codes = model.spec, [], [], [], []
    for example in batch:
        prompt = build_prompt(example.plan, model.talker, model.predictor, spec)
        rows = torch.from_numpy(example.codes.astype(np.int64))
        frames = model.talker.codec_embd(rows[:, 0]) + model.predictor.embed(rows[:, 1:])
        if model.training:
            # Some frames are hidden, so that the text must tell what they would have told.
            frames = frames * (torch.rand(len(rows), 1) > HIDDEN)
        overlay = prompt.overlay[: len(rows)]
        rest = prompt.pad.expand(len(rows) - len(overlay), -1)
        inputs.append(torch.cat([prompt.embeds, frames + torch.cat([overlay, rest])]))
        start = len(prompt.embeds) - 1
        target = torch.full((len(inputs[-1]),), IGNORED)
        target[start:-1] = rows[:, 0]
        target[-1] = spec.codec_tokens.eos
        targets.append(target)
        starts.append(start)
        codes.append(rows)
    x = nn.utils.rnn.pad_sequence(inputs, batch_first=True)
    wanted = nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=IGNORED)
    length = x.shape[1]
    attends: list = [attend_causal] * len(model.talker.blk)
    guided = Guide(allowed(batch, starts, length)) if guide else None
    if guided:
        attends[GUIDED_LAYER] = guided
    rope = (model.rope[0][:length], model.rope[1][:length])
    hidden = model.talker(x, rope, attends)
    seen = wanted != IGNORED
    logits = model.talker.logits(hidden[seen])
    first = F.cross_entropy(logits, wanted[seen])
    framed = [hidden[i, s : s + len(c)] for i, (s, c) in enumerate(zip(starts, codes, strict=True))]
    rest = model.acoustic_loss(torch.cat(framed), torch.cat(codes))
    return first, rest, _guidance(model, guided, starts, codes) if guided else torch.zeros(())


def _guidance(model: Model, guide: Guide, starts: list[int], codes: list[Tensor]) -> Tensor:
    reads = [
        guide.read[i, s : s + len(c)] for i, (s, c) in enumerate(zip(starts, codes, strict=True))
    ]
    told = model.reader(torch.cat(reads)).view(-1, teacher.CODES)
    steps = torch.cat(codes)[:, 1 : 1 + teacher.PER_FRAME].reshape(-1)
    return guide.loss + F.cross_entropy(told, steps)


# Training


@torch.no_grad()
def validate(model: Model, corpus: Corpus) -> str:
    rng = random.Random(5)
    model.eval()
    examples = [corpus.example(line, rng) for line in corpus.held[:48]]
    found = [losses(model, [e], guide=False) for e in examples]
    model.train()
    first = float(torch.stack([f[0] for f in found]).mean())
    rest = torch.stack([f[1] for f in found]).mean(0)
    return f"held out: c0 {first:.3f} " + " ".join(f"{x:.3f}" for x in rest.tolist())


def train(model: Model, corpus: Corpus, clock: Clock, args: argparse.Namespace) -> None:
    used = list(model.parameters())
    optimizers = Optimizers(model, used, decay=0.02)
    rng = random.Random(time.time_ns())
    while clock.passed < 1:
        for batch in corpus.epoch(args.positions, rng):
            guide = clock.step < args.guided
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                first, rest, guided = losses(model, batch, guide=guide)
            loss = first + rest[:3].sum() + 0.5 * rest[3:].sum() + 0.5 * guided
            optimizers.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(used, 1.0)
            optimizers.step(rate(clock.passed, clock.step, args.rate))
            named = {f"c{i + 1}": float(x) for i, x in enumerate(rest.detach())}
            clock.tick(c0=float(first.detach()), **named, guide=float(guided.detach()))
            if clock.step % 250 == 0:
                print(validate(model, corpus), flush=True)
            if clock.passed >= 1:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--positions", type=int, default=2000, help="rows of a batch")
    parser.add_argument("--guided", type=int, default=2000, help="steps with guided attention")
    parser.add_argument("--bf16", action="store_true", help="where the processor multiplies it")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokenizer, spec = load(args.work)
    model, path = Model(spec), args.work / "talker.pt"
    if path.exists():
        model.load_state_dict(torch.load(path)["model"])
    corpus = Corpus(args.work, tokenizer, spec)
    print(len(corpus.lines), "lines", sum(p.numel() for p in model.parameters()) / 1e6, "M")
    clock = Clock(path, args.minutes * 60, model=model)
    train(model, corpus, clock, args)
    clock.save()


if __name__ == "__main__":
    main()
