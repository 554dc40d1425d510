"""Answers fit, files stay inside, and the command says in one line what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnviz.cli import main
from attnviz.core.heads import Layout
from attnviz.errors import InputError, SelectionError, UsageError
from attnviz.features.mcp import command
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import MOST, fitted, tokens
from attnviz.scoring.select import select
from tests import ROOT
from tests.cli.calling import refused


def test_no_text_of_an_answer_s_size_is_more_tokens_than_counted(minilm: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{minilm}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for page in ("README.md", "docs/claims.md", "docs/ablate.md", "attnviz/core/record.py"):
        text = (ROOT / page).read_text("utf-8")
        for start in range(0, len(text), 4000):
            part = text[start : start + 4000]
            assert len(tokenizer.encode(part, add_special_tokens=False).ids) <= tokens(part)


def test_what_does_not_fit_is_cut_before_the_last_paragraph() -> None:
    table = "\n".join(f"{n}.0  previous  0.{n:03}" for n in range(1000))
    said = fitted(f"{table}\n\nmeasured on 60 texts", ["File: a-1.json"], "read a-1.json")
    assert tokens(said) <= MOST
    assert "0.0  previous" in said
    assert "measured on 60 texts" in said
    assert said.endswith("File: a-1.json")
    kept = sum("previous" in line for line in said.splitlines())
    assert f"({1000 + 1 - kept} lines left out: read a-1.json)" in said


def test_what_fits_is_whole() -> None:
    assert fitted("a  1\n────\nb  2", ["File: x"], "more") == "a  1\nb  2\n\nFile: x"


def test_files_are_found_by_path_and_by_name_among_results(tmp_path: Path) -> None:
    folders = Folders([tmp_path])
    results = tmp_path / "attnviz-results"
    results.mkdir()
    (results / "heads-1.json").write_text("{}")
    assert folders.file("heads-1.json") == folders.file("attnviz-results/heads-1.json")
    with pytest.raises(InputError, match=r"no file 'heads-2\.json'"):
        folders.file("heads-2.json")


def test_circuits_in_selections_are_files_too(tmp_path: Path) -> None:
    folders = Folders([tmp_path])
    kept = tmp_path.resolve() / "c 1.json"
    kept.write_text("{}")
    assert folders.selection("2.0, @c 1.json+3.*, role:first") == f"2.0, @{kept}+3.*, role:first"
    assert folders.selection("@c 1.json -> 2.0.k") == f"@{kept} -> 2.0.k"
    assert folders.selection(None) is None
    with pytest.raises(UsageError, match="leads out of the folders"):
        folders.selection("2.0,@../c.json")


def test_a_circuit_s_name_ends_where_the_reader_of_selections_ends_it(tmp_path: Path) -> None:
    """Where it went on after an arrow, what was checked was not what was read."""
    (tmp_path / "allowed" / "d->").mkdir(parents=True)
    (tmp_path / "allowed" / "d").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    folders = Folders([tmp_path / "allowed"])
    text = folders.selection("@d->/../../secret.json")
    with pytest.raises(SelectionError, match=r"cannot read .* as a circuit's file; a name ends at"):
        select(text, Layout({"decoder": (2, 2)}))
    with pytest.raises(SelectionError, match=r"cannot read '@a\+b"):
        select("@a+b.json", Layout({"decoder": (2, 2)}))


@pytest.mark.parametrize("name", ["a,b", "c++", "d->e"])
def test_a_folder_whose_name_would_end_a_selection(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "c.json").write_text("{}")
    with pytest.raises(SelectionError, match="rename the file or its folder"):
        Folders([tmp_path / name]).selection("2.0, @c.json")


def test_results_stay_inside(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leads out of the folders"):
        Folders([tmp_path], tmp_path / ".." / "elsewhere")
    (tmp_path / "attnviz-results").symlink_to("/tmp")
    with pytest.raises(UsageError, match="leads out of the folders"):
        Folders([tmp_path])


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "mcp", "--allow", str(tmp_path / "no"), code=2)
    assert said.startswith("attnviz: --allow takes folders, and ")


def test_without_the_extra_one_line_says_so(monkeypatch, capsys) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    said = 'attnviz: attnviz mcp needs the MCP SDK; pip install "attnviz[mcp]"\n'
    assert capsys.readouterr().err == said
