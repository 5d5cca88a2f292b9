"""Reading multipart forms, from bodies that were read within a limit already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from engine import InvalidRequest, PayloadTooLarge

MOST_FILES = 4
MOST_FIELDS = 32
_PIECE = 1 << 16


@contextlib.asynccontextmanager
async def open_form(request: Request, raw: bytes) -> AsyncIterator[FormData]:
    """The form of a request whose body is `raw`; `InvalidRequest` when it is none."""

    starts = iter(range(0, max(1, len(raw)), _PIECE))

    async def replay() -> dict[str, Any]:
        await asyncio.sleep(0)  # others get a turn while a long form is taken apart
        start = next(starts)
        more = start + _PIECE < len(raw)
        return {"type": "http.request", "body": raw[start : start + _PIECE], "more_body": more}

    parsed = Request(request.scope, replay)
    try:
        form = await parsed.form(max_files=MOST_FILES, max_fields=MOST_FIELDS)
    except HTTPException as error:
        raise InvalidRequest(f"the form cannot be read: {error.detail}") from None
    try:
        yield form
    finally:
        await form.close()


async def form_file(form: FormData, name: str, most_bytes: int) -> tuple[bytes, str | None]:
    """A file of a form and its media type.

    Raises:
        InvalidRequest: there is no file of that name.
        PayloadTooLarge: it is longer than `most_bytes`.
    """
    file = form.get(name)
    if not isinstance(file, UploadFile):
        raise InvalidRequest(f"`{name}` must be sent as a file of a multipart form", name)
    if file.size is not None and file.size > most_bytes:
        raise PayloadTooLarge(f"`{name}` has {file.size} bytes; the limit is {most_bytes}")
    return await file.read(), file.content_type


def form_texts(form: FormData) -> dict[str, str]:
    """The fields of a form that are no files."""
    return {name: value for name, value in form.items() if isinstance(value, str)}


__all__ = ["form_file", "form_texts", "open_form"]
