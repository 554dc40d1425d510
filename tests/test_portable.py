"""What Windows has otherwise, simulated: code pages, backslashes, no links, no fork, no POSIX."""

from __future__ import annotations

import io
import json
import ntpath
import os
import subprocess
import sys
import types
from pathlib import Path, PureWindowsPath

import pytest

from attnviz import __main__ as program
from attnviz import files
from attnviz.cli import main
from attnviz.core import provenance
from attnviz.features.export import paths
from attnviz.models import limits
from tests.cli.calling import refused

TEXT = "the cat and the cat"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["heads", TEXT], ["heatmap", TEXT, "--select", "1.4"], ["logits", "a → 鍵 é"],
        ["shapes", "--d-model", "64", "--heads", "4", "--explain"], ["help", "which heads matter"],
        ["heads", TEXT, "--select", "9.9"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_console_of_one_code_page(arguments: list[str], monkeypatch) -> None:
    """Whatever it cannot hold is a question mark, and never a traceback."""
    shown, told = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "cp1252"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(told, "cp1252", "backslashreplace"))
    program._open_streams()
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    assert code == (2 if "9.9" in arguments else 0), told.getvalue()
    assert b"Traceback" not in told.getvalue()
    assert (told if code else shown).getvalue().decode("cp1252").strip()


def test_a_page_is_written_in_utf8_whatever_the_code_page(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "cp1252"))
    page = tmp_path / "page.html"
    assert main(["heatmap", "a 鍵 é", "--select", "1.4", "-o", str(page.with_suffix(".svg"))]) == 0
    assert main(["view", "a 鍵 é", "-o", str(page), "-q"]) == 0
    text = page.read_text("utf-8")
    assert "鍵" in text or "\\u9375" in text


def test_a_models_path_with_backslashes_is_called_by_its_last_parts(monkeypatch) -> None:
    path = types.SimpleNamespace(
        **{name: getattr(ntpath, name) for name in ("isabs", "isdir", "abspath", "expanduser")}
    )
    monkeypatch.setattr(provenance.os, "path", path)
    monkeypatch.setattr(provenance, "PurePath", PureWindowsPath)
    monkeypatch.setenv("USERPROFILE", r"C:\Users\somebody")
    assert provenance.called(r"C:\Users\somebody\bert-of-mine") == "bert-of-mine"
    assert provenance.called(r"D:\runs\mine\checkpoint-500") == "mine/checkpoint-500"
    snapshot = r"D:\hub\models--openai--gpt2\snapshots\0123456789012345678901234567890123456789"
    assert provenance.called(snapshot) == "openai/gpt2"


def test_a_path_with_backslashes_is_no_name_of_a_hub(capsys) -> None:
    said = refused(capsys, "heads", TEXT, "--model", r"models\bert")
    assert said.startswith("attnviz: no folder 'models")


def test_files_without_links(tmp_path: Path, monkeypatch) -> None:
    """Windows makes links only for who has the right to."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    for name in ("symlink", "link"):
        monkeypatch.setattr(os, name, refused)
    monkeypatch.setattr(files, "_BY_HANDLE", False)
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("the cat\nthe dog\n", "utf-8")
    assert main(["view", TEXT, "-o", "page.html", "-q"]) == 0
    assert main(["capture", TEXT, "-o", "cat.npz", "-q"]) == 0
    assert main(["heads", "--recorded", "cat.npz", "-q"]) == 0
    assert main(["export", "a.txt", "-o", "maps", "--select", "1.4", "-q"]) == 0
    assert len(list(Path("maps").rglob("*.png"))) == 2
    manifest = (Path("maps") / "manifest.jsonl").read_text("utf-8")
    assert "\\\\" not in manifest


def test_the_lock_of_windows(tmp_path: Path, monkeypatch) -> None:
    """``msvcrt`` stands in for ``fcntl``, and is asked for one byte without waiting."""
    asked: list[tuple[int, int]] = []
    windows = types.ModuleType("msvcrt")
    windows.LK_NBLCK = 2  # type: ignore[attr-defined]
    windows.locking = lambda file, mode, size: asked.append((mode, size))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setattr(paths.sys, "platform", "win32")
    held = paths.Lock(tmp_path / "lock", tmp_path)
    held.release()
    assert asked == [(2, 1)]


def test_memory_of_a_machine_that_does_not_tell(monkeypatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(limits, "group_limits", lambda: iter(()))
    assert limits.physical_memory() == 16 << 30


WITHOUT_POSIX = """
import os, sys
for name in ("fork", "forkpty", "sched_getaffinity", "sysconf", "getuid", "geteuid", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
from attnviz.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_several_processes_without_fork(tmp_path: Path) -> None:
    """They are started and not forked, and give the same to the bit."""
    (tmp_path / "a.txt").write_text("the cat and the cat\nthe dog and the dog\n" * 3, "utf-8")
    profile = ["profile", "a.txt", "--json", "-q"]
    several = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *profile, "--jobs", "2"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (several.returncode, several.stderr) == (0, "")
    one = subprocess.run(
        [sys.executable, "-m", "attnviz", *profile], cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert json.loads(several.stdout)["heads"] == json.loads(one.stdout)["heads"]
