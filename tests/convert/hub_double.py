"""A double of the Hugging Face hub on a local port, as far as a download needs it.

It serves what huggingface_hub asks for: a model's information with sizes and SHA-256 of large
files, and each file at a commit with its etag, in ranges. It can refuse, lie and break off.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf")  # kept as LFS files on the hub


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path there."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@dataclass
class Repo:
    """A model repository at its one commit.

    `token` guards it: anyone else is refused as `refusal` says, (status, X-Error-Code).
    `swapped` files come with the right length and other bytes; `broken` counts how often a
    file's transfer still breaks off, and `break_at` after which part of what was asked for.
    """

    files: dict[str, bytes]
    token: str | None = None
    refusal: tuple[int, str] = (401, "GatedRepo")
    open_listing: bool = False
    swapped: set[str] = field(default_factory=set)
    broken: dict[str, int] = field(default_factory=dict)
    break_at: float = 0.5

    @property
    def commit(self) -> str:
        digest = hashlib.sha1()
        for path, content in sorted(self.files.items()):
            digest.update(path.encode() + content)
        return digest.hexdigest()


class HubDouble:
    """The server; `requests` are the (method, path, range) it got."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.status: int | None = None  # for every request, as when the hub is down
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """From now on connections are refused."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def downloads(self) -> list[str]:
        """The file paths whose content was asked for, in order."""
        return [
            path.split("/", 5)[-1]
            for method, path, _ in self.requests
            if method == "GET" and "/resolve/" in path
        ]


@contextmanager
def running_hub() -> Iterator[HubDouble]:
    hub = HubDouble()
    try:
        yield hub
    finally:
        hub.stop()


def _handler(hub: HubDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        double = hub

    return Handler


class _Handler(BaseHTTPRequestHandler):
    double: HubDouble

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.double.requests.append((self.command, path, self.headers.get("Range")))
        parts = path.strip("/").split("/")
        if self.double.status is not None:
            self._send(self.double.status)
        elif parts[:2] == ["api", "models"]:
            self._information("/".join(parts[2:4]), parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._send(404)

    def _repo(self, name: str, revision: str, *, listing: bool) -> Repo | None:
        repo = self.double.repos.get(name)
        if repo is None:
            self._send(404, {"X-Error-Code": "RepoNotFound"})
            return None
        allowed = repo.token is None or self.headers.get("Authorization") == f"Bearer {repo.token}"
        if not allowed and not (listing and repo.open_listing):
            status, code = repo.refusal
            self._send(status, {"X-Error-Code": code} if code else {})
            return None
        if revision not in ("main", repo.commit):
            self._send(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return repo

    def _information(self, name: str, rest: list[str]) -> None:
        repo = self._repo(name, rest[1] if rest[:1] == ["revision"] else "main", listing=True)
        if repo is None:
            return
        siblings = [_sibling(path, content) for path, content in repo.files.items()]
        content = {"id": name, "sha": repo.commit, "siblings": siblings}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _file(self, name: str, revision: str, path: str) -> None:
        repo = self._repo(name, revision, listing=False)
        if repo is None:
            return
        if path not in repo.files:
            self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.commit})
            return
        content = repo.files[path]
        etag = hashlib.sha256(content).hexdigest()
        sent = bytes(byte ^ 0xFF for byte in content) if path in repo.swapped else content
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(sent) - 1}/{len(sent)}"
        breaks = self.command == "GET" and repo.broken.get(path, 0) > 0
        if breaks:
            repo.broken[path] -= 1
        self._send(206 if start else 200, headers, sent[start:], repo.break_at if breaks else None)

    def _send(
        self,
        status: int,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        break_at: float | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if break_at is not None:
            body = body[: int(len(body) * break_at)]
        self.wfile.write(body)


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "rfilename": path,
        "size": len(content),
        "blobId": hashlib.sha1(content).hexdigest(),
    }
    if path.endswith(LARGE):
        digest = hashlib.sha256(content).hexdigest()
        stated["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
    return stated
