"""Results from pipes: those that a shell opens are read, others are not waited for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.corpus import lines

TEXT = "The kettle sang and the candle burned."


@contextmanager
def piped(text: str) -> Iterator[str]:
    """The path that a shell gives for ``<(command)``, of a command that writes a text."""
    reader, writer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writer, "w") as file:
            file.write(text)

    thread = Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
        thread.join()


@pytest.fixture(scope="module")
def written() -> list[str]:
    return [av.heads(text).to_json() for text in (TEXT, f"{TEXT} {TEXT}")]


def test_json_comes_from_a_pipe_of_the_shell(written: list[str], tmp_path, capsys: Any) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(written[0])
    with piped(written[1]) as pipe:
        assert main(["diff", str(kept), pipe, "-q"]) == 0
    assert "demo-gpt2 (kept.json) and then demo-gpt2 (the pipe)" in capsys.readouterr().out
    with piped(written[1]) as pipe:
        assert main(["heads", TEXT, "--evidence", pipe, "-q"]) == 0


def test_what_a_pipe_holds_is_checked_and_bounded(
    written: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with piped(written[0][:100]) as pipe:
        assert main(["heads", TEXT, "--evidence", pipe]) == 1
    assert "the pipe is not readable JSON" in capsys.readouterr().err
    monkeypatch.setattr(lines, "LONGEST_FILE", 1 << 10)
    with piped(written[0]) as pipe:
        assert main(["heads", TEXT, "--evidence", pipe]) == 1
    assert "is longer than" in capsys.readouterr().err


def test_a_report_beside_something_else_is_told_as_it_is(
    written: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept.json").write_text(written[0])
    os.mkfifo("pipe")
    assert main(["diff", "pipe", "kept.json"]) == 1
    assert "kept.json is a report and 'pipe' a text" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--evidence", "--select"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: Any, option: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    value = f"@{pipe}" if option == "--select" else str(pipe)
    assert main(["ablate", TEXT, option, value]) == 1
    error = f"attnviz: cannot read {pipe}: it is not a regular file\n"
    assert "".join(capsys.readouterr().err.split()) == "".join(error.split())
