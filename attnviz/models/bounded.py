"""Code that comes with a model, such as a chat template, within bounds of time and memory.

transformers runs templates in a sandbox, which keeps them from the system but not from running for
ever, or from putting together gigabytes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS = 5.0
"""Of processor time, for one run: a busy machine stops nothing that is quick by itself."""
_MEMORY = 512 << 20
"""Bytes that a run may take beside what the process has."""
_TEMPLATE = "<template>"
"""The file that Jinja says its code is from."""


class OutOfBounds(Exception):
    """What was run took too long, or too much memory; the message says which."""


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    """In the ``with`` block, code ends after so many seconds of work, and cannot take the memory.

    Every line of a template and every call looks at the clock, in this thread alone, so a single
    operation is not cut short. Memory is limited for the whole process meanwhile, on Linux;
    elsewhere it is not.
    """
    until = time.thread_time() + seconds
    before = sys.gettrace()

    def trace(frame: Any, event: str, value: Any) -> Any:
        if time.thread_time() > until:
            raise OutOfBounds(f"it was not done after {seconds:g} s")
        return trace if frame.f_code.co_filename == _TEMPLATE else None

    with _little_memory():
        sys.settrace(trace)
        try:
            yield
        except MemoryError:
            raise OutOfBounds(f"it takes more than {_MEMORY >> 20} MiB of memory") from None
        finally:
            sys.settrace(before)


@contextmanager
def _little_memory() -> Iterator[None]:
    """In the ``with`` block the process gets only so much more memory, where that can be said."""
    try:
        import resource

        taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        yield
        return
    limits = [limit for limit in (soft, hard, taken + _MEMORY) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
