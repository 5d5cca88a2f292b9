"""Chromium without a window, told what to do over its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.waiting import PATIENCE_S

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--mute-audio",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--remote-debugging-port=0",
)
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}


class Browser:
    """One tab. `loaded` collects the addresses that pages asked for, `complaints` what they wrote
    to the console as an error."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        self.downloads = folder / "downloads"
        self.process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.loaded: list[str] = []
        self.complaints: list[str] = []
        self._ids = itertools.count(1)
        self._session: str | None = None
        with contextlib.ExitStack() as stack:
            stack.callback(self.process.kill)
            self._socket = stack.enter_context(connect(self._address(), max_size=None))
            self._attach()
            self._held = stack.pop_all()

    def close(self) -> None:
        self._session = None
        self._call("Browser.close")
        self.process.wait(PATIENCE_S)
        self._held.close()

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression, a promise's once it is settled."""
        options = {"returnByValue": True, "awaitPromise": True}
        reply = self._call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression is true, and return it."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, (script, self.complaints, self.text("body"))
            time.sleep(0.05)
        return value

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def wait_for(self, selector: str, words: str) -> str:
        """The text of an element, once it holds `words`."""
        found = f"document.querySelector({json.dumps(selector)}).innerText"
        self.until(f"{found}.includes({json.dumps(words)})")
        return self.text(selector)

    def focus(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element."""
        element = f"document.querySelector({json.dumps(selector)})"
        x, y = self.evaluate(
            f"{element}.scrollIntoView({{block: 'center'}}),"
            f" (({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"({element}.getBoundingClientRect())"
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key: str, *, ctrl: bool = False, shift: bool = False) -> None:
        code, text = KEYS[key]
        held = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        held |= {"modifiers": 2 * ctrl + 8 * shift}
        self._call("Input.dispatchKeyEvent", type="keyDown", text="" if ctrl else text, **held)
        self._call("Input.dispatchKeyEvent", type="keyUp", **held)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._call("Input.insertText", text=text)

    def fill(self, selector: str, text: str) -> None:
        """Exchange what a field holds, as a person would."""
        self.focus(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.type(text)

    def choose(self, selector: str, value: str) -> None:
        self.evaluate(
            f"((it) => {{ it.value = {json.dumps(value)};"
            " it.dispatchEvent(new Event('change', {bubbles: true})); })"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def attach(self, selector: str, file: Path) -> None:
        """Give a file field a file."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The size of the window, in CSS pixels, and whether the listener likes it dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def cut_off(self, offline: bool) -> None:
        """Whether the browser has a network."""
        conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.emulateNetworkConditions", offline=offline, **conditions)

    def picture(self, file: Path) -> bytes:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))
        return file.read_bytes()

    def _attach(self) -> None:
        [page] = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = {"targetId": page["targetId"], "flatten": True}
        self._session = self._call("Target.attachToTarget", **target)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads)
        )

    def _address(self) -> str:
        found: list[str] = []
        seen = threading.Event()

        def read() -> None:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                if match := re.search(r"listening on (ws://\S+)", line):
                    found.append(match[1])
                    seen.set()
            self.process.stderr.close()

        threading.Thread(target=read, daemon=True).start()
        assert seen.wait(PATIENCE_S)
        return found[0]

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            reply = json.loads(self._socket.recv(PATIENCE_S))
            if reply.get("id") == number:
                assert "error" not in reply, (method, reply["error"])
                return dict(reply["result"])
            self._note(reply.get("method"), reply.get("params", {}))

    def _note(self, event: str | None, told: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.loaded.append(told["request"]["url"])
        if event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
