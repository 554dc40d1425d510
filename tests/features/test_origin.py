"""Every result of several texts says what makes it again: in JSON, on the terminal, in pictures."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.result import Result
from attnviz.corpus import lines
from attnviz.drawing.renderable import Renderable
from attnviz.features.atlas.gather import gather
from attnviz.features.results import RESULTS
from tests.cli.calling import refused
from tests.corpus.gold.pronouns import pronouns
from tests.corpus.gold.sentences import treebank
from tests.features.profile.corpus import sentences as texts
from tests.features.test_matrix import series

pytestmark = pytest.mark.usefixtures("few_sentences")

MODEL = "demo-gpt2"
KETTLE = "The kettle sang and the candle burned while the kettle sang"


def _file(folder: Path, name: str, written: str) -> Path:
    path = folder / name
    path.write_text(written, encoding="utf-8")
    return path


def _spanned(n: int) -> list[av.Prompt]:
    return [av.Prompt(f"{KETTLE}{' again' * k}.", spans={"kettle": "all:kettle"}) for k in range(n)]


def _questions(n: int) -> str:
    names = ("Paul", "Anna", "Mary", "John", "Peter")
    said = [
        {
            "question": f"Who has key {10 * k}?",
            "context": [f"{names[(k + d) % 5]} has key {10 * k + d}." for d in range(3)],
            "answer": names[k % 5 + k % 3 - 5],
            "gold": k % 3,
        }
        for k in range(n)
    ]
    return "".join(json.dumps(row) + "\n" for row in said)


Make = Callable[[Path, int], Any]
"""A result of so many texts, with room for files."""

MADE: dict[str, Make] = {
    "ablate": lambda folder, n: av.ablate(texts(n), model=MODEL, select="0.5"),
    "atlas": lambda folder, n: gather(av.profile(texts=texts(n), model=MODEL)),
    "coref": lambda folder, n: av.coref(_file(folder, "g.tsv", pronouns(4 * n)), model=MODEL),
    "diff": lambda folder, n: av.diff(texts(n), other_model="demo-gpt2", model=MODEL),
    "film": lambda folder, n: av.film(texts=texts(n), model=series(MODEL, MODEL, folder)),
    "knockout": lambda folder, n: av.knockout(_spanned(n), draws=1, model=MODEL),
    "lens": lambda folder, n: av.lens(texts(n), by="head", model=MODEL),
    "patch": lambda folder, n: av.patch(task="gender", count=2 * n, model=MODEL),
    "profile": lambda folder, n: av.profile(texts=texts(n), model=MODEL),
    "retrieval": lambda folder, n: av.retrieval(
        model=MODEL, lengths=[40], depths=[0.5], count=4 * n, group_size=(1,), draws=1, control=0
    ),
    "sinks": lambda folder, n: av.sinks(texts(n), model=MODEL),
    "source-shares": lambda folder, n: av.sources(texts(n), select="1.4", model=MODEL),
    "spans": lambda folder, n: av.spans(
        _file(folder, "q.jsonl", _questions(4 * n)), model=MODEL, seed=1
    ),
    "syntax": lambda folder, n: av.syntax(_file(folder, "s.conllu", treebank(4 * n)), model=MODEL),
    "writers": lambda folder, n: av.writers(texts(n), model=MODEL),
}
OF_FILES = ("coref", "spans", "syntax")
OF_ONE_TEXT = ("explain", "flow", "heads", "logits", "sources", "thoughts")
"""Results of a single text, which is in them."""
OF_NO_TEXT = ("check", "circuits", "families", "model", "models", "module-check", "shapes")


def test_every_command_with_texts_is_here() -> None:
    known = {name.removeprefix("attnviz.") for name in RESULTS}
    assert known == {*MADE, *OF_ONE_TEXT, *OF_NO_TEXT}


@pytest.mark.parametrize("name", list(MADE))
def test_what_makes_a_result_again_is_said_wherever_it_is_shown(name: str, tmp_path: Path) -> None:
    folders = [tmp_path / part for part in "ab"]
    for folder in folders:
        folder.mkdir()
    result, fewer = (MADE[name](folder, n) for folder, n in zip(folders, (2, 1), strict=True))
    assert isinstance(result, Result)
    assert isinstance(result, Renderable)
    document = result.to_dict()
    assert document["texts"] > 1
    assert len(document["corpus"]) == 16
    assert document["identity"]["checkpoint"]
    if name in OF_FILES:
        assert MADE[name](folders[1], 2).corpus == result.corpus, "whatever the file's folder"
    assert fewer.corpus != result.corpus
    line = result.origin()
    assert document["corpus"][:8] in line
    assert document["identity"]["checkpoint"][:8] in line
    if document.get("seed") is not None:
        assert f"seed {document['seed']}" in line
    if document.get("split"):
        assert f"split {document['split']}" in line
    assert line in " ".join(str(result).split())
    if result._form("figure") is not None and name != "diff":  # which draws one text
        drawn = result.to_bytes("svg").decode()
        assert document["corpus"][:8] in drawn
    if result._form("page") is not None and name not in ("diff", "patch", "profile"):
        assert html.escape(line) in result.page().decode()


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
    assert "kept.json is a report and 'pipe' a text" in refused(capsys, "diff", "pipe", "kept.json")


@pytest.mark.parametrize("option", ["--evidence", "--select"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: Any, option: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    value = f"@{pipe}" if option == "--select" else str(pipe)
    assert main(["ablate", TEXT, option, value]) == 1
    error = f"attnviz: cannot read {pipe}: it is not a regular file\n"
    assert "".join(capsys.readouterr().err.split()) == "".join(error.split())
