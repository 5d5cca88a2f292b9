"""A listener: asks an engine or a running server for a text and notes when each chunk comes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx2

import engine

STAGES = ("talker", "predictor", "codec")
# When each chunk came and how long it sounds, in seconds.
Arrivals = list[tuple[float, float]]
_PATIENCE_S = 600.0
_RATE = 24_000


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply: its chunks, and the seconds per frame of each stage where they are known."""

    arrivals: Arrivals
    stage_s: dict[str, float]


class Ears(Protocol):
    """Whoever can be listened to."""

    def hear(self, text: str, seed: int, frames: int | None) -> Heard:
        """Listen to one reply of exactly `frames` frames; of None, to the end of the text."""


class EngineEars:
    """Listens to an engine of this process; `voice` None is the model's default."""

    def __init__(self, speech: engine.Engine, voice: engine.Voice | None = None) -> None:
        self._speech = speech
        self._voice = voice

    def hear(self, text: str, seed: int, frames: int | None) -> Heard:
        sampling = engine.Sampling(seed=seed)
        if frames is not None:
            sampling = engine.Sampling(seed=seed, min_new_tokens=frames, max_new_tokens=frames)
        start = time.perf_counter()
        stream = self._speech.submit(engine.SpeechRequest(text, self._voice, sampling=sampling))
        arrivals: Arrivals = []
        for item in stream:
            if isinstance(item, engine.Finished):
                made = item.stats
                spent = {name: getattr(made, f"{name}_s") / made.frames for name in STAGES}
                return Heard(arrivals, spent)
            arrivals.append((time.perf_counter() - start, len(item.pcm) / stream.sample_rate))
        raise AssertionError("a stream ends with `Finished` or raises")


class ServerEars:
    """Listens to a running server, in samples as they are made.

    Args:
        url: where it is, without `/v1`.
        key: an API key of it, where it wants one.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url.rstrip("/")
        headers = {"connection": "close"} | ({} if key is None else {"x-api-key": key})
        # One for all requests: to make one takes as long as a first sound may.
        limits = httpx2.Limits(max_connections=None)
        self._client = httpx2.Client(headers=headers, timeout=_PATIENCE_S, limits=limits)

    def hear(self, text: str, seed: int, frames: int | None) -> Heard:
        body: dict[str, object] = {"input": text, "response_format": "pcm", "seed": seed}
        if frames is not None:
            body |= {"min_new_tokens": frames, "max_new_tokens": frames}
        start = time.perf_counter()
        try:
            chunks = list(self._chunks(body))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise engine.InvalidRequest(f"`--url` {self._url!r}: {error}", "url") from None
        if not chunks:
            raise engine.GenerationFailed("the server answered 200 without a sound")
        return Heard([(at - start, size / 2 / _RATE) for at, size in chunks], {})

    def _chunks(self, body: dict[str, object]) -> Iterator[tuple[float, int]]:
        url = f"{self._url}/v1/audio/speech"
        with self._client.stream("POST", url, json=body) as reply:
            if reply.status_code != 200:
                told = reply.read()[:300].decode("utf-8", "replace")
                if reply.status_code == 429:
                    raise engine.Overloaded(f"the server is full: {told}", 0.0, 0)
                raise engine.GenerationFailed(f"the server answered {reply.status_code}: {told}")
            for chunk in reply.iter_raw():
                yield time.perf_counter(), len(chunk)


def underrun(arrivals: Sequence[tuple[float, float]]) -> float:
    """Seconds of silence a listener hears who plays from the first chunk on.

    Args:
        arrivals: when each chunk came and how long it sounds, in seconds.
    """
    silent, dry = 0.0, arrivals[0][0]
    for at, seconds in arrivals:
        silent += max(0.0, at - dry)
        dry = max(at, dry) + seconds
    return silent


__all__ = ["STAGES", "Ears", "EngineEars", "Heard", "ServerEars", "underrun"]
