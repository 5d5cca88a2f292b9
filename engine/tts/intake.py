"""From request to entry: what can be checked and counted before the worker sees it. No tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.catalog import Catalog, Delivery
from engine.config import EngineConfig, ModelSpec
from engine.errors import InvalidRequest
from engine.request import Job, SpeechRequest, derive_seed
from engine.stream import Stream
from engine.text.normalize import terminate
from engine.text.split import line_breaks, speakable, split
from engine.tts.prompt import REFERENCE_SUFFIX, ROLE, SUFFIX, PromptPlan, codec_tags
from engine.tts.sampling import LaneSampling, resolve
from engine.tts.slot import Entry
from engine.tts.tokenizer import Tokenizer
from engine.utterance import Part

FRAMES_PER_TOKEN = 12  # the automatic ceiling: nobody speaks slower than this
LEAST_FRAMES = 192
LEAST_ROOM = 16  # text tokens of the shortest part that still sounds like speech


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who asks and how urgently: the fields of a `Job` that do not follow from the text."""

    id: str
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    continuation: bool = False
    streaming: bool = True


class Intake:
    """Prepares requests for one model. Safe to call from several threads."""

    def __init__(
        self, spec: ModelSpec, tokenizer: Tokenizer, catalog: Catalog, config: EngineConfig
    ) -> None:
        self.spec = spec
        self._tokenizer = tokenizer
        self._catalog = catalog
        self._config = config

    def entry(
        self,
        request: SpeechRequest,
        envelope: Envelope,
        on_cancel: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> Entry:
        """Check a request, plan its prompt and give it a stream.

        Raises:
            InvalidRequest: naming the field; also when the prompt cannot fit a slot.
        """
        plan, warnings = self._plan(request)
        sampling = resolve(request.sampling, self.spec.talker.generation)
        max_frames, warning = self._ceiling(request, plan)
        job = Job(
            id=envelope.id,
            model=self.spec.name,
            cost_frames=max_frames,
            tenant=envelope.tenant,
            priority=envelope.priority,
            deadline=envelope.deadline,
            continuation=envelope.continuation,
        )
        stream = Stream(
            job.id,
            seed=sampling.seed,
            sample_rate=self.spec.codec.sample_rate,
            max_bytes=self._config.stream_bytes,
            on_cancel=on_cancel,
            on_drained=on_drained,
            warnings=(*warnings, *warning),
        )
        return Entry(job, stream, plan, sampling, max_frames, envelope.streaming)

    def parts(self, request: SpeechRequest) -> list[Part]:
        """The request as one or more that fit a job each, with seeds derived from its own.

        A text that fits stays whole. Raises `InvalidRequest` like `entry`, and when the
        instructions or the reference leave no room for parts of a sensible length.
        """
        if self._config.terminal_mark and speakable(request.text):
            request = replace(request, text=terminate(request.text))
        plan, _ = self._plan(request)
        limit = self._text_capacity(plan)
        sampling: LaneSampling = resolve(request.sampling, self.spec.talker.generation)
        if len(plan.text) <= limit:
            return [Part(_reseeded(request, sampling.seed))]
        try:
            texts = split(request.text, limit, self._tokenizer.count, self._tokenizer.starts)
        except ValueError as error:
            message = f"a slot has no room for a single character of `text`: {error}"
            raise InvalidRequest(message, "text") from None
        return self._with_pauses(request, [text for text in texts if speakable(text)], sampling)

    def _with_pauses(
        self, request: SpeechRequest, texts: list[str], sampling: LaneSampling
    ) -> list[Part]:
        pause = round(self._config.paragraph_pause_s * self.spec.codec.frame_rate)
        parts, end = [], 0
        for index, text in enumerate(texts):
            start = request.text.index(text, end)
            paragraph = index > 0 and line_breaks(request.text[end:start]) > 1
            spoken = _reseeded(replace(request, text=text), derive_seed(sampling.seed, index))
            parts.append(Part(spoken, pause if paragraph else 0))
            end = start + len(text)
        return parts

    def _plan(self, request: SpeechRequest) -> tuple[PromptPlan, tuple[str, ...]]:
        if not speakable(request.text):
            raise InvalidRequest("`text` holds nothing that can be spoken", "text")
        talker = self.spec.talker
        delivery = self._catalog.resolve(request, talker)
        ids = self._tokenizer.utterance(request.text)
        instructions = delivery.instructions
        reference, codes = self._reference(request)
        plan = PromptPlan(
            role=tuple(ids[:ROLE]),
            text=tuple(ids[ROLE:-SUFFIX]),
            instructions=tuple(self._tokenizer.instructions(instructions)) if instructions else (),
            tags=codec_tags(talker, delivery.language),
            speaker_row=_row(request, delivery),
            speaker_vector=request.speaker_embedding,
            reference_text=reference,
            reference_codes=codes,
            whole_text=delivery.whole_text,
        )
        return plan, delivery.warnings

    def _reference(
        self, request: SpeechRequest
    ) -> tuple[tuple[int, ...], npt.NDArray[np.int64] | None]:
        codes = request.reference_codes
        if codes is None:
            if request.reference_text is not None:
                raise InvalidRequest("`reference_text` needs `reference_codes`", "reference_codes")
            return (), None
        spec = self.spec
        if spec.talker.task != "base":
            raise InvalidRequest("`reference_codes` need a Base model", "reference_codes")
        groups = spec.talker.code_groups
        if codes.ndim != 2 or codes.shape[0] != groups or codes.shape[1] == 0:
            raise InvalidRequest(
                f"`reference_codes` must be [{groups}, frames], got {list(codes.shape)}",
                "reference_codes",
            )
        if not np.issubdtype(codes.dtype, np.integer):
            raise InvalidRequest("`reference_codes` must be integers", "reference_codes")
        if codes.min() < 0 or codes.max() >= spec.codec.codebook_size:
            raise InvalidRequest(
                f"`reference_codes` must lie in 0..{spec.codec.codebook_size - 1}",
                "reference_codes",
            )
        if not request.reference_text or not request.reference_text.strip():
            raise InvalidRequest("`reference_text` must say what the codes say", "reference_text")
        ids = self._tokenizer.reference(request.reference_text)
        return tuple(ids[ROLE:-REFERENCE_SUFFIX]), codes.T.copy()

    def _ceiling(self, request: SpeechRequest, plan: PromptPlan) -> tuple[int, tuple[str, ...]]:
        left = self._config.kv_positions - plan.positions
        if left < 1:
            raise InvalidRequest(
                f"the prompt takes {plan.positions} positions and a slot holds "
                f"{self._config.kv_positions}; shorten `text` or `instructions`",
                "text",
            )
        wanted = request.sampling.max_new_tokens
        if wanted is not None:
            if wanted <= left:
                return wanted, ()
            return left, (f"`max_new_tokens` is {wanted}, but only {left} frames fit the slot",)
        ceiling = max(LEAST_FRAMES, FRAMES_PER_TOKEN * len(plan.text))
        return min(ceiling, self._most_frames(), left), ()

    def _most_frames(self) -> int:
        file = self.spec.talker.generation.max_new_tokens
        return min(self._config.max_frames, file or self._config.max_frames)

    def _text_capacity(self, plan: PromptPlan) -> int:
        # Text tokens whose automatic ceiling both the frame limit and the slot's rows can hold.
        fixed = plan.positions - (len(plan.text) if plan.whole_text else 0)
        rows = self._config.kv_positions - fixed
        room = max(0, rows) // (FRAMES_PER_TOKEN + plan.whole_text)
        self._check_room(plan, room)
        return max(1, min(self._most_frames() // FRAMES_PER_TOKEN, room))

    def _check_room(self, plan: PromptPlan, room: int) -> None:
        needed = min(LEAST_ROOM, len(plan.text))
        instructions, reference = len(plan.instructions), _reference_positions(plan)
        if room >= needed or not instructions + reference:
            return
        taken, what, field = max(
            (instructions, "`instructions` take", "instructions"),
            (reference, "`reference_text` and its codes take", "reference_text"),
        )
        raise InvalidRequest(
            f"{what} {taken} of the {self._config.kv_positions} positions a slot holds and leave"
            f" room for {room} tokens of `text`; at least {needed} are needed",
            field,
        )


def _reseeded(request: SpeechRequest, seed: int) -> SpeechRequest:
    return replace(request, sampling=replace(request.sampling, seed=seed))


def _reference_positions(plan: PromptPlan) -> int:
    if plan.reference_codes is None:
        return 0
    return len(plan.reference_codes) + (len(plan.reference_text) if plan.whole_text else 0)


def _row(request: SpeechRequest, delivery: Delivery) -> int | None:
    if request.speaker_embedding is not None or delivery.speaker is None:
        return None
    return delivery.speaker.id


__all__ = ["Envelope", "Intake"]
