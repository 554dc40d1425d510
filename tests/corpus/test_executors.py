"""Tasks in one process and in several: order, deaths, errors, the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from attnviz.core.threads import ASKED
from attnviz.corpus.executors import Inline, Processes, WorkerFailure
from attnviz.corpus.running import answered
from attnviz.errors import AttnvizError, InputError
from tests.corpus import tasks


def test_answers_come_in_the_order_of_the_tasks() -> None:
    expected = [(n, n * n + 2) for n in range(50)]
    with Inline(tasks.squares(2)) as inline:
        assert list(inline.run(range(50))) == expected
    with Processes(partial(tasks.squares, 2), 3) as several:
        assert list(several.run(range(50))) == expected
        assert list(several.run([])) == []
        assert list(several.run([4])) == [(4, 18)]
        assert not several.restarted


def test_tasks_are_taken_as_they_are_needed() -> None:
    taken = 0

    def stream() -> Iterator[int]:
        nonlocal taken
        for n in range(10_000):
            taken += 1
            yield n

    with Processes(tasks.squares, 2) as several:
        answers = several.run(stream())
        for _ in range(20):
            next(answers)
        assert taken <= 30


@pytest.mark.usefixtures("started")
def test_a_process_that_dies_is_replaced_and_a_deadly_task_reported(tmp_path: Path) -> None:
    with Processes(partial(tasks.hostile, str(tmp_path)), 2) as several:
        answers = dict(several.run([*range(7), 9, 10, 11]))
        assert several.restarted
    lost = answers.pop(5)
    assert answers == {n: n for n in (0, 1, 2, 3, 4, 6, 9, 10, 11)}
    assert isinstance(lost, WorkerFailure)
    assert "2 processes crashed on it, the last by SIGKILL" in lost.reason


def test_where_no_answer_may_be_missing_a_deadly_task_is_an_error(tmp_path: Path) -> None:
    says = "a number cannot be run: 2 processes crashed on it"
    with Processes(partial(tasks.hostile, str(tmp_path)), 2) as several:
        assert list(answered(several, [4, 6], "a number")) == [(4, 4), (6, 6)]
        with pytest.raises(AttnvizError, match=says):
            list(answered(several, [5], "a number"))


def collect(answers: Iterator[tuple[int, object]], done: list[int]) -> None:
    for task, _ in answers:
        done.append(task)


@pytest.mark.parametrize(
    ("task", "kind", "says"),
    [(7, InputError, "^seven is not liked$"), (8, RuntimeError, "LookupError: eight")],
)
def test_the_first_error_of_a_task_is_raised_in_its_place(
    tmp_path: Path, task: int, kind: type[Exception], says: str
) -> None:
    done: list[int] = []
    with Processes(partial(tasks.hostile, str(tmp_path)), 2) as several:
        with pytest.raises(kind, match=says):
            collect(several.run([9, 1, task, 2]), done)
        assert done == [9, 1]
        assert list(several.run([4])) == [(4, 4)]


def test_an_error_of_the_tasks_waits_for_those_before_it() -> None:
    def stream() -> Iterator[int]:
        yield from range(4)
        raise InputError("no more")

    done: list[int] = []
    with Processes(tasks.squares, 2) as several, pytest.raises(InputError, match="no more"):
        collect(several.run(stream()), done)
    assert done == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("set_up", "kind", "says"),
    [
        (tasks.never, AttnvizError, "2 worker processes died before .* with exit code 3"),
        (tasks.refused, InputError, "nothing to load"),
        (lambda: None, Exception, "pickle"),
    ],
)
def test_a_set_up_that_fails(set_up, kind: type[Exception], says: str) -> None:
    before = children()  # a browser that other tests use may be among them
    with pytest.raises(kind, match=says), Processes(set_up, 2) as several:
        list(several.run([1]))
    assert not children() - before


@pytest.mark.usefixtures("started")
def test_a_process_that_cannot_be_started(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", None)  # as in a program with Python inside
    with pytest.raises(AttnvizError, match="cannot start a worker process"):
        Processes(tasks.squares, 2)


def test_one_thread_and_the_same_bits_everywhere() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with Inline(tasks.threads()) as inline:
            here = list(inline.run(range(6)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    with Processes(tasks.threads, 1) as several:
        assert list(several.run(range(6))) == here
    assert {answer[0] for _, answer in here} == {1}


@pytest.mark.usefixtures("started")
def test_workers_load_what_they_need_and_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ASKED:
        monkeypatch.delenv(variable, raising=False)
    with Processes(tasks.there, 1) as several:
        found = dict(several.run(["torch", "numpy", "tests.corpus.tasks", *ASKED]))
    assert found == {
        "torch": None, "numpy": None, "tests.corpus.tasks": "loaded", **dict.fromkeys(ASKED, "1")
    }  # fmt: skip


def test_what_is_not_waited_for_is_dropped() -> None:
    before, start = children(), time.monotonic()
    with Processes(tasks.process, 1) as several:
        answers = several.run([0.0] + [0.5] * 9)
        next(answers)
    assert time.monotonic() - start < 3
    assert not children() - before


def children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return {pid for pid in found if running(pid)}


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_workers_die_with_their_parent() -> None:
    code = (
        "import time\n"
        "from attnviz.corpus.executors import Processes\n"
        "from tests.corpus.tasks import process\n"
        "with Processes(process, 2) as several:\n"
        "    print(*(pid for _, pid in several.run([0.2] * 2)), flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(set(workers)) == 2
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # it cannot end by itself
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while any(running(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    left = [worker for worker in workers if running(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert not left


def test_a_closed_standard_error_is_no_trouble() -> None:
    code = (
        "from attnviz.corpus.executors import Processes\n"
        "from tests.corpus.tasks import squares\n"
        "with Processes(squares, 2) as several: print(dict(several.run([2, 3])))\n"
    )
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "{2: 4, 3: 9}\n"


def test_ctrl_c_twice_ends_at_once_and_leaves_nobody() -> None:
    code = (
        "from attnviz.corpus.executors import Processes\n"
        "from tests.corpus.tasks import process\n"
        "with Processes(process, 2) as several:\n"
        "    for _, pid in several.run([0.0, 0.0, 60.0, 60.0]): print(pid, flush=True)\n"
    )
    reset = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", reset + code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers = {int(parent.stdout.readline()) for _ in range(2)}
    time.sleep(0.3)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.3)
    parent.send_signal(signal.SIGINT)
    said = parent.communicate(timeout=20)[1]
    assert "KeyboardInterrupt" in said
    assert not [worker for worker in workers if running(worker)]
