"""The text as it is spoken, told in the headers of a reply."""

from __future__ import annotations

from urllib.parse import quote

# Proxies allow a few thousand bytes for all headers together.
MOST_BYTES = 3000


def text_headers(text: str) -> dict[str, str]:
    """`x-framecast-text`, percent-encoded UTF-8, and the text's length in characters: greater
    than what the header holds when it had to be cut."""
    encoded, used = [], 0
    for character in text:
        piece = quote(character, safe=" ,;:!?'()[]")
        used += len(piece)
        if used > MOST_BYTES:
            break
        encoded.append(piece)
    return {"x-framecast-text": "".join(encoded), "x-framecast-text-length": str(len(text))}


__all__ = ["MOST_BYTES", "text_headers"]
