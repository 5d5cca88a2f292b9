"""Reference sound by URL: what is refused is refused before anything is sent."""

import contextlib
import ipaddress
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import httpx2
import pytest

import engine
from server.voices.fetch import MOST_REDIRECTS, Fetcher, is_public, read_local, resolve

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Web:
    """Hosts with addresses and pages; `asked` are the requests that were sent."""

    def __init__(self, addresses=None, pages=None):
        self.addresses = addresses or {}
        self.pages = pages or {}
        self.asked = []

    async def resolve(self, host, port):
        return self.addresses.get(host, [PUBLIC])

    def answer(self, request):
        self.asked.append(request)
        url = f"{request.url.scheme}://{request.headers['host']}{request.url.raw_path.decode()}"
        return self.pages.get(url, sound())

    def fetcher(self, *hosts, most_bytes=1000, timeout_s=5.0):
        transport = httpx2.MockTransport(self.answer)
        return Fetcher(hosts, most_bytes, timeout_s, resolve=self.resolve, transport=transport)


def sound(data=b"sound", **headers):
    return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(data))


def moved(to):
    return httpx2.Response(302, headers={"location": to})


async def refusal(fetching, kind=engine.InvalidRequest):
    with pytest.raises(kind) as caught:
        await fetching
    return str(caught.value)


async def test_an_allowed_host_is_asked_at_the_address_that_was_checked():
    web = Web({"sounds.example.com": ["2606:2800:220:1::1", PUBLIC]})
    fetched = await web.fetcher("sounds.example.com").fetch("https://sounds.example.com/a?b=c", "f")
    assert fetched == b"sound"
    (sent,) = web.asked
    assert sent.url.host == "2606:2800:220:1::1"
    assert sent.headers["host"] == "sounds.example.com"
    assert sent.extensions["sni_hostname"] == "sounds.example.com"
    assert sent.url.raw_path == b"/a?b=c" and sent.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("hosts", "url", "allowed"),
    [
        (["a.example"], "http://a.example/x", True),
        (["A.Example."], "http://a.example/x", True),
        (["a.example"], "http://A.EXAMPLE/x", True),
        (["a.example"], "http://b.example/x", False),
        (["a.example"], "http://a.example.evil.example/x", False),
        (["a.example"], "http://a.example:8443/x", False),
        (["a.example:8443"], "http://a.example:8443/x", True),
        (["a.example:8443"], "http://a.example/x", False),
        (["a.example:443"], "https://a.example/x", True),
        (["*.example"], "http://a.example/x", True),
        (["*.example"], "http://example/x", False),
        (["*.a.example"], "http://ba.example/x", False),
        (["*"], "https://anything.example/x", True),
        (["*"], "https://anything.example:22/x", False),
        (["a.example"], "http://user:secret@a.example/x", False),
        (["a.example"], "http://a.example@b.example/x", False),
        (["*"], "ftp://a.example/x", False),
        (["*"], "http:///x", False),
        (["*"], "http://a:abc/x", False),
        (["*"], "http://[::1", False),
        ([], "http://a.example/x", False),
    ],
)
async def test_only_hosts_and_ports_of_the_list_are_asked(hosts, url, allowed):
    web = Web()
    if allowed:
        assert await web.fetcher(*hosts).fetch(url, "ref_audio") == b"sound"
    else:
        assert "`ref_audio`" in await refusal(web.fetcher(*hosts).fetch(url, "ref_audio"))
    assert len(web.asked) == allowed


INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "ff0e::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
async def test_a_host_with_an_address_that_is_not_public_is_never_asked(address):
    for addresses in ([address], [PUBLIC, address]):
        web = Web({"inside.example": addresses})
        told = await refusal(web.fetcher("*").fetch("http://inside.example/x", "ref_audio"))
        assert "not on the public internet" in told and not web.asked


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_public_addresses_are_public(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]"]
)
async def test_loopback_in_any_spelling_is_not_connected_to(host):
    with listening() as (port, accepted):
        fetcher = Fetcher(["*", f"{host.strip('[]')}:{port}", f"{host}:{port}"], 1000, 5)
        await refusal(fetcher.fetch(f"http://{host}:{port}/x", "ref_audio"))
    assert not accepted


@contextlib.contextmanager
def listening():
    """A port of this machine; `accepted` are the connections made to it."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def accept():
            with contextlib.suppress(OSError):
                accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1], accepted
        thread.join()
    for each in accepted:
        each.close()


async def test_a_redirect_is_followed_to_an_allowed_host():
    web = Web(
        pages={"http://a.example/1": moved("/2"), "http://a.example/2": moved("//b.example/")}
    )
    fetched = await web.fetcher("a.example", "b.example").fetch("http://a.example/1", "ref_audio")
    assert fetched == b"sound"
    assert [each.headers["host"] for each in web.asked] == ["a.example", "a.example", "b.example"]


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1/x", "http://inside.example/x", "http://other.example/x", "file:///etc/passwd",
     "gopher://a.example/", "http://169.254.169.254/latest/meta-data"],
)  # fmt: skip
async def test_a_redirect_has_the_same_checks_and_nothing_is_sent_there(target):
    web = Web({"inside.example": ["10.0.0.1"]}, {"http://a.example/1": moved(target)})
    hosts = ["a.example", "inside.example", "127.0.0.1", "169.254.169.254"]
    web.addresses |= {"127.0.0.1": ["127.0.0.1"], "169.254.169.254": ["169.254.169.254"]}
    await refusal(web.fetcher(*hosts).fetch("http://a.example/1", "ref_audio"))
    assert [each.headers["host"] for each in web.asked] == ["a.example"]


@pytest.mark.parametrize(
    "target",
    ["http://[::1", "http://a:abc/", "http://a:99999/", "http://a\x01b/", "/" + "x" * 70_000],
)
async def test_a_redirect_to_what_is_no_url_is_a_refusal(target):
    web = Web(pages={"http://a.example/1": moved(target)})
    await refusal(web.fetcher("*").fetch("http://a.example/1", "ref_audio"))
    assert [each.headers["host"] for each in web.asked] == ["a.example"]


async def test_a_host_whose_address_cannot_be_read_is_a_refusal():
    web = Web({"a.example": ["nowhere"]})
    await refusal(web.fetcher("*").fetch("http://a.example/1", "ref_audio"))
    assert not web.asked


async def test_redirects_end():
    web = Web(pages={"http://a.example/1": moved("/1")})
    told = await refusal(web.fetcher("a.example").fetch("http://a.example/1", "ref_audio"))
    assert f"more than {MOST_REDIRECTS} redirects" in told
    assert len(web.asked) == MOST_REDIRECTS + 1


@pytest.mark.parametrize(
    "page",
    [
        sound(b"x" * 1001),
        sound(b"x", **{"content-length": "99999999999"}),
        sound(b"x" * 1001, **{"content-length": "1"}),
    ],
    ids=["long", "declared long", "longer than declared"],
)
async def test_a_long_body_is_given_up(page):
    web = Web(pages={"http://a.example/1": page})
    told = await refusal(
        web.fetcher("a.example").fetch("http://a.example/1", "ref_audio"), engine.PayloadTooLarge
    )
    assert "more than 1000 bytes" in told


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (httpx2.Response(404), "answered 404"),
        (httpx2.Response(206, content=b"x"), "answered 206"),
        (httpx2.Response(200, headers={"content-encoding": "gzip"}), "compressed"),
    ],
)
async def test_an_answer_that_is_no_plain_file_is_refused(page, told):
    web = Web(pages={"http://a.example/1": page})
    assert told in await refusal(web.fetcher("a.example").fetch("http://a.example/1", "ref_audio"))


async def test_a_host_that_takes_too_long_is_given_up():
    web = Web()

    async def never(host, port):
        await anyio.sleep_forever()

    fetcher = Fetcher(["*"], 1000, 0.05, resolve=never, transport=httpx2.MockTransport(web.answer))
    told = await refusal(fetcher.fetch("http://a.example/1", "ref_audio"))
    assert "within 0.05 s" in told and not web.asked


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "[broken", "x" * 70 + ".example"])
async def test_a_host_that_does_not_exist_is_a_refusal(host):
    await refusal(Fetcher(["*"], 1000, 30).fetch(f"http://{host}/", "ref_audio"))


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"sound")
        self.server.asked.append(self.headers["Host"])

    def log_message(self, *_):
        pass


async def test_over_a_real_socket_the_checked_address_is_connected_to(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = server.server_address[1]

    async def here(host, port):
        return ["127.0.0.1"]

    try:
        fetcher = Fetcher([f"a.example:{port}"], 1000, 30, resolve=here, public=lambda _: True)
        assert await fetcher.fetch(f"http://a.example:{port}/x", "ref_audio") == b"sound"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert server.asked == [f"a.example:{port}"]


async def test_names_are_resolved_to_every_address():
    assert "127.0.0.1" in await resolve("127.0.0.1", 80)


def local(url, folder, most=1000):
    return read_local(url, folder, most, "ref_audio")


def test_a_file_of_the_allowed_folder_is_read(tmp_path):
    (tmp_path / "a b.wav").write_bytes(b"sound")
    (tmp_path / "link.wav").symlink_to("a b.wav")
    assert local(f"file://{tmp_path}/a%20b.wav", tmp_path) == b"sound"
    assert local(f"file://localhost{tmp_path}/link.wav", tmp_path) == b"sound"


def test_what_lies_elsewhere_or_is_no_file_is_not_read(tmp_path):
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (allowed / "link").symlink_to(outside / "secret")
    (allowed / "folder").symlink_to(outside)
    (allowed / "loop").symlink_to("loop")
    os.mkfifo(allowed / "pipe")
    for name in (
        "../outside/secret", "link", "folder/secret", "loop", "pipe", "", "none", "%00",
        "..%2Foutside%2Fsecret",
    ):  # fmt: skip
        with pytest.raises(engine.InvalidRequest, match="no such file"):
            local(f"file://{allowed}/{name}", allowed)
    with pytest.raises(engine.InvalidRequest):
        local(f"file://elsewhere{allowed}/x", allowed)
    with pytest.raises(engine.InvalidRequest):
        local("file:///etc/passwd", allowed)
    with pytest.raises(engine.InvalidRequest, match="no such file"):
        local("file://[::1", allowed)


def test_a_long_file_is_refused(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 1001)
    with pytest.raises(engine.PayloadTooLarge, match="`ref_audio`: the file holds more than 1000"):
        local(f"file://{tmp_path}/long", tmp_path)
