"""What one API key may use: requests per minute, requests at the same time, seconds of sound."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from server.errors import RateLimited
from server.keys import ApiKey

_ROUNDING = 1e-9


class Spoken(Protocol):
    """Anything that says how many seconds of sound it has made so far."""

    @property
    def audio_s(self) -> float: ...


class Bucket:
    """`size` units that come back evenly over `period_s` seconds. It may go into debt."""

    def __init__(self, size: float, period_s: float, now: float) -> None:
        self.size = size
        self._per_s = size / period_s
        self._level = size
        self._at = now

    def level(self, now: float) -> float:
        """Units there are; below 0 is debt."""
        return min(self.size, self._level + (now - self._at) * self._per_s)

    def take(self, amount: float, now: float) -> None:
        """Remove `amount` units, whether they are there or not."""
        self._level = self.level(now) - amount
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` units are there."""
        missing = amount - self.level(now)
        return missing / self._per_s if missing > _ROUNDING else 0.0


@dataclass(slots=True, eq=False)
class _Visit:
    record: Spoken
    since: float


class Account:
    """One key's use of the server; its size does not grow with use.

    A request that is refused takes nothing. Sound is charged as it is made, so a request under
    way may run into debt, which delays the next one.
    """

    def __init__(self, key: ApiKey, clock: Callable[[], float]) -> None:
        now = clock()
        self._key = key
        self._clock = clock
        self._requests = _bucket(key.requests_per_minute, 60, now)
        self._audio = _bucket(key.audio_seconds_per_hour, 3600, now)
        self._visits: list[_Visit] = []
        self._usual_s = 0.0  # how long a request takes, smoothed

    @property
    def active(self) -> int:
        """Requests under way."""
        return len(self._visits)

    @contextlib.contextmanager
    def visit(self, record: Spoken) -> Iterator[dict[str, str]]:
        """Hold a place for one request, and charge its sound at its end, whatever that is.

        Yields:
            The `x-ratelimit-*` headers of its reply.

        Raises:
            RateLimited: a limit is reached.
        """
        now = self._clock()
        self._refuse_over_limit(now)
        if self._requests is not None:
            self._requests.take(1, now)
        visit = _Visit(record, now)
        self._visits.append(visit)
        try:
            yield self._headers(now)
        finally:
            self._leave(visit, self._clock())

    def _leave(self, visit: _Visit, now: float) -> None:
        self._visits.remove(visit)
        took = now - visit.since
        self._usual_s = self._usual_s + 0.2 * (took - self._usual_s) if self._usual_s else took
        if self._audio is not None:
            self._audio.take(visit.record.audio_s, now)

    def _refuse_over_limit(self, now: float) -> None:
        key = self._key
        if key.concurrency and self.active >= key.concurrency:
            oldest = now - min(visit.since for visit in self._visits)
            raise self._refusal(
                f"{key.concurrency} requests at the same time", self._usual_s - oldest, now
            )
        if self._requests is not None and (wait := self._requests.wait_s(1, now)):
            raise self._refusal(f"{key.requests_per_minute} requests per minute", wait, now)
        if self._audio is not None:
            unpaid = sum(visit.record.audio_s for visit in self._visits)
            if self._audio.level(now) - unpaid <= _ROUNDING:
                limit = f"{key.audio_seconds_per_hour:g} seconds of sound per hour"
                raise self._refusal(limit, self._audio.wait_s(unpaid, now), now)

    def _refusal(self, limit: str, wait_s: float, now: float) -> RateLimited:
        seconds = max(1, math.ceil(wait_s - _ROUNDING))
        return RateLimited(
            f"API key `{self._key.name}` is at its limit of {limit}; try again in {seconds} s",
            seconds,
            self._headers(now),
        )

    def _headers(self, now: float) -> dict[str, str]:
        bucket = self._requests
        if bucket is None:
            return {}
        return {
            "x-ratelimit-limit-requests": f"{bucket.size:.0f}",
            "x-ratelimit-remaining-requests": f"{math.floor(bucket.level(now) + _ROUNDING)}",
            "x-ratelimit-reset-requests": duration(bucket.wait_s(bucket.size, now)),
        }


def duration(seconds: float) -> str:
    """A time as OpenAI's headers write it: `0s`, `120ms`, `8.64s`, `1m26.4s`."""
    milliseconds = math.ceil(seconds * 1000 - _ROUNDING)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return (f"{minutes}m" if minutes else "") + f"{rest / 1000:g}s"


def _bucket(size: float | None, period_s: float, now: float) -> Bucket | None:
    return Bucket(size, period_s, now) if size else None


__all__ = ["Account", "Bucket", "Spoken", "duration"]
