"""Progress in logs: where standard error is no terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

EVERY = 30.0
"""Seconds between two lines."""


class Log:
    """Says how far some work is: done, rate, and the time that is left.

    ``clock``: seconds, for tests.
    """

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._on, self._clock = not quiet and not sys.stderr.isatty(), clock
        self._what = ""
        self._start = self._last = clock()
        self._first = 0

    def tell(self, what: str, done: int, total: int | None) -> None:
        """So much is done; printed if the last line is old enough."""
        now = self._clock()
        if what != self._what:
            self._what, self._first, self._start = what, done, now
        if not self._on or now - self._last < EVERY:
            return
        self._last = now
        rate = (done - self._first) / max(now - self._start, 1e-9)
        noun = what.removesuffix("s") if done == 1 and total is None else what
        parts = [f"{done:,} {noun}" if total is None else f"{done:,} of {total:,} {what}"]
        parts += [pace(rate)] if rate > 0 else []
        if total is not None and rate > 0:
            minutes, seconds = divmod(round(max(total - done, 0) / rate), 60)
            parts.append(f"{minutes:,}:{seconds:02d} left")
        sys.stderr.write(f"attnviz: {', '.join(parts)}\n")
        sys.stderr.flush()


def pace(rate: float) -> str:
    """So many a second, or of slower work a minute, an hour or a day."""
    for unit, seconds, least in (("second", 1, 1.0), ("minute", 60, 0.1), ("hour", 3600, 0.1)):
        if rate * seconds >= least:
            return f"{rate * seconds:,.1f} {'an' if unit == 'hour' else 'a'} {unit}"
    return f"{rate * 86400:,.1g} a day"
