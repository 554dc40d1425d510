"""One run in several processes, ``-p tests.workers --processes N``: forked when all is collected.

Imports and collection take half a minute of a processor, here once and not once in each process.
A file's tests run in one process, so that what they share is made once; files are taken in the
order in which they are collected, by whichever process is free.
"""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests import forking
from tests.samples import WORKER


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="Processes that share the files.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork the processes, and report what they report."""
    config: Any = session.config
    if not config.option.processes or config.option.collectonly or session.testsfailed:
        return None
    files: dict[Path, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    tasks, given = os.pipe()
    os.write(given, b"".join(number.to_bytes(2, "big") for number in range(len(groups))))
    os.close(given)
    base = config._tmp_path_factory.getbasetemp()
    config.pluginmanager.getplugin("terminalreporter").showfspath = False
    forking.import_all()  # once, and not in the server of every process
    gc.freeze()
    workers: dict[Connection, int] = {}
    for number in range(min(config.option.processes, len(groups))):
        reader, writer = Pipe(duplex=False)
        workers[reader] = os.fork()
        if not workers[reader]:
            _work(session, _taken(groups, tasks), writer.send, base / f"gw{number}")
        writer.close()
    codes = []
    try:
        _report(session, workers)
    finally:
        for child in workers.values():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
            codes.append(os.waitpid(child, 0)[1])
    if any(codes):
        raise session.Failed("a process that ran tests has died")
    return True


def _report(session: pytest.Session, workers: dict[Connection, int]) -> None:
    """Hand on what happens in the processes until each of them has ended."""
    hook, at = session.config.hook, dict.fromkeys(workers, ("", ("", None, "")))
    open_ones = set(workers)
    while open_ones:
        for reader in wait(open_ones):
            assert isinstance(reader, Connection)
            try:
                what, data = reader.recv()
            except EOFError:
                open_ones.remove(reader)
                if at[reader][0]:
                    _crash(session, *at[reader])
                continue
            if what == "start":
                at[reader] = data
                if data[0]:
                    hook.pytest_runtest_logstart(nodeid=data[0], location=data[1])
            else:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def _crash(session: pytest.Session, nodeid: str, location: Any) -> None:
    said = f"the process that ran {nodeid} has died; whatever it had not begun may be missing"
    report = pytest.TestReport(nodeid, location, {}, "failed", said, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _taken(groups: list[list[pytest.Item]], tasks: int) -> Iterator[pytest.Item]:
    """Take files as long as there are some."""
    while number := os.read(tasks, 2):
        yield from groups[int.from_bytes(number, "big")]


class _Sender:
    """Says in a process what happens, in place of the terminal's reporter."""

    def __init__(self, config: pytest.Config, send: Callable[[tuple[str, Any]], None]) -> None:
        self._config, self._send = config, send

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send(("report", data))


def _work(
    session: pytest.Session,
    items: Iterator[pytest.Item],
    send: Callable[[tuple[str, Any]], None],
    folder: Path,
) -> NoReturn:
    """Run tests until nobody has any more, and end."""
    code = 1
    try:
        config: Any = session.config
        os.environ[WORKER] = folder.name
        folder.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = folder
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # whose files are the parent's too
        capture.start_global_capturing()
        capture.suspend_global_capture()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(_Sender(config, send))
        item = next(items, None)
        while item is not None:
            following = next(items, None)  # what they share is kept between the two
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following if not (session.shouldfail or session.shouldstop) else None
        send(("start", ("", ("", None, ""))))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
