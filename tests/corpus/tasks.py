"""What worker processes of the tests do; each function is imported there by its name."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attnviz.errors import InputError


def squares(offset: int = 0) -> Callable[[int], int]:
    return lambda n: n * n + offset


def hostile(folder: str) -> Callable[[int], int]:
    """Dies over 3 once and over 5 always, raises over 7 and 8, is slow over 9, prints over 11."""

    def do(n: int) -> int:
        flag = Path(folder) / str(n)
        if n == 5 or (n == 3 and not flag.exists()):
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if n == 7:
            raise InputError("seven is not liked")
        if n == 8:
            raise LookupError("eight")
        if n == 9:
            time.sleep(0.3)
        if n == 11:
            print("in the way")
        return n

    return do


def never() -> Callable[[int], int]:
    sys.exit(3)


def refused() -> Callable[[int], int]:
    raise InputError("nothing to load")


def threads() -> Callable[[int], tuple[int, float]]:
    """The number of torch threads, and the sum of a softmax of many numbers."""
    import torch

    def do(seed: int) -> tuple[int, float]:
        torch.manual_seed(seed)
        a, b = torch.randn(2, 500, 500)
        return torch.get_num_threads(), float((a @ b).softmax(-1).square().sum())

    return do


def there() -> Callable[[str], str | None]:
    """Whether a module is loaded, or what a variable of the environment is."""
    return lambda name: "loaded" if name in sys.modules else os.environ.get(name)


def process() -> Callable[[float], int]:
    def do(seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    return do
