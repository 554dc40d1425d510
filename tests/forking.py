"""Python processes that start at once: a server that has imported everything forks them.

A process spends seconds on importing torch before it does what a test looks at, and the tests start
hundreds. The server itself is forked from the process that runs the tests, before the first of
them, since that one has imported the same. From there on, what is forked is a process like any
other: it has its own streams, environment, folder and group, is a child of whoever asked for it,
and ends as processes end. Tests whose subject is the start (what is imported, how streams are
encoded, deaths on the way) start processes in the usual way; so do all tests where the system is
not Linux, since elsewhere nobody can give a child away.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from _pytest.assertion.rewrite import AssertionRewritingHook as ImportHook

from tests import registered

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_ROOM = 1 << 18


class _Server:
    """The process that forks, as this one sees it: this one adopts what it orphans."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = os.fork()
            if not self._process:
                _ended(lambda: _live(there))

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        """The id of a new process, see :func:`_become`."""
        data = json.dumps(order).encode()
        assert len(data) < _ROOM
        with self._lock, _adopting():
            socket.send_fds(self._socket, [data], streams)
            answer = self._socket.recv(64)
        assert answer, "the server of processes has died"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._process, 0)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


_servers: dict[int, _Server] = {}


def start() -> None:
    """Fork the server of this process; what is imported and set now is so in all that it forks."""
    if sys.platform == "linux":
        _servers[os.getpid()] = _Server()


def close() -> None:
    """End the server, if there is one."""
    if os.getpid() in _servers:
        _servers.pop(os.getpid()).close()


class _Forked(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen([sys.executable, "-m" or "-c", ...])``, forked."""

    def _execute_child(self, *given: Any) -> None:
        options = inspect.signature(super()._execute_child).bind(*given).arguments
        command = [one for one in map(os.fsdecode, options["args"]) if one != "-P"]
        environment = dict(os.environ if options["env"] is None else options["env"])
        assert command[0] == sys.executable, "only Python is forked"
        assert command[1] in ("-m", "-c")
        ends = options["p2cread"], options["c2pwrite"], options["errwrite"]
        order = {
            "how": command[1], "arguments": command[2:], "environment": environment,
            "folder": os.fsdecode(options["cwd"] or os.getcwd()),
            "group": options.get("process_group", -1) == 0, "parent": os.getpid(),
        }  # fmt: skip
        streams = [number if end == -1 else end for number, end in enumerate(ends)]
        server = _servers.get(os.getpid())
        self.pid = server.fork(order, streams) if server else _split(order, streams)
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(options[name] for name in names))


Popen = _Forked if sys.platform == "linux" else subprocess.Popen


def run(command: list[Any], *, input: Any = None, **options: Any) -> Any:
    """``subprocess.run(..., capture_output=True)``, forked."""
    pipes = {"stdin": subprocess.PIPE} if input is not None else {}
    pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **pipes, **options) as process:
        out, err = process.communicate(input)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


# ------------------------------------------------------------------ the other side


def _serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork whatever is asked for; gives the order in such a process, and None in the end."""
    while True:
        data, streams, *_ = socket.recv_fds(asked, _ROOM, 3)
        if not data:
            return None
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            order: dict[str, Any] = json.loads(data)
            _take(order, streams)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            while os.getppid() != order["parent"]:  # until it is adopted
                time.sleep(0.0002)
            asked.send(str(os.getpid()).encode())
            asked.close()
            return order
        for stream in streams:
            os.close(stream)
        os.waitpid(between, 0)


def _take(order: dict[str, Any], streams: list[int]) -> None:
    """The standard streams and the process group."""
    for number, stream in enumerate(streams):
        if stream != number:
            os.dup2(stream, number)
    for stream in streams:
        if stream > 2:
            os.close(stream)
    if order["group"]:
        os.setpgid(0, 0)


def _split(order: dict[str, Any], streams: list[int]) -> int:
    """A forked process starts one itself, which is its own child by birth."""
    child = os.fork()
    if not child:
        _ended(lambda: _split_off(order, streams))
    return child


def _split_off(order: dict[str, Any], streams: list[int]) -> None:
    _take(order, streams)
    os.closerange(3, 1024)
    _become(order)


def _ended(work: Callable[[], None]) -> NoReturn:
    """Do it and end as Python would, but for what the process that was forked has in store."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(order: dict[str, Any]) -> None:
    """Do what Python does with a command line."""
    os.chdir(order["folder"])
    environment = order["environment"]
    os.environ.clear()
    os.environ.update(environment)
    _open_streams(environment.get("PYTHONIOENCODING", "utf-8"))
    paths = list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
    what, *arguments = order["arguments"]
    if order["how"] == "-m":
        sys.argv[1:] = arguments
        if not hasattr(sys.modules.get(what), "__path__"):
            sys.modules.pop(what, None)  # runpy warns of what is there already
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = ["-c", *arguments]
        exec(what, {"__name__": "__main__"})


def _open_streams(encoding: str) -> None:
    encoding, _, errors = encoding.partition(":")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        buffered = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            buffered,
            encoding=encoding,
            errors="backslashreplace" if name == "stderr" else errors or "strict",
            line_buffering=name == "stderr",
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def import_all() -> None:
    """Import what most processes need."""
    import attnviz

    for module in pkgutil.walk_packages(attnviz.__path__, "attnviz."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("scipy.optimize", "scipy.special", "safetensors.torch", "tokenizers"):
        importlib.import_module(name)


def _prepare() -> None:
    import_all()
    from attnviz.corpus import executors

    registered.forget()
    executors.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
    gc.freeze()


def _live(asked: socket.socket) -> None:
    """The life of a server, and of whatever it forks."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = os.dup2(asked.fileno(), 3)
    asked.detach()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.closerange(4, 1 << 16)
    # pytest's own way of importing has no code to run a module with
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, ImportHook)]
    _prepare()
    order = _serve(socket.socket(fileno=own))
    if order is not None:
        _become(order)
