"""Logs go to stderr, as text or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
import time

from server.dependencies import RequestRecord
from server.errors import BodyAborted, shortened

LONGEST_FIELD = 500  # characters


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message key=value ...`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        pairs = [f"{name}={_shown(value)}" for name, value in _fields(record).items()]
        return " ".join([super().formatMessage(record), *pairs])


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up_logging(level: str, as_json: bool) -> None:
    """Send every logger of the process to stderr, from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def request_fields(record: RequestRecord) -> dict[str, object]:
    """What the one line about a request says besides its path; what is not known is left out."""
    stats, playout = record.stats, record.playout
    fields: dict[str, object] = {
        "id": record.id,
        "status": record.status,
        "duration_ms": _rounded(time.monotonic() - record.started, 1000, 1),
        "key": record.key,
        "model": record.model,
        "voice": record.voice,
        "seed": record.seed,
        "queue_ms": _rounded(stats.queue_s if stats else None, 1000, 1),
        "first_audio_ms": _rounded(record.first_audio_s, 1000, 1),
        "frames": record.frames,
        "real_time_factor": _rounded(record.real_time_factor, 1, 3),
        "underruns": playout.underruns if playout else None,
        "redraws": stats.redraws if stats else None,
        "reason": record.reason,
        "detail": record.detail,
    }
    return {name: _cut(value) for name, value in fields.items() if value is not None}


def _cut(value: object) -> object:
    return shortened(value, LONGEST_FIELD) if isinstance(value, str) else value


def _is_news(record: logging.LogRecord) -> bool:
    # A body that was cut on purpose has its own line; the traceback would only repeat it.
    return record.exc_info is None or not isinstance(record.exc_info[1], BodyAborted)


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)


def _rounded(value: float | None, scale: float, digits: int) -> float | None:
    return None if value is None else round(value * scale, digits)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


__all__ = ["JsonFormatter", "TextFormatter", "request_fields", "set_up_logging"]
