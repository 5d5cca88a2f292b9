"""Reference sound from elsewhere: an allowed host on the web, an allowed folder on this machine.

A host is asked only after every address it has was found to be public, and the connection goes to
one of those addresses, so that a name cannot mean another machine a moment later. Redirects are
followed by hand: each is a new target with the same checks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2

from engine import InvalidRequest, PayloadTooLarge

MOST_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a host; `OSError` when it has none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(address: Address) -> bool:
    """Whether an address, and whatever address is wrapped in it, is one of the open internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        wrapped = [address.sixtofour, *(address.teredo or ())]
        if address.is_site_local or not all(is_public(each) for each in wrapped if each):
            return False
    # `is_global` counts some multicast groups in.
    return address.is_global and not address.is_multicast and not address.is_reserved


@dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes: the URL asked for, and the address that was checked."""

    url: httpx2.URL
    address: str

    @property
    def host_header(self) -> str:
        return self.url.netloc.decode("ascii")


class Fetcher:
    """Downloads small files from allowed hosts.

    Args:
        hosts: `example.com`, `example.com:8443`, `*.example.com`, or `*` for any; a port other
            than the scheme's own must be named. Empty allows none.
        most_bytes: of one file.
        timeout_s: for one file, redirects included.
        resolve: a host's addresses; `public` judges one; `transport` sends. For tests.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        most_bytes: int,
        timeout_s: float,
        *,
        resolve: Resolve = resolve,
        public: Callable[[Address], bool] = is_public,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._hosts = tuple(host.strip().lower().rstrip(".") for host in hosts)
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._public = public
        self._transport = transport

    async def fetch(self, url: str, field: str) -> bytes:
        """The body at `url`.

        Raises:
            InvalidRequest: of `field`: the URL, its host or an address is not allowed; it does not
                answer in time, or with an error.
            PayloadTooLarge: the body is above the limit.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch(url, field)
        except TimeoutError:
            raise InvalidRequest(
                f"`{field}`: the URL did not answer within {self._timeout_s:g} s", field
            ) from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise InvalidRequest(
                f"`{field}`: the URL cannot be fetched ({type(error).__name__})", field
            ) from None

    async def _fetch(self, url: str, field: str) -> bytes:
        # `trust_env` would send requests through proxies, which connect where they like.
        async with httpx2.AsyncClient(
            trust_env=False, follow_redirects=False, timeout=None, transport=self._transport
        ) as client:
            for _ in range(MOST_REDIRECTS + 1):
                target = await self._checked(url, field)
                async with client.stream(
                    "GET",
                    target.url.copy_with(host=target.address),
                    headers={"Host": target.host_header, "Accept-Encoding": "identity"},
                    extensions={"sni_hostname": target.url.host},
                ) as reply:
                    if not reply.has_redirect_location:
                        return await self._body(reply, field)
                    url = _joined(target.url, reply.headers["location"], field)
        raise InvalidRequest(f"`{field}`: more than {MOST_REDIRECTS} redirects", field)

    async def _checked(self, text: str, field: str) -> Target:
        url = _parsed(text, field)
        if not self._allows(url):
            raise InvalidRequest(
                f"`{field}`: URLs of {url.host!r} are not allowed here (`ref_url_hosts`); send the "
                "sound as a `data:` URL or base64",
                field,
            )
        port = url.port or _PORTS[url.scheme]
        addresses = await self._resolve(url.host, port)
        if not addresses or not all(self._public(_address(each)) for each in addresses):
            raise InvalidRequest(
                f"`{field}`: {url.host!r} is not on the public internet, and no request was sent",
                field,
            )
        return Target(url, addresses[0])

    def _allows(self, url: httpx2.URL) -> bool:
        host = url.host.lower().rstrip(".")
        usual = url.port in (None, _PORTS[url.scheme])
        named = f"{host}:{url.port or _PORTS[url.scheme]}"
        return any(
            named == each or (usual and (each in ("*", host) or _is_below(host, each)))
            for each in self._hosts
        )

    async def _body(self, reply: httpx2.Response, field: str) -> bytes:
        if reply.status_code != 200:
            raise InvalidRequest(f"`{field}`: the URL answered {reply.status_code}", field)
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise InvalidRequest(f"`{field}`: the URL answered with a compressed body", field)
        declared = reply.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20 and int(declared) > self._most_bytes:
            raise self._too_large(field)
        body = bytearray()
        async for chunk in reply.aiter_raw():
            body += chunk
            if len(body) > self._most_bytes:
                raise self._too_large(field)
        return bytes(body)

    def _too_large(self, field: str) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"`{field}`: the URL holds more than {self._most_bytes} bytes", field
        )


def _parsed(text: str, field: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        raise InvalidRequest(f"`{field}` is not a valid URL", field) from None
    if url.scheme not in _PORTS or not url.host or url.userinfo:
        raise InvalidRequest(
            f"`{field}`: a URL must be http:// or https:// with a host and no credentials", field
        )
    return url


def _joined(url: httpx2.URL, location: str, field: str) -> str:
    try:
        return str(url.join(location))
    except (httpx2.InvalidURL, ValueError):
        raise InvalidRequest(
            f"`{field}`: the URL redirects to {location[:40]!a}, which is not a valid one", field
        ) from None


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _is_below(host: str, pattern: str) -> bool:
    return pattern.startswith("*.") and host.endswith(pattern[1:])


def read_local(url: str, folder: Path, most_bytes: int, field: str) -> bytes:
    """The file at a `file:` URL, which must lie in `folder` once links are resolved; blocks.

    Raises:
        InvalidRequest: of `field`: it lies elsewhere, or is no file that can be read.
        PayloadTooLarge: it is above the limit.
    """
    refused = InvalidRequest(f"`{field}`: there is no such file in the allowed folder", field)
    try:
        parts = urlsplit(url)
    except ValueError:  # half an address in brackets
        raise refused from None
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or "\0" in path:
        raise refused
    try:
        real = Path(path).resolve(strict=True)
        inside = real.is_relative_to(folder.resolve(strict=True))
        data = _read_regular(real, most_bytes) if inside else None
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        raise refused from None
    if data is None:
        raise refused
    if len(data) > most_bytes:
        raise PayloadTooLarge(f"`{field}`: the file holds more than {most_bytes} bytes", field)
    return data


def _read_regular(path: Path, most_bytes: int) -> bytes | None:
    # Opening a pipe would wait for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return file.read(most_bytes + 1)


__all__ = ["MOST_REDIRECTS", "Fetcher", "is_public", "read_local", "resolve"]
