"""A worker process: takes tasks on its standard input, answers on its standard output.

It ends when its input does, and on Linux the moment its parent dies, so that a run that was killed
leaves nobody behind who still works. :class:`attnviz.corpus.executors.Processes` starts it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from attnviz.errors import AttnvizError

_PR_SET_PDEATHSIG = 1


def main(parent: int) -> None:
    """Do tasks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    _open_stderr()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not reach the parent
    serve(sys.stdin.buffer, answers)


def serve(tasks: BinaryIO, answers: BinaryIO) -> None:
    """Read the set-up, answer it, then answer every task."""
    do: Callable[[Any], Any] = _set_up
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        try:
            answer = do(task)
            data = pickle.dumps((True, None if do is _set_up else answer), protocol=5)
            do = answer if do is _set_up else do
        except AttnvizError as error:
            data = pickle.dumps((False, error), protocol=5)
        except Exception:
            data = pickle.dumps((False, RuntimeError(traceback.format_exc())), protocol=5)
        try:
            answers.write(data)
            answers.flush()
        except BrokenPipeError:
            return


def _set_up(give: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return give()


def _open_stderr() -> None:
    """Something to write errors to, where the parent's is closed."""
    try:
        os.fstat(2)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process with its parent, where it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
