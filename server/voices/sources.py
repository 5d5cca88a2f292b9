"""Where reference sound comes from: the request itself, or, when allowed, a URL or a file."""

from __future__ import annotations

import asyncio
import binascii
from pathlib import Path

from engine import InvalidRequest, PayloadTooLarge
from server.voices.fetch import Fetcher, read_local

# Decoded piece by piece, so that other threads get a turn; a multiple of 4 characters.
_PIECE = 1 << 20
_URL_SAFE = str.maketrans("-_", "+/")


class Sources:
    """Reads what a field such as `ref_audio` names.

    Args:
        most_bytes: of one sound; known to be passed before anything is decoded or fetched whole.
        fetcher: for `http:` and `https:` URLs; None allows none.
        folder: what `file:` URLs may name lies in it; None allows none.
    """

    def __init__(
        self, most_bytes: int, fetcher: Fetcher | None = None, folder: Path | None = None
    ) -> None:
        self._most_bytes = most_bytes
        self._fetcher = fetcher
        self._folder = folder

    async def read(self, value: str, field: str) -> bytes:
        """The bytes of a `data:` URL, base64, or an allowed URL.

        Raises:
            InvalidRequest: of `field`: it is none of these, not allowed, or cannot be had.
            PayloadTooLarge: it is above the limit.
        """
        scheme = value.lstrip()[:6].lower()
        if scheme.startswith(("http:", "https:")):
            return await self._fetched(value.strip(), field)
        if scheme.startswith("file:"):
            return await self._local(value.strip(), field)
        return await asyncio.to_thread(decode_inline, value, self._most_bytes, field)

    async def _fetched(self, url: str, field: str) -> bytes:
        if self._fetcher is None:
            raise _not_allowed(field, "URLs", "ref_url_hosts")
        return await self._fetcher.fetch(url, field)

    async def _local(self, url: str, field: str) -> bytes:
        if self._folder is None:
            raise _not_allowed(field, "`file:` URLs", "ref_file_dir")
        return await asyncio.to_thread(read_local, url, self._folder, self._most_bytes, field)


def decode_inline(value: str, most_bytes: int, field: str) -> bytes:
    """The bytes of a base64 `data:` URL or of bare base64, in either alphabet; blanks are allowed.

    Raises:
        InvalidRequest: of `field`: it is neither.
        PayloadTooLarge: it would decode to more than `most_bytes`.
    """
    text = value.strip()
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().rstrip().endswith(";base64"):
            raise InvalidRequest(f"`{field}`: a `data:` URL must be base64", field)
    # Blanks inside make it seem longer than it is, by a line end in 64 characters.
    if len(text) > most_bytes * 3 // 2 + 1024:
        raise _too_large(field, most_bytes)
    text = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    if len(text) * 3 // 4 > most_bytes:
        raise _too_large(field, most_bytes)
    return _decoded(text + "=" * (-len(text) % 4), field)


def _decoded(text: str, field: str) -> bytes:
    try:
        pieces = [
            binascii.a2b_base64(text[start : start + _PIECE].encode("ascii"), strict_mode=True)
            for start in range(0, len(text), _PIECE)
        ]
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidRequest(
            f"`{field}` must be a `data:` URL or base64, got {text[:20]!r}...", field
        ) from None
    return b"".join(pieces)


def _not_allowed(field: str, what: str, setting: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{field}`: {what} are not allowed here (`{setting}`); send the sound as a `data:` URL or "
        "base64",
        field,
    )


def _too_large(field: str, most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"`{field}` holds more than {most_bytes} bytes (`max_clip_bytes`)", field
    )


__all__ = ["Sources", "decode_inline"]
