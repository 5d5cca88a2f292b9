"""From request to entry: what can be checked and counted before the worker sees it. No tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.catalog import Catalog
from engine.config import EngineConfig, ModelSpec
from engine.errors import InvalidRequest
from engine.incoming import OpenInput
from engine.request import Job, SpeechRequest, derive_seed
from engine.stream import Stream
from engine.text.frontend import Frontend, Reading
from engine.text.lexicon import Lexicon, read_lexicon
from engine.text.normalize import terminate
from engine.text.pace import Fit
from engine.text.split import line_breaks, speakable, split
from engine.text.steps import wanted_steps
from engine.tts.feed import Feed
from engine.tts.prompt import REFERENCE_SUFFIX, ROLE, SUFFIX, ClipPlan, PromptPlan, codec_tags
from engine.tts.sampling import LaneSampling, resolve
from engine.tts.slot import Entry
from engine.tts.sources import NOBODY, Source, check_clip, source, transcript_fit
from engine.tts.tokenizer import Tokenizer
from engine.utterance import Part
from engine.voice import Clip, Voice

FRAMES_PER_TOKEN = 12  # the automatic ceiling: nobody speaks slower than this
LEAST_FRAMES = 192
MOST_FIRST_FRAMES = 64
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
        self._frontend = Frontend(read_lexicon(config.lexicon) if config.lexicon else Lexicon())

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
        max_frames, warning = self._ceiling(request, plan, len(plan.text))
        return self._entry(
            request,
            envelope,
            plan,
            max_frames=max_frames,
            warnings=(*warnings, *warning),
            on_cancel=on_cancel,
            on_drained=on_drained,
        )

    def open(
        self,
        request: SpeechRequest,
        envelope: Envelope,
        on_cancel: Callable[[], None],
        on_drained: Callable[[], None],
        patience_s: float,
    ) -> tuple[Entry, Feed]:
        """The same for a request whose text is still to come; the feed takes it.

        Raises:
            InvalidRequest: as for `entry`; also for the whole-text layout.
        """
        if request.non_streaming_mode:
            raise InvalidRequest(
                "`non_streaming_mode` must not be true while the text is still open: the whole"
                " text would have to be there before the first frame",
                "non_streaming_mode",
            )
        lead, trail = self._tokenizer.frame
        ids = [*lead, *trail]
        plan, warnings = self._laid_out(replace(request, non_streaming_mode=False), ids)
        plan = replace(plan, text=(), open=True)
        limit = self._text_capacity(request, plan, LEAST_ROOM)
        most, warning = self._ceiling(request, plan, limit)
        entry = self._entry(
            request,
            envelope,
            plan,
            max_frames=most,
            warnings=(*warnings, *warning),
            on_cancel=on_cancel,
            on_drained=on_drained,
        )
        feed = Feed(
            self._tokenizer,
            limit,
            lead=lead[ROLE:],
            trail=trail[: len(trail) - SUFFIX],
            read=self._reader(request),
            mark=self._config.terminal_mark,
        )
        source = OpenInput(plan.first_ids, most, patience_s)
        return replace(entry, input=source), feed

    def ceiling(self, request: SpeechRequest, entry: Entry, tokens: int) -> int:
        """Most frames of an open request once its text has ended with so many ids."""
        return self._ceiling(request, entry.plan, tokens)[0]

    def _entry(
        self,
        request: SpeechRequest,
        envelope: Envelope,
        plan: PromptPlan,
        *,
        max_frames: int,
        warnings: tuple[str, ...],
        on_cancel: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> Entry:
        sampling = resolve(request.sampling, self.spec.talker.generation)
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
            warnings=warnings,
        )
        first = _first_frames(request)
        return Entry(job, stream, plan, sampling, max_frames, envelope.streaming, first)

    def parts(self, request: SpeechRequest) -> list[Part]:
        """The request as one or more that fit a job each, with seeds derived from its own.

        The front end prepares the text and cuts it at its pauses; a stretch that fits stays whole.
        Raises `InvalidRequest` like `entry`, and when the instructions or the reference leave no
        room for parts of a sensible length.
        """
        sampling: LaneSampling = resolve(request.sampling, self.spec.talker.generation)
        reading = self._read(request)
        parts: list[Part] = []
        for passage in reading.passages:
            spoken = replace(request, text=passage.text)
            pieces = self._with_pauses(spoken, self._fitting(spoken), sampling.seed, len(parts))
            pieces[0] = replace(pieces[0], pause_samples=self._samples(passage.pause_s))
            parts += pieces
            # Only the first part has a listener who has heard nothing yet.
            request = replace(request, first_chunk_frames=None)
        parts[-1] = replace(parts[-1], tail_samples=self._samples(reading.pause_s))
        return parts

    def _read(self, request: SpeechRequest) -> Reading:
        steps = wanted_steps(request.normalize, self._config.normalize)
        reading = self._frontend.read(request.text, request.language, steps)
        if not self._config.terminal_mark or request.normalize is False:
            return reading
        ended = [
            replace(passage, text=terminate(passage.text)) if speakable(passage.text) else passage
            for passage in reading.passages
        ]
        return replace(reading, passages=tuple(ended))

    def _fitting(self, request: SpeechRequest) -> list[str]:
        plan, _ = self._plan(request)
        limit = self._text_capacity(request, plan, min(LEAST_ROOM, len(plan.text)))
        if len(plan.text) <= limit:
            return [request.text]
        try:
            texts = split(request.text, limit, self._tokenizer.count, self._tokenizer.starts)
        except ValueError as error:
            message = f"a slot has no room for a single character of `text`: {error}"
            raise InvalidRequest(message, "text") from None
        return [text for text in texts if speakable(text)]

    def reference(self, clip: Clip, transcript: str | None, tail_s: float) -> tuple[str, ...]:
        """Check a clip a voice is to be made of; returns doubts about the transcript.

        Raises:
            UnsupportedMode: the model has no encoder for it.
            InvalidRequest: the transcript is blank or cannot be what the clip says, the silence is
                out of range, or both together leave a slot no room for text.
        """
        check_clip(self.spec, codes=transcript is not None)
        frames = clip.frames(self.spec.codec.samples_per_frame, tail_s)
        if transcript is None:
            return ()
        found, doubt = transcript_fit(clip, transcript)
        if found is Fit.IMPOSSIBLE:
            raise InvalidRequest(doubt, "ref_text")
        taken = frames + len(self._reference(transcript))
        if taken + LEAST_ROOM * FRAMES_PER_TOKEN > self._config.kv_positions:
            raise InvalidRequest(
                f"the clip and its transcript take {taken} of the {self._config.kv_positions}"
                " positions a slot holds, which leaves no room for text: take a shorter clip",
                "ref_audio",
            )
        return (doubt,) if found is Fit.DOUBTFUL else ()

    def _with_pauses(
        self, request: SpeechRequest, texts: list[str], seed: int, number: int
    ) -> list[Part]:
        pause = self._samples(self._config.paragraph_pause_s)
        parts, end = [], 0
        for index, text in enumerate(texts):
            start = request.text.index(text, end)
            paragraph = index > 0 and line_breaks(request.text[end:start]) > 1
            spoken = _reseeded(replace(request, text=text), derive_seed(seed, number + index))
            parts.append(Part(spoken, pause if paragraph else 0))
            end = start + len(text)
        return parts

    def _samples(self, seconds: float) -> int:
        return round(seconds * self.spec.codec.sample_rate)

    def _plan(self, request: SpeechRequest) -> tuple[PromptPlan, tuple[str, ...]]:
        if not speakable(request.text):
            raise InvalidRequest("`text` holds nothing that can be spoken", "text")
        return self._laid_out(request, self._tokenizer.utterance(request.text))

    def _laid_out(
        self, request: SpeechRequest, ids: list[int]
    ) -> tuple[PromptPlan, tuple[str, ...]]:
        talker = self.spec.talker
        delivery = self._catalog.resolve(request, talker)
        instructions = delivery.instructions
        voice = source(request, self.spec)
        reference = self._reference(voice.transcript)
        plan = PromptPlan(
            role=tuple(ids[:ROLE]),
            text=tuple(ids[ROLE:-SUFFIX]),
            instructions=tuple(self._tokenizer.instructions(instructions)) if instructions else (),
            tags=codec_tags(talker, delivery.language),
            speaker_row=delivery.speaker.id if delivery.speaker and voice is NOBODY else None,
            speaker_vector=voice.vector,
            reference_text=reference,
            reference_codes=None if voice.codes is None else voice.codes.T.astype(np.int64),
            whole_text=delivery.whole_text,
            clip=self._clip(voice),
        )
        return plan, (*delivery.warnings, *voice.warnings)

    def _reference(self, transcript: str | None) -> tuple[int, ...]:
        if transcript is None:
            return ()
        return tuple(self._tokenizer.reference(transcript)[ROLE:-REFERENCE_SUFFIX])

    def _clip(self, voice: Source) -> ClipPlan | None:
        if voice.clip is None:
            return None
        samples, frames = self.spec.codec.samples_per_frame, 0
        if voice.tail_s is not None:
            frames = voice.clip.frames(samples, voice.tail_s)
        return ClipPlan(voice.clip, voice.tail_s, frames)

    def _reader(self, request: SpeechRequest) -> Callable[[str], str] | None:
        if request.normalize in (None, False):
            return None
        steps = wanted_steps(request.normalize, self._config.normalize)

        def read(sentence: str) -> str:
            passages = self._frontend.read(sentence, request.language, steps).passages
            return " ".join(passage.text for passage in passages)

        return read

    def _ceiling(
        self, request: SpeechRequest, plan: PromptPlan, tokens: int
    ) -> tuple[int, tuple[str, ...]]:
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
        ceiling = max(LEAST_FRAMES, FRAMES_PER_TOKEN * tokens)
        return min(ceiling, self._most_frames(), left), ()

    def _most_frames(self) -> int:
        file = self.spec.talker.generation.max_new_tokens
        return min(self._config.max_frames, file or self._config.max_frames)

    def _text_capacity(self, request: SpeechRequest, plan: PromptPlan, needed: int) -> int:
        # Text tokens whose automatic ceiling both the frame limit and the slot's rows can hold.
        fixed = plan.positions - (len(plan.text) if plan.whole_text else 0)
        rows = self._config.kv_positions - fixed
        room = max(0, rows) // (FRAMES_PER_TOKEN + plan.whole_text)
        self._check_room(request, plan, room, needed)
        return max(1, min(self._most_frames() // FRAMES_PER_TOKEN, room))

    def _check_room(self, request: SpeechRequest, plan: PromptPlan, room: int, needed: int) -> None:
        instructions, reference = len(plan.instructions), _reference_positions(plan)
        if room >= needed or not instructions + reference:
            return
        referring = ("`reference_text` and its codes take", "reference_text")
        if isinstance(request.voice, Voice):
            referring = ("the codes and words of `voice` take", "voice")
        taken, what, field = max(
            (instructions, "`instructions` take", "instructions"),
            (reference, *referring),
        )
        raise InvalidRequest(
            f"{what} {taken} of the {self._config.kv_positions} positions a slot holds and leave"
            f" room for {room} tokens of `text`; at least {needed} are needed",
            field,
        )


def _first_frames(request: SpeechRequest) -> int | None:
    frames = request.first_chunk_frames
    if frames is not None and not 1 <= frames <= MOST_FIRST_FRAMES:
        raise InvalidRequest(
            f"`first_chunk_frames` must be from 1 to {MOST_FIRST_FRAMES}, got {frames}",
            "first_chunk_frames",
        )
    return frames


def _reseeded(request: SpeechRequest, seed: int) -> SpeechRequest:
    return replace(request, sampling=replace(request.sampling, seed=seed))


def _reference_positions(plan: PromptPlan) -> int:
    return plan.reference_frames + (len(plan.reference_text) if plan.whole_text else 0)


__all__ = ["Envelope", "Intake"]
