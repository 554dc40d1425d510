"""Calls into libraries that raise whatever they like, Rust's panics among it, and log and warn."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnviz.errors import AttnvizError, Message, ModelError, absent

_PANIC = "PanicException"
"""What Rust's bindings raise where Rust gives up: a BaseException that no module exports."""

_one_at_a_time = threading.Lock()


@contextmanager
def refusing(message: str, remedy: str = "") -> Iterator[None]:
    """Turn everything that a library raises inside the ``with`` block into a ModelError."""
    try:
        yield
    except AttnvizError:
        raise
    except BaseException as error:
        if named := absent(error):
            raise named from None
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            suffix = Message("; {}", remedy) if remedy else ""
            raise ModelError("{}: {}{}", message, one_line(error), suffix) from None
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


@contextmanager
def replacing(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let a module, a class or an object have another function inside the ``with`` block."""
    original = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def one_line(error: BaseException) -> str:
    """Return an error's text as one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


_LOCK = threading.Lock()
_OPEN: list[contextlib.ExitStack] = []  # blocks of all threads: what is set is the process's


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep transformers from logging, warning and drawing bars, and restore what was set before."""
    with _LOCK:
        undo = contextlib.ExitStack()
        if not _OPEN:
            undo.enter_context(_silent())
        _OPEN.append(undo)
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.pop().close()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    import huggingface_hub.utils
    import transformers.utils.logging

    hub: Any = huggingface_hub.utils
    bars: Any = transformers.utils.logging
    bars.get_verbosity()  # transformers sets its logger up on first use
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate")]
    outlets = [(logger.handlers, logger.propagate) for logger in loggers]
    bars_on, hub_bars_on = bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:  # a level would have logging forget those of thousands of others
            logger.handlers, logger.propagate = [logging.NullHandler()], False
        bars.disable_progress_bar()
        try:
            yield
        finally:
            for logger, (handlers, propagate) in zip(loggers, outlets, strict=True):
                logger.handlers, logger.propagate = handlers, propagate
            if bars_on:
                bars.enable_progress_bar()
            (hub.enable_progress_bars if hub_bars_on else hub.disable_progress_bars)()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Keep libraries from logging and warning, in workers too, unless their variables or -W ask."""
    unset = _VERBOSITY.difference(os.environ)
    os.environ.update(dict.fromkeys(unset, "critical"))
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", module=_LIBRARIES)
            yield
    finally:
        for name in unset:
            del os.environ[name]


_VERBOSITY = {"TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"}
_LIBRARIES = r"(transformers|huggingface_hub|torch|tokenizers|accelerate)(\.|$)"

SECONDS = 5.0
"""Of processor time, for one run: a busy machine stops nothing that is quick by itself."""
_MEMORY = 512 << 20  # bytes that a run may take beside what the process has
_TEMPLATE = "<template>"  # the file that Jinja says its code is from


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
    previous = sys.gettrace()

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
            sys.settrace(previous)


@contextmanager
def _little_memory() -> Iterator[None]:
    """In the ``with`` block the process gets only so much more memory, where that can be said."""
    try:
        import resource

        size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        yield
        return
    limits = [limit for limit in (soft, hard, size + _MEMORY) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
