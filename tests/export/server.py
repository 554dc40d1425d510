"""Runs attnviz commands in forked processes, so that tests can kill many and import once.

One JSON object a line on standard input: ``arguments``, ``log`` (a file for what it prints) and
limits (``fsize``, ``nofile``). Answers with the process id, with ``ended`` once it has, and after
another line with its exit code (negative: the signal).
"""

import contextlib
import json
import os
import resource
import signal
import sys
import traceback


def child(order: dict) -> None:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "fsize" in order:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["fsize"], order["fsize"]))
    if "nofile" in order:
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        limit = used + order["nofile"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    from attnviz.cli import main

    code = main(order["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    import torch

    torch.set_num_threads(1)
    from attnviz.render import glyphs, mosaic, raster  # noqa: F401
    from attnviz.render.fonts import choose

    choose(["warm"])
    glyphs.label("warm", 9.0, 60.0)
    from attnviz.cli import main

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        main(["export", "--help"])
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        print(pid, flush=True)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its number stays taken until asked for
        print("ended", flush=True)
        sys.stdin.readline()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
