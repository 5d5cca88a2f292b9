"""A reply as server-sent events: OpenAI's `speech.audio.delta`, `.done` and `.error`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from engine import Finished, Stats
from server.errors import error_object

MEDIA_TYPE = "text/event-stream"
# Base64 makes four bytes of three: one event of a whole reply is as long as another write.
SLICE_BYTES = 48 * 1024


def delta(data: bytes) -> bytes:
    """Some of the container's bytes, one event per 48 KiB; none for no bytes."""
    return b"".join(
        _event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
        for piece in _slices(data)
    )


def done(finished: Finished, text: str | None = None) -> bytes:
    """The clean end, with the finish reason in addition to what OpenAI sends, and the text that
    was spoken where it was asked for."""
    end: dict[str, Any] = {
        "type": "speech.audio.done",
        "usage": usage(finished.stats),
        "finish_reason": str(finished.reason),
    }
    return _event(end if text is None else end | {"text": text})


def failure(error: Exception) -> bytes:
    """The end of a reply that failed after its status line."""
    return _event({"type": "speech.audio.error", "error": error_object(error)})


def usage(stats: Stats) -> dict[str, int]:
    """OpenAI's token counts: positions of the prompt in, frames of 80 ms out."""
    made, given = stats.frames, stats.prompt_positions
    return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def _slices(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), SLICE_BYTES):
        yield data[start : start + SLICE_BYTES]


__all__ = ["MEDIA_TYPE", "delta", "done", "failure", "usage"]
