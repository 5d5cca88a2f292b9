"""The page at `/` as it is sent; `tests/e2e/test_page.py` uses it."""

import re
import tomllib
from pathlib import Path

import pytest

from server.routes.page import FOLDER, INDEX, MEDIA_TYPES, page_files

PATHS = sorted(page_files())
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
NAMESPACE = "http://www.w3.org/2000/svg"
HTML = (FOLDER / INDEX).read_text("utf-8")
SCRIPTS = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}


@pytest.mark.anyio
async def test_a_browser_gets_the_page_and_a_program_json(connect):
    async with connect() as client:
        page = await client.get("/", headers=BROWSER)
        programs = [
            await client.get("/", headers=headers)
            for headers in ({}, {"accept": "application/json, text/plain, */*"}, {"accept": ""})
        ]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text == HTML
    assert [reply.json()["name"] for reply in programs] == ["framecast"] * 3
    assert all("Accept" in reply.headers["vary"].split(", ") for reply in (page, *programs))


def test_every_file_has_its_type_and_head_is_answered_like_get(http):
    for path in PATHS:
        get, head = http.get(path, headers=BROWSER), http.head(path, headers=BROWSER)
        name = INDEX if path == "/" else path.removeprefix("/page/")
        assert get.status_code == head.status_code == 200
        assert get.content == (FOLDER / name).read_bytes() and head.content == b""
        assert get.headers["content-type"] == MEDIA_TYPES[Path(name).suffix]
        for header in ("content-type", "content-length", "etag", "content-security-policy"):
            assert get.headers[header] == head.headers[header]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.anyio
async def test_only_files_of_this_server_may_run_and_nothing_inline(connect, path):
    async with connect() as client:
        headers = (await client.get(path, headers=BROWSER)).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-request-id"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.anyio
async def test_a_browser_asks_each_time_and_keeps_what_has_not_changed(connect, path):
    async with connect() as client:
        first = await client.get(path, headers=BROWSER)
        known = BROWSER | {"if-none-match": f'"other", {first.headers["etag"]}'}
        again = await client.get(path, headers=known)
        changed = await client.get(path, headers=BROWSER | {"if-none-match": '"other"'})
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert changed.content == first.content


@pytest.mark.anyio
async def test_the_page_needs_no_key_and_opens_nothing_else(connect):
    async with connect(api_keys="secret", protect_lists=True, protect_metrics=True) as client:
        pages = [await client.get(path, headers=BROWSER) for path in PATHS]
        closed = [
            await client.get("/"),
            await client.get("/page/none.js", headers=BROWSER),
            await client.get("/page/../app.py", headers=BROWSER),
            await client.post("/", headers=BROWSER),
        ]
    assert {reply.status_code for reply in pages} == {200}
    assert {reply.status_code for reply in closed} == {401}


@pytest.mark.anyio
async def test_other_names_and_methods_are_answered_as_everywhere(connect):
    async with connect() as client:
        missing = await client.get("/page/none.js", headers=BROWSER)
        posted = await client.post("/page/app.js")
        root = await client.post("/", headers=BROWSER)
    assert (missing.status_code, posted.status_code, root.status_code) == (404, 404, 405)
    assert missing.json()["error"]["code"] == "not_found"


@pytest.mark.anyio
async def test_a_file_is_counted_under_its_own_name(connect):
    async with connect() as client:
        await client.get("/", headers=BROWSER)
        await client.get("/page/app.js")
        text = (await client.get("/metrics")).text
    for route in ("/", "/page/app.js"):
        assert f'framecast_requests_total{{reason="",route="{route}",status="200"}} 1.0' in text


def test_every_file_of_the_folder_is_packaged_and_served():
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["server"]
    packaged = {path for pattern in patterns for path in FOLDER.parent.glob(pattern)}
    files = set(FOLDER.iterdir())
    assert files <= packaged
    assert {INDEX if path == "/" else path.removeprefix("/page/") for path in PATHS} == {
        path.name for path in files
    }


@pytest.mark.parametrize("path", PATHS)
def test_nothing_comes_from_elsewhere(path):
    text = page_files()[path].body.decode().replace(NAMESPACE, "")
    assert not re.search(r"(https?:|wss?:|[\"'(])//\w", text)


def test_the_page_has_no_script_or_style_of_its_own():
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", HTML)
    assert re.findall(r"<script[^>]*>", HTML) == ['<script type="module" src="page/app.js">']


def test_every_file_is_asked_for_by_another_and_is_there():
    asked = set(re.findall(r'(?:href|src)="page/([^"]+)"', HTML))
    for text in SCRIPTS.values():
        asked |= set(re.findall(r'from "\./([^"]+)"', text))
    assert asked == {path.name for path in FOLDER.iterdir()} - {INDEX}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_what_a_script_looks_for_is_on_the_page(name):
    there = set(re.findall(r'\bid="([^"]+)"', HTML))
    assert set(re.findall(r'\bat\("([^"]+)"\)', SCRIPTS[name])) <= there


def test_every_control_has_a_label():
    labelled = set(re.findall(r'<label[^>]*for="([^"]+)"', HTML))
    wrapped = set(re.findall(r'<label[^>]*><input id="([^"]+)"', HTML))
    controls = set(re.findall(r'<(?:input|select|textarea) id="([^"]+)"', HTML))
    assert controls == labelled | wrapped and len(controls) > 10
