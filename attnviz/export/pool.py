"""Worker processes fed by a bounded queue, so that pictures never pile up in memory."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from attnviz.errors import OutputError
from attnviz.export.pictures import Job, Written, make
from attnviz.export.worker import BOOT

Done = Callable[[Job, list[Written]], None]
_ATTEMPTS = 3
_POLL = 0.2
_OWN_GROUP: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
"""Ctrl-C is for the parent alone; it ends the workers in order."""


def cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Inline:
    """The pool of one: draws in this process.

    Args:
        done: called with every finished job.
    """

    restarted = False

    def __init__(self, done: Done) -> None:
        self._done = done

    def submit(self, job: Job) -> None:
        """Do a job now; raises OutputError when a file cannot be written."""
        self._done(job, make(job))

    def close(self, *, drop: bool = False) -> None:
        """Nothing waits here."""


class Pool:
    """Several rendering processes.

    Each is fed by a thread of its own. A process that dies is replaced and its job tried again;
    a job that takes three processes down is an error.

    Args:
        jobs: how many processes.
        done: called with every finished job, one at a time, on any thread.

    Attributes:
        restarted: after :meth:`close`, whether a process died, maybe in the middle of a file.
    """

    def __init__(self, jobs: int, done: Done) -> None:
        self._done = done
        self._queue: queue.Queue[Job | None] = queue.Queue(maxsize=jobs)
        self._mutex = threading.Lock()
        self._failure: BaseException | None = None
        self._dropping = False
        self.restarted = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(jobs)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job, waiting while the queue is full; raises what went wrong earlier."""
        while True:
            self._check()
            try:
                return self._queue.put(job, timeout=_POLL)
            except queue.Full:
                continue

    def close(self, *, drop: bool = False) -> None:
        """Wait for the jobs in work and, unless they are dropped, for those in the queue.

        Raises:
            OutputError: a job failed and nobody was told yet.
        """
        self._dropping = self._dropping or drop
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if not drop:
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            failure, self._dropping = self._failure, True
            raise failure

    def _run(self) -> None:
        """Feed one process; whatever fails, the queue is emptied until its end."""
        worker = _Worker()
        while (job := self._queue.get()) is not None:
            if self._dropping or self._failure is not None:
                continue
            try:
                answer = worker.ask(job)
                with self._mutex:
                    self._done(job, answer)
            except BaseException as error:
                self._failure = self._failure or error
        worker.stop()
        self.restarted = self.restarted or worker.starts > 1


class _Worker:
    """One process, started at once and again whenever it died.

    Attributes:
        starts: how often it was started.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble: Exception | None = None
        self.starts = 0
        self._start()

    def ask(self, job: Job) -> list[Written]:
        """Have a job done.

        Raises:
            AttnvizError: a file cannot be written or drawn, or the process dies again and again.
        """
        for _ in range(_ATTEMPTS):
            try:
                answer = self._exchange(job)
            except (EOFError, OSError, pickle.UnpicklingError):  # it died
                self.stop()
                self._start()
                continue
            if isinstance(answer, Exception):
                raise answer
            return list(answer)
        if self._trouble is not None:
            why = getattr(self._trouble, "strerror", None) or self._trouble
            raise OutputError("cannot start a rendering process: {}; use {jobs}", why, jobs=1)
        raise OutputError(
            "{} rendering processes died over {}; was there too little memory? Use fewer {jobs}",
            _ATTEMPTS,
            job.folder,
            jobs=...,
        )

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        self.starts += 1
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, path, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                **_OWN_GROUP,
            )
            self._trouble = None
        except (OSError, TypeError) as error:  # a Python inside of a program has no executable
            self._trouble = error

    def _exchange(self, job: Job) -> Any:
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise EOFError
        pickle.dump(job, self._process.stdin, protocol=5)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)
