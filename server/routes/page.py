"""The page at `/`, for people: plain files of the package. Programs keep their JSON there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere and nothing inline; `blob:` is a clip recorded on the page itself.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "media-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_NO_QUALITY = re.compile(r"q\s*=\s*0(\.0*)?")
HEADERS = {
    # The names do not change with what is in the files, so a browser asks each time.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent. `path` is where, and what the metrics call it."""

    path: str
    body: bytes
    media_type: str
    etag: str

    def reply(self, headers: Headers) -> Response:
        """The file; 304 without it for a browser that has it already."""
        sent = {**HEADERS, "Content-Type": self.media_type, "ETag": self.etag}
        if self.path == "/":
            sent["Vary"] = "Accept"
        if self.etag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=sent)
        return Response(self.body, headers=sent)


class Page:
    """Pure ASGI middleware that answers GET and HEAD for the page's files, without a key: there is
    nothing secret in them, and the key is typed there. All else is passed on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._files = page_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        file = self._files.get(scope["path"])
        if file is None or (file.path == "/" and not _reads_html(headers.get("accept", ""))):
            await self.app(scope, receive, _varying(send) if file else send)
            return
        scope["route"] = file
        # The body of a HEAD is left out by the server.
        await file.reply(headers)(scope, receive, send)


def page_files() -> dict[str, PageFile]:
    """Every file of the page by its path: `/` and `/page/NAME`."""
    files = [_read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in MEDIA_TYPES]
    return {file.path: file for file in files}


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    where = "/" if path.name == INDEX else f"/page/{path.name}"
    return PageFile(where, body, MEDIA_TYPES[path.suffix], etag)


def _reads_html(accept: str) -> bool:
    """Whether `text/html` is named among what a client accepts, and not with a quality of 0."""
    for each in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type == "text/html":
            return not any(_NO_QUALITY.fullmatch(parameter) for parameter in parameters)
    return False


def _varying(send: Send) -> Send:
    async def send_varying(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).add_vary_header("Accept")
        await send(message)

    return send_varying


__all__ = ["FOLDER", "HEADERS", "INDEX", "MEDIA_TYPES", "Page", "PageFile", "page_files"]
