"""Ctrl-C as a wish to stop in order, not as an exception in the middle of something."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stopping:
    """The first Ctrl-C asks to stop, so that nothing is torn; the second one is as usual."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._at_once = False
        self._before: Any = None

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before in (signal.default_int_handler, signal.SIG_DFL):
                signal.signal(signal.SIGINT, self._caught)
            else:
                self._before = None
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def asked(self) -> bool:
        """Whether there was a Ctrl-C."""
        return self._asked.is_set()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Where waiting may take long and nothing can be torn, Ctrl-C is an exception after all."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _caught(self, number: int, frame: object) -> None:
        self._asked.set()
        signal.signal(signal.SIGINT, self._before)
        if self._at_once:
            raise KeyboardInterrupt
