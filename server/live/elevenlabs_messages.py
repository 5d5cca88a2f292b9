"""What ElevenLabs' clients read of a context, as text of JSON. `place` names it where there are
several, and is None where there is only one."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from server.dialects import ELEVENLABS, renamed
from server.errors import error_object

Place = Mapping[str, str] | None
# No word times are known, and none are made up.
NO_TIMES = {"alignment": None, "normalizedAlignment": None}


def sound(data: bytes, place: Place) -> str:
    """A slice of sound."""
    where = {"isFinal": None} if place is None else place
    return json.dumps({"audio": base64.b64encode(data).decode(), **NO_TIMES, **where})


def finished(warnings: Sequence[str], place: Place) -> str:
    """The end."""
    more = {"warning": "; ".join(warnings)} if warnings else {}
    if place is None:
        return json.dumps({"audio": None, "isFinal": True, **NO_TIMES, **more})
    return json.dumps({"isFinal": True, **place, **more})


def told(error: Exception, place: Place) -> str:
    """Something that is wrong with it."""
    detail = renamed(error_object(error), ELEVENLABS)
    code, kind = detail.pop("code"), detail.pop("type")
    head = {"message": detail.pop("message"), "error": code or kind}
    return json.dumps(head | detail | dict(place or {}))


__all__ = ["finished", "sound", "told"]
