"""Tests of the server for agents."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(call: Callable[..., Any], *arguments: Any) -> Any:
    """What an asynchronous call gives; in a thread, since a browser's loop may run in this one."""
    import anyio

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, call, *arguments).result()
