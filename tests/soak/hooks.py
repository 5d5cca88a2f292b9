"""Hooks of schemathesis: half of the bodies it draws become ones that can be spoken.

The schema gives no ranges and no lists, so nearly all others are refused before the engine.
"""

from __future__ import annotations

import json
import random
from typing import Any

import schemathesis

from tests.e2e.mixed import FORMATS, TEXTS

KEPT = ("input", "instructions", "seed", "non_streaming_mode")


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    draw = random.Random(json.dumps(body, sort_keys=True, default=str))
    return speakable(body, draw) if draw.random() < 0.5 else body


def speakable(body: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    kept = {name: body[name] for name in KEPT if name in body}
    text = kept.get("input")
    if not isinstance(text, str) or not any(letter.isalnum() for letter in text):
        kept["input"] = draw.choice(TEXTS)
    some = {
        "response_format": draw.choice(FORMATS),
        "voice": draw.choice(["alloy", "coral", "nobody", None]),
        "temperature": draw.choice([0, 1e-6, 0.9, 2]),
        "top_k": draw.choice([0, 1, 50, 100_000]),
        "top_p": draw.choice([1e-9, 0.5, 1]),
        "repetition_penalty": draw.choice([0.01, 1, 10]),
        "subtalker_temperature": draw.choice([0, 1.5]),
        "min_new_tokens": draw.choice([0, 3, 40]),
        "no_repeat_ngram_size": draw.choice([0, 1, 3]),
        # Over before the first byte, or not at all: in between a reply that has begun is cut.
        "timeout": draw.choice([0.01, 300]),
        "language": draw.choice(["auto", "EN-us", "german"]),
        "speed": draw.choice([0.25, 1, 1.3, 4]),
        "sample_rate": draw.choice([8_000, 11_025, 48_000]),
        "stream_format": draw.choice(["audio", "sse"]),
        "stream": draw.choice([True, False]),
    }
    chosen = {name: value for name, value in some.items() if draw.random() < 0.5}
    return {**kept, **chosen, "max_new_tokens": draw.randint(1, 24)}
