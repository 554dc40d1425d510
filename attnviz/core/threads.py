"""How many threads compute: one where a sum's last bit must be the same on every machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

    from attnviz.core.arrays import Array

_ASKED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Limit:
    """One torch thread from when torch is there; ``before`` is how many there were then."""

    before: int | None = None

    def apply(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and self.before is None:
            self.before = torch.get_num_threads()
            torch.set_num_threads(1)


_LIMIT: ContextVar[_Limit | None] = ContextVar("attnviz_threads", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside the ``with`` block, and as many as before afterwards.

    torch may be imported inside; who does that for a pass calls :func:`limit_threads`. NumPy's own
    passes always have one.
    """
    limit = _Limit()
    limit.apply()
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)
        if limit.before is not None:
            sys.modules["torch"].set_num_threads(limit.before)


@cache
def _blas() -> ThreadpoolController:
    """Whoever multiplies NumPy's matrices."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread for NumPy's products inside the ``with`` block.

    The last bit of a product depends on their number, and a short text is over before others have
    begun.
    """
    with _blas().limit(limits=1, user_api="blas"):
        yield


def one_thread_for(x: Array) -> AbstractContextManager[Any]:
    """:func:`one_blas_thread` for products of an array of NumPy's outside of a pass."""
    import numpy as np  # not with this module: worker processes start without it

    return one_blas_thread() if isinstance(x, np.ndarray) else nullcontext()


def threads() -> tuple[object, ...]:
    """What says how many threads a pass has: it may decide the last bit of a sum."""
    if _LIMIT.get() is not None:
        return (1,)
    torch = sys.modules.get("torch")
    if torch is not None:
        return (torch.get_num_threads(),)
    return (os.cpu_count(), *(os.environ.get(name) for name in _ASKED))


def limit_threads() -> None:
    """Keep to one thread where a block of :func:`one_thread` stands."""
    limit = _LIMIT.get()
    if limit is not None:
        limit.apply()
