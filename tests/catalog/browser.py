"""A headless Chromium, spoken to over its debugging pipe: pages as a reader sees them, with and without scripts."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0


def chromium() -> str | None:
    """The program, or None where none is installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One browser with one tab. Messages of the console and errors of scripts and loads are kept in `messages`."""

    def __init__(self, profile: Path) -> None:
        program = chromium()
        assert program is not None
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()
        # The protocol's ends are the descriptors 3 and 4 of the browser.
        script = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *flags, "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._rest = b""
        self._number = 0
        self._tab: str | None = None
        self.messages: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._tab = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._tab is not None:
            message["sessionId"] = self._tab
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._hear(answer)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser is gone"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _wait(self) -> None:
        while not self._loaded:
            self._hear(self._next())

    def _hear(self, event: dict[str, Any]) -> None:
        name, given = event.get("method"), event.get("params", {})
        if name == "Page.loadEventFired":
            self._loaded = True
        elif name == "Log.entryAdded":
            self.messages.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif name == "Runtime.consoleAPICalled":
            self.messages.append(f"{given['type']}: {[part.get('value') for part in given['args']]}")
        elif name == "Runtime.exceptionThrown":
            self.messages.append(f"exception: {given['exceptionDetails']['text']}")

    def open(self, page: Path | str, *, width: int = 1200, scripts: bool = True, dark: bool = False) -> None:
        """Load a page in a window of this size and wait until it is there."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        size: dict[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._loaded = False
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.call("Page.navigate", url=address)
        self._wait()

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; the page's own scripts need not be allowed for it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def follow(self, expression: str) -> None:
        """Evaluate an expression that leads to another page, and wait until that is there."""
        self._loaded = False
        self.value(expression)
        self._wait()

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
