"""Files: what may be replaced, and what may be read whole."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from attnviz import files
from attnviz.cli import main
from attnviz.corpus import lines
from attnviz.errors import InputError, OutputError
from tests.cli.calling import refused

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and modes are POSIX's")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": listening,
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_neither_replaced_nor_waited_for(tmp_path, kind: str) -> None:
    path = tmp_path / "x.json"
    SPECIAL[kind](path)
    before = path.lstat()
    with pytest.raises(OutputError, match=r"x\.json is not a regular file; name another one$"):
        files.write(path, b"new")
    assert path.lstat().st_ino == before.st_ino
    with pytest.raises(OSError, match=r"not a regular file|No such device"):
        files.contents(path)


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for mode in (0o600, 0o640, 0o664):
        path.write_bytes(b"old")
        path.chmod(mode)
        files.write(path, b"new")
        assert path.read_bytes() == b"new"
        assert path.stat().st_mode & 0o777 == mode
    path.unlink()
    files.write(path, b"new")
    (tmp_path / "y").touch()
    assert path.stat().st_mode == (tmp_path / "y").stat().st_mode


def test_a_link_leads_to_the_new_file(tmp_path: Path) -> None:
    there, link = tmp_path / "folder" / "x.json", tmp_path / "link.json"
    there.parent.mkdir()
    link.symlink_to(Path("folder") / "x.json")
    for content in (b"first", b"second"):  # it leads nowhere first
        files.write(link, content)
        assert link.is_symlink()
        assert there.read_bytes() == content
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "link.json", "x.json"]
    there.unlink()
    there.symlink_to(link)
    with pytest.raises(OutputError, match=r"^cannot write .*link\.json: .*links; choose"):
        files.write(link, b"round in a circle")


def test_a_name_of_several_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    (tmp_path / "other").hardlink_to(path)
    with pytest.raises(OutputError, match=r"x\.json is one of 2 hard links to one file"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"


def test_what_attnviz_names_itself_replaces_a_link(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine", tmp_path / "index.html"
    mine.write_bytes(b"mine")
    link.symlink_to(mine)
    files.place(link, [b"new"])
    assert (mine.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"mine", b"new", False)


def test_commands_refuse_before_they_work(tmp_path: Path, capsys) -> None:
    os.mkfifo(tmp_path / "x.png")
    assert main(["heatmap", "a b", "-o", str(tmp_path / "x.png")]) == 1
    assert "x.png is not a regular file; name another one\n" in capsys.readouterr().err


def test_files_are_read_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1" * (1 << 20))
    assert len(files.contents(path, 1 << 20)) == 1 << 20
    path.write_bytes(b"1" * (1 + (1 << 20)))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        files.contents(path, 1 << 20)
    with pytest.raises(IsADirectoryError):
        files.contents(tmp_path)


def test_a_report_or_model_that_is_a_device_is_one_line(tmp_path: Path, capsys) -> None:
    """Each was read until memory ended."""
    for name in ("x.json", "x.txt"):
        (tmp_path / name).symlink_to("/dev/zero")
    report, text = str(tmp_path / "x.json"), str(tmp_path / "x.txt")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").symlink_to("/dev/zero")
    for line in (
        ["diff", report, report],
        ["heads", "--file", text],
        ["heads", "a b", "--evidence", report],
        ["show", report],
        ["show", text],
        ["profile", text],
        ["heads", "a b", "--model", str(model)],
        ["shapes", "--show", "numbers", "--file", report],
    ):
        error = refused(capsys, *line)
        known = ("not a regular file", "neither a file nor a pipe", "a pipe or a device")
        assert any(words in error for words in known), error


def test_texts_may_come_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"a b\n")
    with lines.open_bytes(str(pipe)) as file:
        assert file.readline() == b"a b\n"
    os.close(writer)
    with pytest.raises(InputError, match="neither a file nor a pipe"):
        next(lines.lines("/dev/zero"))


def test_reports_nested_too_deep_are_one_line(tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" * 100_000)
    assert "it is nested too deeply" in refused(capsys, "diff", str(path), str(path))
    path.write_text(json.dumps({"schema": "1" * 5000}))
    assert main(["diff", str(path), str(path)]) == 1


def test_what_looks_like_a_file_is_told_from_a_text(tmp_path: Path, capsys) -> None:
    there = tmp_path / "a file"
    there.touch()
    assert [files.like_a_file(text) for text in ("nosuch.txt", "x.JSONL", str(there))] == [True] * 3
    assert not any(files.like_a_file(text) for text in ("The end.", "see notes.txt", "e.g.", ""))
    assert main(["heads", "nosuch.txt"]) == 0
    assert "nosuch.txt is taken as the text itself; there is no file of that name" in " ".join(
        capsys.readouterr().err.split()
    )
