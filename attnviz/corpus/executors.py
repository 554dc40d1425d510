"""Tasks done by this process or by several, with the answers in the order of the tasks.

``concurrent.futures`` has processes too, but one that is killed breaks its whole pool and nobody
knows which task did it, a script without ``if __name__ == "__main__"`` cannot use it, and a parent
that is killed leaves its workers behind. So its threads and futures are used here, and each thread
feeds a process of our own.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from attnviz.core.threads import ASKED, WORKER, one_thread
from attnviz.corpus import worker
from attnviz.errors import AttnvizError
from attnviz.scoring import plugins

ATTEMPTS = 2
"""Processes that may die over one task."""
_ONE_THREAD = dict.fromkeys(ASKED, "1") | {"TOKENIZERS_PARALLELISM": "false"}
"""The last bit of a sum depends on the number of threads, so that is the same everywhere."""
_OWN_GROUP: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
"""Ctrl-C is for the parent alone; it ends the workers in order."""
_DIED = (EOFError, OSError, pickle.UnpicklingError)

Task = TypeVar("Task")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """In place of an answer: every process that tried the task died; ``reason`` says how."""

    reason: str


@dataclass(frozen=True, slots=True)
class PortableSetUp:
    """A set-up for another process, which first imports what users have registered in this one."""

    imports: tuple[tuple[str, str], ...]  # see :func:`attnviz.scoring.plugins.modules`.
    set_up: bytes  # pickled, since it may hold functions of these modules

    @classmethod
    def of(cls, set_up: Callable[[], object]) -> PortableSetUp:
        """UsageError where something was registered that the other process cannot import."""
        return cls(plugins.modules(), pickle.dumps(set_up, protocol=5))

    def __call__(self) -> Any:
        """Return what the set-up gives."""
        plugins.restore(self.imports)
        return pickle.loads(self.set_up)()


class Inline(Generic[Task, Answer]):
    """This process does the tasks itself, with one thread."""

    restarted = False

    def __init__(self, do: Callable[[Task], Answer]) -> None:
        self._do = do

    def __enter__(self) -> Inline[Task, Answer]:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing waits here."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer; raises what a task raises."""
        for task in tasks:
            with one_thread():
                answer = self._do(task)
            yield task, answer


class Processes(Generic[Task, Answer]):
    """Several worker processes do the tasks, each with one thread; use in a ``with`` block.

    A process that dies is replaced and its task repeated.

    Attributes:
        restarted: whether a process had to be replaced.
    """

    def __init__(self, set_up: Callable[[], Callable[[Task], Answer]], count: int) -> None:
        self._most = 2 * count + 1
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        try:
            ready = PortableSetUp.of(set_up)
            for number in range(count):
                self._workers.append(_Worker(ready, number))
                self._idle.put(self._workers[-1])
        except BaseException:
            self._end()
            raise
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Processes[Task, Answer]:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        """Wait for the tasks in work; those that nobody waits for any more are dropped."""
        try:
            self._threads.shutdown(cancel_futures=True)
        except BaseException:  # a second Ctrl-C: not even for those
            for worker in self._workers:
                worker.kill()
            raise
        finally:
            self._threads.shutdown()
            self._end()

    @property
    def restarted(self) -> bool:
        """Whether a process had to be replaced, maybe in the middle of a file."""
        return any(each.starts > 1 for each in self._workers)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer, in order; a few tasks are taken ahead."""
        waiting: deque[tuple[Task, Future[Answer | WorkerFailure]]] = deque()
        failure: list[BaseException] = []
        for task in _until_failure(tasks, failure):
            waiting.append((task, self._threads.submit(self._ask, task)))
            while len(waiting) > self._most or (waiting and waiting[0][1].done()):
                oldest, future = waiting.popleft()
                yield oldest, future.result()
        for oldest, future in waiting:
            yield oldest, future.result()
        if failure:
            raise failure[0]

    def _ask(self, task: Task) -> Answer | WorkerFailure:
        """Have a task done by whoever is idle; there are as many threads as workers."""
        idle = self._idle.get()
        try:
            return idle.ask(task)
        finally:
            self._idle.put(idle)

    def _end(self) -> None:
        for each in self._workers:
            each.stop()


def _until_failure(tasks: Iterable[Task], failure: list[BaseException]) -> Iterator[Task]:
    try:
        yield from tasks
    except (Exception, KeyboardInterrupt) as error:
        failure.append(error)


class _Worker:
    """One process, started at once and again whenever it died.

    Attributes:
        starts: how often it was started.
    """

    def __init__(self, set_up: Callable[[], object], number: int = 0) -> None:
        self._set_up, self._number = pickle.dumps(set_up, protocol=5), number
        self._killed = False
        self.starts = 0
        self._start()

    def ask(self, task: object) -> Any:
        """Return the answer to a task, or :class:`WorkerFailure`."""
        cause = ""
        for _ in range(ATTEMPTS):
            self._wait_until_ready()
            with contextlib.suppress(*_DIED):
                self._send(pickle.dumps(task, protocol=5))
                return self._receive()
            if self._killed:
                return WorkerFailure("given up")
            cause = self._replace()
        return WorkerFailure(f"{ATTEMPTS} processes crashed on it, the last {cause}")

    def kill(self) -> None:
        """End the process, whatever it does; it is not replaced."""
        self._killed = True
        self._process.kill()

    def stop(self) -> None:
        """End the process; one that is still being set up has nothing to finish."""
        if not self._ready:
            self._process.kill()
        self._wait()

    def _wait(self) -> None:
        """Wait until the process has ended, which it does where there are no more tasks."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        """Start the process and tell it what to set up."""
        self.starts += 1
        path = os.pathsep.join(entry or os.getcwd() for entry in map(str, sys.path))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", worker.__name__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path, WORKER: str(self._number)},
                **_OWN_GROUP,
            )
        except (OSError, TypeError) as error:  # a Python inside of a program has no executable
            reason = getattr(error, "strerror", None) or error
            raise AttnvizError(
                "cannot start a worker process: {}", reason, remedy="use {jobs}", jobs=1
            ) from None
        self._ready = False
        with contextlib.suppress(OSError):  # it died already; asking it finds out
            self._send(self._set_up)

    def _wait_until_ready(self) -> None:
        """Have the set-up answered; a process that dies over it is tried again."""
        cause = ""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(*_DIED):
                if not self._ready:
                    self._receive()
                self._ready = True
                return
            if self._killed:
                return
            cause = self._replace()
        raise AttnvizError(
            "{} worker processes died before they had done anything, the last {}",
            ATTEMPTS,
            cause,
            remedy="it may have run out of memory; use fewer {jobs}",
            jobs=...,
        )

    def _replace(self) -> str:
        """Start another process; says how the one before ended."""
        self._wait()
        code = self._process.returncode
        self._start()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _receive(self) -> Any:
        """Return an answer; raises the error that came in its place."""
        assert self._process.stdout is not None
        went_well, answer = pickle.load(self._process.stdout)
        if not went_well:
            raise answer
        return answer


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
                handler = signal.getsignal(number)
                if handler in _USUAL:
                    self._before[number] = handler
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
        for number, handler in self._before.items():
            signal.signal(number, handler)
