"""The suite's own tools: one thread everywhere, processes that fork, lines that are broken."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import ROOT, forking, mutation


def python(code: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    return forking.run([sys.executable, "-c", code, *arguments], text=True, **options)


def test_one_thread_here_and_below() -> None:
    assert torch.get_num_threads() == 1
    assert python("import torch; print(torch.get_num_threads())").stdout == "1\n"


def test_a_process_has_what_it_was_given(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(sys.stdin.read(), sys.argv[1:], os.getcwd(), os.environ['SAID'],"
        " os.getppid(), sys.stdout.encoding, file=sys.stdout); print('told', file=sys.stderr)"
    )
    environment = {**os.environ, "SAID": "é\udcff", "PYTHONIOENCODING": "ascii:replace"}
    done = forking.run(
        [sys.executable, "-c", code, "a", "b"],
        env=environment, cwd=tmp_path, input="hello", encoding="ascii",
    )  # fmt: skip
    assert done.stderr == "told\n"
    said = f"hello ['a', 'b'] {tmp_path} ?? {os.getpid()} ascii\n"
    assert done.stdout == said


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0), ("raise SystemExit(7)", 7), ("raise SystemExit('no')", 1), ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        (
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); signal.raise_signal(2)",
            -signal.SIGINT,
        ),
    ],
)  # fmt: skip
def test_a_process_ends_as_processes_do(code: str, ends: int) -> None:
    forked = python(code)
    started = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert forked.returncode == started.returncode == ends
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_a_group_of_its_own() -> None:
    child = forking.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
    assert os.getpgid(child.pid) == child.pid
    child.kill()
    assert child.wait() == -signal.SIGKILL


def test_processes_share_files_and_a_death_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_right(): pass\ndef test_wrong(): assert 0\n")
    (tmp_path / "test_b.py").write_text("import os\ndef test_dies(): os._exit(3)\n")
    options = ["-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "tests.workers", "--processes", "2"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "test_a.py::test_wrong" in done.stdout
    assert "the process that ran test_b.py::test_dies has died" in done.stdout
    assert "2 failed, 1 passed" in done.stdout


SOURCE = """
def f(a: int = 3, *rest: int) -> int | None:
    if a < 2 and rest:
        return a + 1
    for one, other in zip(rest, rest, strict=True):
        assert one == other
    return None
"""


def test_every_mutation_changes_the_program_and_nothing_idle() -> None:
    tree = ast.parse(SOURCE)
    found = [(node.lineno, kind) for node, kind in mutation.mutations(tree)]
    assert sorted(found) == [
        (2, "constant"), (3, "comparison"), (3, "condition"), (3, "constant"), (3, "operator"),
        (4, "constant"), (4, "operator"), (4, "return"), (6, "comparison"), (6, "condition"),
        (7, "return"),
    ]  # fmt: skip
    whole = ast.unparse(tree)
    for line in {line for line, _ in found}:
        for which in range(sum(line == one for one, _ in found)):
            changed, what = mutation.broken(SOURCE, line, which)
            assert (changed == whole) == (what == "return: return None  →  return None")


@pytest.mark.slow
def test_lines_are_chosen_by_a_seed_in_every_room() -> None:
    assert mutation.chosen(5, 1) == mutation.chosen(5, 1) != mutation.chosen(5, 2)
    every = mutation.chosen(10**6, 0)
    assert {room for room in mutation.ROOMS for path, *_ in every if path.is_relative_to(room)} == (
        set(mutation.ROOMS)
    )
    assert all(mutation.tests_of(path, ROOT) for path, *_ in every)
