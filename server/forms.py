"""Reading multipart forms, from bodies that were read within a limit already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from engine import InvalidRequest, PayloadTooLarge

MOST_FILES = 4
MOST_FIELDS = 32
_PIECE = 1 << 16


@contextlib.asynccontextmanager
async def open_form(request: Request, raw: bytes) -> AsyncIterator[FormData]:
    """The form of a request whose body is `raw`; `InvalidRequest` when it is none, incomplete, or
    says a field twice."""

    _refuse_incomplete(request.headers.get("content-type", ""), raw)
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
        _refuse_twice(form)
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
        raise PayloadTooLarge(f"`{name}` has {file.size} bytes; the limit is {most_bytes}", name)
    return await file.read(), file.content_type


def form_texts(form: FormData) -> dict[str, str]:
    """The fields of a form that are no files; `InvalidRequest` for one that is no text."""
    texts = {name: value for name, value in form.items() if isinstance(value, str)}
    for name, value in texts.items():
        if not _is_text(value):
            raise InvalidRequest(f"`{name}` must be text in UTF-8", name)
    return texts


def _is_text(value: str) -> bool:
    """Whether a string can be written: odd charsets decode to halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_incomplete(content_type: str, raw: bytes) -> None:
    # The parser takes what there is, and so leaves out the field it was in the middle of.
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or b"boundary" not in options:
        return
    end = b"--" + options[b"boundary"] + b"--"
    if not raw.startswith(end) and b"\r\n" + end not in raw:
        raise InvalidRequest("the form is incomplete: it ends before its closing boundary")


def _refuse_twice(form: FormData) -> None:
    seen: set[str] = set()
    for name, _ in form.multi_items():
        if not _is_text(name):
            raise InvalidRequest("a form's field names must be text in UTF-8")
        if name in seen:
            raise InvalidRequest(f"`{name}` is sent twice; send it once", name)
        seen.add(name)


__all__ = ["form_file", "form_texts", "open_form"]
