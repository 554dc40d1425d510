"""Ctrl-C as a wish to stop in order, not as an exception in the middle of something."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stopping:
    """The first Ctrl-C sets an event, so that nothing is torn; the second one is as usual."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._before: Any = None

    def __enter__(self) -> threading.Event:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before in (signal.default_int_handler, signal.SIG_DFL):
                signal.signal(signal.SIGINT, self._caught)
            else:
                self._before = None
        return self._stop

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _caught(self, number: int, frame: object) -> None:
        self._stop.set()
        signal.signal(signal.SIGINT, self._before)
