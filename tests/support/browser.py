"""A headless Chromium, driven over its DevTools protocol: enough to open a page, use it and look at it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from support.processes import HANG_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
_KEY_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find() -> str | None:
    """The browser's program, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(program: str, profile: Path) -> Iterator[int]:
    """A browser with a profile of its own; yields the port of its DevTools."""
    flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--disable-gpu"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-extensions", "--mute-audio"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox does not work for root
    process = subprocess.Popen([program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _port(process, profile / "DevToolsActivePort")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], file: Path) -> int:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if file.is_file() and len(lines := file.read_text().split("\n")) > 1:
            return int(lines[0])
        time.sleep(0.05)
    raise RuntimeError("the browser did not start")


class Tab:
    """One page. `complaints` are errors in its console, `requests` what it asked for."""

    def __init__(self, port: int) -> None:
        from websockets.sync.client import connect

        call = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(call, timeout=HANG_SECONDS) as answer:
            place = json.load(answer)["webSocketDebuggerUrl"]
        self._connection = ExitStack()
        waits = {"open_timeout": HANG_SECONDS, "ping_timeout": HANG_SECONDS}
        self._socket = self._connection.enter_context(connect(place, max_size=None, proxy=None, **waits))
        self._number = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self.call("Page.close")
        self._connection.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=HANG_SECONDS))
            if message.get("id") != self._number:
                self._note(message)
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            return dict(message["result"])

    def open(self, address: str) -> None:
        """Go there and wait until it is loaded."""
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._note(json.loads(self._socket.recv(timeout=HANG_SECONDS)))

    def do(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression holds."""
        deadline = time.monotonic() + HANG_SECONDS
        while not self.do(script):
            assert time.monotonic() < deadline, f"never came true: {script}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
            code = _KEY_CODES.get(key, ord(key[0].upper()))
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                    **({"text": text} if text and kind == "keyDown" else {}),
                )  # fmt: skip

    def move(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Press the pointer's button at one place and let go of it at another."""
        self.move(x1, y1)
        for kind, x, y in (("mousePressed", x1, y1), ("mouseMoved", x2, y2), ("mouseReleased", x2, y2)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def double_click(self, x: float, y: float) -> None:
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Screen or print, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _note(self, message: dict[str, Any]) -> None:
        method, content = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(content["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(content["args"]))
        elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.complaints.append(content["entry"]["text"])
