"""A headless Chromium, driven over a pipe by its own debugging protocol: no dependency, no network."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe about:blank"
).split()
_LAUNCH = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)  # where Chromium reads commands
os.dup2(int(sys.argv[2]), 4)  # and writes its answers
os.execv(sys.argv[3], sys.argv[3:])
"""
_KEYS = {"Tab": 9, " ": 32, "PageUp": 33, "PageDown": 34, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}


class BrowserError(RuntimeError):
    """The browser is gone, or refused a command."""


class Tab:
    """A page in the browser."""

    def __init__(self, write: int, read: int, seconds: float = 60.0):
        self._write, self._read, self._seconds = write, read, seconds
        self._buffer, self._count, self._session = b"", 0, None
        self.errors: list[str] = []
        """Exceptions that the page threw, and requests that it made."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                break
            self._note(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path: Path) -> None:
        """Loads a file and waits until its program has run."""
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        until = time.monotonic() + self._seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise BrowserError(f"it never came true: {condition}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Presses a key as a person does."""
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": " "} if key == " " else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Moves the mouse from a point of the window to another with its button down."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Asks for the light or the dark scheme."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Network.requestWillBeSent" and not params["request"]["url"].startswith("file:"):
            self.errors.append(f"asked for {params['request']['url'][:100]}")
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], self._seconds)
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise BrowserError("the browser does not answer.")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Starts Chromium with an empty profile in a folder; ends it and its children afterwards."""
    assert PROGRAM is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    fds = (to_browser[0], from_browser[1])
    command = [PROGRAM, *_OPTIONS, f"--user-data-dir={folder / 'profile'}"]
    launch = [sys.executable, "-c", _LAUNCH, *map(str, fds), *command]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(launch, pass_fds=fds, **quiet)
    for end in fds:
        os.close(end)
    try:
        yield Tab(to_browser[1], from_browser[0])
    finally:
        os.close(to_browser[1])  # at which it ends by itself
        os.close(from_browser[0])
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
