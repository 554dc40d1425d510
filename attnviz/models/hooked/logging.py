"""transformers without its logs, warnings and bars."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any


class _Blocks:
    """The open blocks of all threads: what is set is the process's, not a thread's."""

    def __init__(self) -> None:
        self.lock, self.count, self.undo = threading.Lock(), 0, contextlib.ExitStack()


_BLOCKS = _Blocks()


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep transformers from logging, warning and drawing bars, and restore what was set before."""
    with _BLOCKS.lock:
        if not _BLOCKS.count:
            _BLOCKS.undo.enter_context(_silent())
        _BLOCKS.count += 1
    try:
        yield
    finally:
        with _BLOCKS.lock:
            _BLOCKS.count -= 1
            if not _BLOCKS.count:
                _BLOCKS.undo.close()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    import huggingface_hub.utils
    import transformers.utils.logging

    hub: Any = huggingface_hub.utils
    bars: Any = transformers.utils.logging
    bars.get_verbosity()  # transformers sets its logger up on first use
    logger = logging.getLogger("transformers")
    level = logger.level
    shown, shown_by_hub = bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        bars.disable_progress_bar()
        try:
            yield
        finally:
            logger.setLevel(level)
            if shown:
                bars.enable_progress_bar()
            (hub.enable_progress_bars if shown_by_hub else hub.disable_progress_bars)()
