"""The ``attnviz`` program, also ``python -m attnviz``."""

from __future__ import annotations

import gc
import io
import os
import sys

from attnviz.core.threads import ASKED, cores, quota

_NEW_OBJECTS = 50_000
"""How many are made before the collector looks for cycles; of Python's 700, nearly all are modules
and classes that stay, and looking through them takes a twentieth of a start."""


def run() -> None:
    """Run the command line of this process and exit with its code."""
    gc.set_threshold(_NEW_OBJECTS)
    # threads that wait for each other sleep: on a busy machine those that spin take the processors
    # that the others need
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if quota() is not None:
        for name in ASKED:
            os.environ.setdefault(name, str(cores()))
    _open_streams()
    try:
        from attnviz.cli import main

        code = main()
    except KeyboardInterrupt:  # while the command line itself is being imported
        sys.stderr.write("attnviz: interrupted\n")
        code = 130
    if code == 130:
        # an interrupt inside an import can leave Python believing that nobody caught it; it would
        # then die by the signal instead of returning the code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # nobody needs memory back from a process that ends
    sys.exit(code)


def _open_streams() -> None:
    """Make the three standard streams usable, whatever state we were started with."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed by who started us; programs we start need it too
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a question mark beats a traceback
        sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    run()
