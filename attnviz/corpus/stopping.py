"""A wish to stop, such as Ctrl-C, as a wish: not as an exception in the middle of something."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_USUAL = (signal.default_int_handler, signal.SIG_DFL)


class Stopping:
    """The first Ctrl-C or SIGTERM asks to stop, so that nothing is torn; the second is as usual."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before in _USUAL:
                    self._before[number] = before
                    signal.signal(number, self._caught)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def asked(self) -> bool:
        """Whether somebody wants it to stop."""
        return self._asked.is_set()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Where waiting may take long and nothing can be torn, it is an exception after all."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _caught(self, number: int, frame: object) -> None:
        self._asked.set()
        self._restore()
        if self._at_once:
            raise KeyboardInterrupt

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
