"""How many threads compute: one where a sum's last bit must be the same on every machine.

Elsewhere never more than the processors that a container lets this process have: of a quota of one
processor, 64 threads would wait for each other.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

    from threadpoolctl import ThreadpoolController

    from attnviz.core.arrays import Array

ASIDE = 4
"""Passes of one thread that run side by side at most."""

WORKER = "ATTNVIZ_WORKER"
"""Tells a worker process which it is, from 0: of several GPUs each takes the next."""

T = TypeVar("T")
V = TypeVar("V")

_ASKED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
ASKED = (*_ASKED, "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""What tells libraries how many threads to have."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def group_files(
    controller: str, names: tuple[str, str], groups: Path = _GROUPS, membership: Path = _OWN
) -> Iterator[Path]:
    """Where the limits of the control groups stand that this process is in; containers set them.

    ``names``: of the file in groups of version 2 and of version 1.
    """
    try:
        lines = membership.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") > 1 else ("", "none", "")
        if controllers == "":
            top, name = groups, names[0]
        elif controller in controllers.split(","):
            top, name = groups / controller, names[1]
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == top or top in folder.parents:
                yield folder / name


@cache
def quota(groups: Path = _GROUPS, membership: Path = _OWN) -> int | None:
    """Processors that this process may have all the time, at least 1; None for no limit."""
    limits: list[float] = []
    for file in group_files("cpu", ("cpu.max", "cpu.cfs_quota_us"), groups, membership):
        with suppress(OSError, ValueError):
            time = file.read_text("ascii").split()
            if file.name == "cpu.cfs_quota_us":
                time += (file.parent / "cpu.cfs_period_us").read_text("ascii").split()
            allowance, period = map(int, time)
            limits += [allowance / period] if allowance > 0 and period > 0 else []
    return max(1, int(min(limits))) if limits else None


def cores() -> int:
    """Return the processors this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, quota() or available or 1)


class _Limit:
    """One torch thread from when torch is there; ``before`` is how many there were then."""

    def __init__(self) -> None:
        self.before: int | None = None
        self._lock = Lock()  # passes side by side share it

    def apply(self) -> None:
        torch = sys.modules.get("torch")
        with self._lock:
            if torch is not None and self.before is None:
                self.before = torch.get_num_threads()
                torch.set_num_threads(1)


_LIMIT: ContextVar[_Limit | None] = ContextVar("attnviz_threads", default=None)


@contextmanager
def holding(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Let a variable of this thread or task have a value inside the ``with`` block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside the ``with`` block, and as many as before afterwards.

    torch may be imported inside; who does that for a pass calls :func:`limit_threads`. NumPy's own
    passes always have one.
    """
    limit = _Limit()
    limit.apply()
    try:
        with holding(_LIMIT, limit):
            yield
    finally:
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


def side_by_side(do: Callable[[T], V], items: Sequence[T], count: int) -> Iterator[V]:
    """Do something with each of some items, ``count`` at once, and give the results in order.

    Several have one thread each for their products; who runs one alone says how many it has.
    """
    if min(count, len(items)) < 2:
        yield from map(do, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # not where a program starts

    waiting: deque[Future[V]] = deque()
    with one_blas_thread():
        pool = ThreadPoolExecutor(count)
        try:
            for item in items:
                waiting.append(pool.submit(copy_context().run, do, item))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_passes(
    do: Callable[[T], V], items: Sequence[T], concurrent: int, largest: int, tokens: int
) -> Generator[V, None, None]:
    """Do something with each of some items by passes of a model, and give the results in order.

    ``concurrent``: how many of its passes may run at once, of one thread each where several do;
    ``largest``: tokens of the largest pass; ``tokens``: of all that run at once. Who stops before
    the last result closes the iterator.
    """
    count = min(concurrent, at_once(), len(items), tokens // max(largest, 1))
    with one_thread() if count > 1 else nullcontext():
        yield from side_by_side(do, items, count)


def limited() -> bool:
    """Whether a block of :func:`one_thread` stands."""
    return _LIMIT.get() is not None


def at_once() -> int:
    """How many passes of one thread may run at once: one a processor or as asked, or ASIDE."""
    limits = [int(number) for name in ASKED if (number := os.environ.get(name, "")).isdigit()]
    return max(1, min([ASIDE, cores(), *limits]))


def threads() -> tuple[object, ...]:
    """Return what says how many threads a pass has: it may decide the last bit of a sum."""
    if _LIMIT.get() is not None:
        return (1,)
    torch = sys.modules.get("torch")
    if torch is not None:
        return (torch.get_num_threads(),)
    return (cores(), *(os.environ.get(name) for name in _ASKED))


def limit_threads() -> None:
    """Keep to one thread where a block of :func:`one_thread` stands, else to a quota."""
    limit, torch = _LIMIT.get(), sys.modules.get("torch")
    if limit is not None:
        limit.apply()
    elif torch is not None:
        _keep_to_quota()


@cache
def _keep_to_quota() -> None:
    """Leave torch the threads of a quota, once and unless somebody says how many.

    Who asks for more afterwards has them.
    """
    torch = sys.modules["torch"]
    if quota() is not None and not any(map(os.environ.get, ASKED)):
        torch.set_num_threads(min(cores(), torch.get_num_threads()))
