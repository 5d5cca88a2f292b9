"""Events of OpenAI's Realtime API as clients of its beta know them: other names, flat objects."""

from __future__ import annotations

from typing import Any

from server.schemas.realtime import BETA_FORMATS

_NAMES = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "conversation.item.added": "conversation.item.created",
}
# There was one event for an item where there are two now.
_GONE = ("conversation.item.done",)
_FORMATS = {kind: name for name, kind in BETA_FORMATS.items()}


def as_beta(event: dict[str, Any]) -> dict[str, Any] | None:
    """The event as the beta had it; None when it had none such."""
    if event["type"] in _GONE:
        return None
    told = event | {"type": _NAMES.get(event["type"], event["type"])}
    if "session" in told:
        told["session"] = _session(told["session"])
    if "response" in told:
        told["response"] = _response(told["response"])
    if "item" in told:
        told["item"] = _item(told["item"])
    return told


def _session(session: dict[str, Any]) -> dict[str, Any]:
    nested = ("type", "audio", "output_modalities", "max_output_tokens")
    flat = {name: value for name, value in session.items() if name not in nested}
    came, output = session["audio"]["input"], session["audio"]["output"]
    return flat | {
        "modalities": ["audio", "text"],
        "voice": output["voice"],
        "speed": output["speed"],
        "output_audio_format": _FORMATS[output["format"]["type"]],
        "input_audio_format": _FORMATS.get(str((came.get("format") or {}).get("type")), "pcm16"),
        "input_audio_transcription": came.get("transcription"),
        "turn_detection": came.get("turn_detection"),
        "max_response_output_tokens": session["max_output_tokens"],
    }


def _response(response: dict[str, Any]) -> dict[str, Any]:
    flat = {k: v for k, v in response.items() if k not in ("audio", "output_modalities")}
    output = response["audio"]["output"]
    return flat | {
        "modalities": ["audio", "text"],
        "voice": output["voice"],
        "output_audio_format": _FORMATS[output["format"]["type"]],
        "output": [_item(item) for item in response["output"]],
    }


def _item(item: dict[str, Any]) -> dict[str, Any]:
    parts = [
        part | {"type": "audio"} if part.get("type") == "output_audio" else part
        for part in item["content"]
    ]
    return item | {"content": parts}


__all__ = ["as_beta"]
