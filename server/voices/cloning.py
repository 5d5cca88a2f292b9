"""Voices and clips as the routes need them: registry, engine and reference sources together.

The event loop is left alone: sound is decoded and files are written on threads, and the engine's
worker encodes between frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

import engine
from engine import EngineUnavailable, InvalidRequest, PayloadTooLarge, UnsupportedMode
from server.schemas.reference import Reference
from server.settings import Settings
from server.voices.fetch import Fetcher
from server.voices.latents import doubts
from server.voices.registry import Registry, default_folder, is_consent_id
from server.voices.saved import SavedVoice
from server.voices.sources import Sources

# Writers wait for the folder's lock. They have threads of their own, so that speech has others.
_WRITERS = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draft:
    """A voice that is not made yet: exactly one of `clip`, `spk` and `embedding` is there."""

    name: str
    transcript: str | None = None
    clip: bytes | None = None
    mime_type: str | None = None
    spk: bytes | None = None
    rvq: bytes | None = None
    embedding: Sequence[float] | None = None
    tail_silence_s: float = 0.5
    consent: str | None = None
    description: str | None = None
    overwrite: bool = False


class Voices:
    """The saved voices of one server, and what makes them."""

    def __init__(self, loaded: engine.Engine, settings: Settings, registry: Registry) -> None:
        self.registry = registry
        self._sources = open_sources(settings)
        self._engine = loaded
        self._require_consent = settings.require_consent
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="voices")

    async def refresh(self) -> None:
        """See voices that another process added, and forget those it removed."""
        for gone in await asyncio.to_thread(self.registry.refresh):
            await self._purge(gone)

    async def clip(self, data: bytes) -> engine.Clip:
        """Reference sound, decoded; `InvalidRequest` of `ref_audio` says what is wrong with it."""
        return await asyncio.to_thread(engine.read_clip, data)

    async def reference(self, reference: Reference) -> engine.Clip:
        """The clip of a request: fetched where that is allowed, and decoded.

        Raises:
            InvalidRequest: of the reference's field.
            PayloadTooLarge: it is above the limit.
        """
        data = await self._sources.read(reference.source, reference.field)
        with renamed({"ref_audio": reference.field}):
            return await self.clip(data)

    async def save(
        self, draft: Draft, model: engine.ModelInfo, reserved: Iterable[str]
    ) -> SavedVoice:
        """Make a voice and keep it; when this returns it is on the disk. Cancelled, it is not kept,
        unless writing had begun: then it returns.

        Args:
            model: the model that takes it; it must be able to.
            reserved: names that mean something else.

        Raises:
            InvalidRequest: naming the engine's field; also `UnsupportedMode`, `VoiceExists`,
                `StoreFull` and `ConsentNotFound`.
            Overloaded: too many clips wait for the encoders.
        """
        refuse_unable(model, draft.clip is not None)
        await self.refresh()
        name = self.registry.checked_name(draft.name, reserved, draft.overwrite)
        check_consent(draft.consent, self.registry, self._require_consent)
        saved = SavedVoice(
            id="",
            name=name,
            created_at=int(time.time()),
            voice=await self._made(draft, model),
            consent=draft.consent,
            description=draft.description,
            mime_type=draft.mime_type,
            file_size=None if draft.clip is None else len(draft.clip),
        )
        kept, replaced = await self.write(lambda: self.registry.add(saved, draft.overwrite))
        if replaced is not None:
            await self._purge(replaced)
        return kept

    async def remove(self, name: str) -> SavedVoice:
        """Delete a voice, and what the engine made of it; `VoiceNotFound` when there is none."""
        await self.refresh()
        removed = await self.write(lambda: self.registry.remove(name))
        await self._purge(removed)
        return removed

    async def write(self, change: Callable[[], T]) -> T:
        """What `change` returns, which writes to the registry: off the event loop, and once begun
        not cancelled."""
        future = self._writers.submit(change)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancel():
                raise
        return await asyncio.wrap_future(future)

    async def _made(self, draft: Draft, model: engine.ModelInfo) -> engine.Voice:
        if draft.clip is not None:
            return await self._engine.extract_voice(
                await self.clip(draft.clip),
                transcript=draft.transcript,
                model=model.name,
                ref_tail_silence=draft.tail_silence_s,
            )
        voice = voice_of_vector(draft, model)
        with renamed({"voice": "rvq"}):
            self._engine.check(engine.SpeechRequest("", voice=voice, model=model.name))
        return voice

    async def _purge(self, saved: SavedVoice) -> None:
        # A closed engine holds nothing any more.
        with contextlib.suppress(EngineUnavailable):
            await self._engine.purge_voice(saved.voice)


def open_registry(settings: Settings) -> Registry:
    """The registry the settings name; empty until it is restored."""
    return Registry(
        settings.voices_dir or default_folder(),
        most=settings.max_voices,
        most_bytes=settings.max_voices_bytes,
    )


def open_sources(settings: Settings) -> Sources:
    """Where the settings allow reference sound to come from."""
    fetcher = None
    if settings.ref_url_hosts:
        fetcher = Fetcher(
            settings.ref_url_hosts, settings.max_clip_bytes, settings.ref_url_timeout_s
        )
    return Sources(settings.max_clip_bytes, fetcher, settings.ref_file_dir)


def voice_of_vector(draft: Draft, model: engine.ModelInfo) -> engine.Voice:
    """The voice of a draft without a clip, from `.spk` and `.rvq` files or a plain vector.

    Raises:
        InvalidRequest: of `spk`, `rvq`, `speaker_embedding` or `ref_text`.
    """
    if draft.spk is None:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
            vector = np.asarray(draft.embedding or (), np.float64).astype(np.float32)
        if vector.size != model.speaker_width:
            raise InvalidRequest(
                f"`speaker_embedding` holds {vector.size} values; the voices of {model.name!r} "
                f"have {model.speaker_width}",
                "speaker_embedding",
            )
        return engine.Voice(vector, model=model.name)
    embedding = engine.unpack_spk(draft.spk, model.speaker_width)
    if draft.rvq is None:
        return engine.Voice(embedding, model=model.name)
    codes = engine.unpack_rvq(draft.rvq, model.code_groups, model.codebook_size)
    if draft.transcript is None:
        warning = "the codes have no effect without a `ref_text`: only the vector was saved"
        return engine.Voice(embedding, model=model.name, warnings=(warning,))
    told = doubts(codes, draft.transcript, model.samples_per_frame / model.sample_rate)
    return engine.Voice(embedding, codes, draft.transcript, model=model.name, warnings=told)


def refuse_unable(model: engine.ModelInfo, from_clip: bool, field: str = "model") -> None:
    """`UnsupportedMode` for a model that cannot speak in a cloned voice or not take one."""
    if model.task != "base":
        raise UnsupportedMode(
            f"model {model.name!r} is a {model.task} model and cannot clone voices: that needs a "
            "Base model",
            field,
        )
    if from_clip and not model.clones:
        raise UnsupportedMode(
            f"model {model.name!r} cannot take a voice from sound: its file has no speaker "
            "encoder. Send `.spk` and `.rvq` files, or a `speaker_embedding`",
            field,
        )


def check_consent(consent: str | None, registry: Registry, required: bool) -> None:
    """`InvalidRequest` for no consent where it is required, `ConsentNotFound` for an id without a
    recording."""
    if consent is None:
        if required:
            raise InvalidRequest(
                "`consent` is required here: the id of a consent recording, or a text that says "
                "who agreed",
                "consent",
            )
    elif is_consent_id(consent):
        registry.consent(consent)


@contextlib.contextmanager
def renamed(fields: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the fields as the caller sent them."""
    try:
        yield
    except (InvalidRequest, PayloadTooLarge) as error:
        if (sent := fields.get(error.field or "")) is not None:
            error.args = (str(error).replace(f"`{error.field}`", f"`{sent}`"), *error.args[1:])
            error.field = sent
        raise


__all__ = [
    "Draft",
    "Voices",
    "check_consent",
    "open_registry",
    "open_sources",
    "refuse_unable",
    "renamed",
    "voice_of_vector",
]
