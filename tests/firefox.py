"""Firefox without a driver of its own: its remote protocol, Marionette, over a socket.

A message is ``length:[type, number, command, parameters]``, the answer ``length:[1, number, error,
result]`` (firefox-source-docs.mozilla.org/testing/marionette/Protocol.html).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that Firefox may take for anything."""


def firefox() -> str | None:
    """The browser: $ATTNVIZ_FIREFOX, or the system's."""
    given = os.environ.get("ATTNVIZ_FIREFOX")
    return given or next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)


class Firefox:
    """A running Firefox."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._number = 0
        self._read()  # who it is
        self.ask("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {}}})

    def ask(self, command: str, parameters: dict[str, Any]) -> Any:
        """What a command answers."""
        self._number += 1
        text = json.dumps([0, self._number, command, parameters])
        self._line.sendall(f"{len(text.encode())}:{text}".encode())
        _, number, error, result = self._read()
        assert number == self._number
        assert error is None, error
        return result

    def run(self, script: str) -> Any:
        """What a function's body returns in the page."""
        parameters = {"script": script, "args": [], "newSandbox": False}
        return self.ask("WebDriver:ExecuteScript", parameters)["value"]

    def open(self, address: str) -> None:
        """Go to a page, and wait until it has settled."""
        self.ask("WebDriver:Navigate", {"url": "about:blank"})
        self.ask("WebDriver:Navigate", {"url": address})
        end, quiet = time.monotonic() + PATIENCE, 0
        while quiet < 4:
            assert time.monotonic() < end, f"{address} is still busy"
            busy = self.run(
                "const { dataset } = document.documentElement;"
                "return Boolean(dataset.pending || (dataset.busy && dataset.busy !== '0'));"
            )
            quiet = 0 if busy else quiet + 1
            time.sleep(0.05)

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        found = self.ask("WebDriver:TakeScreenshot", {"full": False})
        return base64.b64decode(found["value"])

    def _read(self) -> Any:
        size = b""
        while (sign := self._line.recv(1)) != b":":
            assert sign, "Firefox has gone"
            size += sign
        text = b""
        while len(text) < int(size):
            text += self._line.recv(int(size) - len(text))
        return json.loads(text)


@contextmanager
def running(path: str, profile: Path) -> Iterator[Firefox]:
    """Firefox without a window, with a profile of its own, at a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
    command = [path, "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    environment = {**os.environ, "HOME": str(profile), "MOZ_HEADLESS_WIDTH": "1440",
                   "MOZ_HEADLESS_HEIGHT": "1000"}  # fmt: skip
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            with _connected(port) as line:
                yield Firefox(line)
        finally:
            process.terminate()


def _connected(port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            assert time.monotonic() < end, "Firefox does not answer"
            time.sleep(0.1)
