"""The ``attnviz`` program, also ``python -m attnviz``."""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Run the command line of this process and exit with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the whole process
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
    sys.exit(code)


if __name__ == "__main__":
    run()
