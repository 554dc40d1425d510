"""A rendering process: takes jobs on its standard input, answers on its standard output.

It ends when its input does, and on Linux the moment its parent dies, so that an export that was
killed leaves nobody behind who still writes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from typing import BinaryIO

from attnviz.errors import AttnvizError

BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from attnviz.export.worker import main; main(int(sys.argv[2]))"
)
"""What the parent runs, with its own sys.path and its process id."""
_PR_SET_PDEATHSIG = 1


def main(parent: int) -> None:
    """Serve jobs until the input ends.

    Args:
        parent: the process to die with.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not reach the parent
    from attnviz.export import pictures

    serve(sys.stdin.buffer, answers, pictures)


def serve(jobs: BinaryIO, answers: BinaryIO, pictures: object) -> None:
    """Answer every job with what was written, or with the error."""
    while True:
        try:
            job = pickle.load(jobs)
        except EOFError:
            return
        try:
            answer = pictures.make(job)  # type: ignore[attr-defined]
        except AttnvizError as error:
            answer = error
        except Exception:
            answer = RuntimeError(traceback.format_exc())
        try:
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
        except BrokenPipeError:
            return


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process with its parent, where it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
