"""Calls into libraries that raise whatever they like, Rust's panics among it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from attnviz.errors import AttnvizError, Message, ModelError

_PANIC = "PanicException"
"""What Rust's bindings raise where Rust gives up: a BaseException that no module exports."""

_one_at_a_time = threading.Lock()


@contextmanager
def refusing(what: str, remedy: str = "") -> Iterator[None]:
    """Turn everything that a library raises inside the ``with`` block into a ModelError."""
    try:
        yield
    except AttnvizError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            suffix = Message("; {}", remedy) if remedy else ""
            raise ModelError("{}: {}{}", what, one_line(error), suffix) from None
        raise


def provoke(read: Callable[..., object]) -> None:
    """Let a tokenizer whose parts do not fit together panic now; no other error counts."""
    with muted():
        for texts in (("a",), ("a", "a")):
            with suppress(Exception):
                read(*texts)


@contextmanager
def muted() -> Iterator[None]:
    """Send the process's standard error nowhere: Rust prints a panic before it raises it."""
    with _one_at_a_time:
        try:
            stderr = os.dup(2)
        except OSError:  # it is closed
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            os.close(nowhere)


def one_line(error: BaseException) -> str:
    """An error's text as one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__
