"""Responses of OpenAI's Realtime API: what is told of them, from the first event to the last."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from engine import FinishReason
from server.errors import error_object
from server.events import usage
from server.live.contexts import Context
from server.live.events import Ended

Fields = dict[str, Any]


@dataclass(slots=True)
class Response:
    """One response; `facts` are what its object says besides its state."""

    id: str
    item_id: str
    text: str
    context: Context
    facts: Fields
    begun: bool = False
    ended: Ended | None = None

    def started(self) -> list[Fields]:
        """What comes before the first sound."""
        self.begun = True
        return [
            self._event("output_item.added", item=self._item("in_progress", [])),
            self.part("content_part.added", part={"type": "audio", "transcript": ""}),
            self.part("output_audio_transcript.delta", delta=self.text),
        ]

    def over(self, status: str, details: Fields) -> list[Fields]:
        """What comes after the last sound."""
        part = {"type": "audio", "transcript": self.text}
        item = self._item("completed" if status == "completed" else "incomplete")
        ends = [
            self.part("output_audio.done"),
            self.part("output_audio_transcript.done", transcript=self.text),
            self.part("content_part.done", part=part),
            self._event("output_item.done", item=item),
        ]
        told = self.told(status, details, [item] if self.begun else [])
        return [*(ends if self.begun else []), {"type": "response.done", "response": told}]

    def part(self, kind: str, **fields: Any) -> Fields:
        """An event of the one part of its one message."""
        return self._event(kind, item_id=self.item_id, content_index=0, **fields)

    def told(self, status: str, details: Fields | None = None, output: Any = ()) -> Fields:
        """Its object."""
        told: Fields = {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": list(output),
            "usage": None,
        }
        if self.ended is not None and self.ended.finished is not None:
            told["usage"] = usage(self.ended.finished.stats)
            told["finish_reason"] = str(self.ended.finished.reason)
        if self.ended is not None and self.ended.warnings:
            told["warnings"] = list(self.ended.warnings)
        return told | self.facts

    def _event(self, kind: str, **fields: Any) -> Fields:
        place = {"response_id": self.id, "output_index": 0}
        return {"type": f"response.{kind}"} | place | fields

    def _item(self, status: str, content: list[Fields] | None = None) -> Fields:
        spoken: list[Fields] = [{"type": "output_audio", "transcript": self.text}]
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": spoken if content is None else content,
        }


def how_it_ended(ended: Ended) -> tuple[str, Fields]:
    """The status and its details that an end stands for."""
    if ended.error is not None:
        error = error_object(ended.error)
        told = {name: error[name] for name in ("type", "code", "message")}
        return "failed", {"type": "failed", "error": told}
    if ended.finished is not None and ended.finished.reason == FinishReason.LENGTH:
        return "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}
    return "completed", {"type": "completed"}


def new_id(kind: str) -> str:
    """An id nobody else has, such as `resp_...`."""
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def as_text(event: Fields) -> str:
    """An event as it is sent, with an id of its own."""
    return json.dumps({"type": event["type"], "event_id": new_id("event")} | event)


__all__ = ["Response", "as_text", "how_it_ended", "new_id"]
