"""The table of proofs: a smaller one holds, it can fail, and the page is what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proofs import layers
from proofs.__main__ import GROUPS, TEXT, main, page, proofs
from proofs.row import Proof, missing
from tests import ROOT

DOC = ROOT / "docs" / "proofs.md"


@pytest.mark.slow
def test_every_row_of_the_smaller_table_holds(tmp_path: Path, capsys) -> None:
    assert main(["--small", "--write", str(tmp_path / "proofs.md")]) == 0, capsys.readouterr().out
    said = (tmp_path / "proofs.md").read_text("utf-8")
    assert all(f"## {title}" in said for title in GROUPS.values())
    assert said.count("| holds |") > 15


def test_a_row_can_fail(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(layers, "TOLERANCE", -1.0)
    monkeypatch.setattr(layers, "rows", lambda small, minilm: iter([layers.module(((8, 2),))]))
    assert main(["layers"]) == 1
    assert "**FAILS**" in capsys.readouterr().out


def test_a_failure_is_one_in_whatever_type() -> None:
    rows = [("papers", Proof("a", "b", "c", "d", np.bool_(holds), "e")) for holds in (True, False)]
    assert [row.verdict for _, row in rows] == ["holds", "**FAILS**"]
    assert "1 of 2 rows hold; 0 not run." in page(rows)


def test_rows_without_their_data_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from proofs import papers, sentences

    for name in ("ATTNVIZ_EWT", "ATTNVIZ_GAP", "ATTNVIZ_TEXT"):
        monkeypatch.delenv(name, raising=False)
    rows = [*papers.treebank("x"), *papers.names("x"), *sentences.rows(True, "x")]
    assert [row.verdict for row in rows] == ["not run"] * 5
    assert all("set ATTNVIZ_" in row.ours for row in rows)


def test_sentences_are_drawn_by_the_seed_alone() -> None:
    from proofs import sentences

    text = "The old grey horse went home slowly. " * 3 + "\n".join(
        f"it was {word} that we all came there." for word in ("here", "now", "then", "so")
    )
    first = sentences.drawn(text, 3)
    assert first == sentences.drawn(text.replace("\n", " "), 3)
    assert sorted(sentences.drawn(text, 5))[0] == "The old grey horse went home slowly"
    assert sentences.prompt("We saw him go") == "We saw him go and we saw him"
    assert sentences.begins(" ho", "home")
    assert not sentences.begins("ho", "home")


def test_the_page_counts_what_was_tried() -> None:
    rows = [
        ("layers", Proof("a", "b", "c", "d", True, "e")),
        ("papers", missing("a", "b", "c", "d")),
    ]
    said = page(rows)
    assert "1 of 1 rows hold; 1 not run." in said
    assert "| a | b | c | d | holds | `e` |" in said


def test_the_kept_page_is_whole_and_holds() -> None:
    said = DOC.read_text("utf-8")
    assert said.startswith(TEXT)
    assert "FAILS" not in said
    assert all(f"## {title}" in said for title in GROUPS.values())
    rows = [line for line in said.splitlines() if line.startswith("|")]
    counted = int(said.split(" rows hold")[0].rsplit(" of ", 1)[1])
    assert counted == sum("| holds |" in row for row in rows)
    small = [row.what for _, row in proofs(["papers"], True)]
    assert sum(what in said for what in small) >= 2


def test_a_head_s_effect_takes_the_passes_that_the_comparison_tells(monkeypatch) -> None:
    from attnviz.models.native.source import Native
    from proofs import compare

    runs, forward = [], Native.forward
    monkeypatch.setattr(Native, "forward", lambda *a, **b: runs.append(a) or forward(*a, **b))
    text = compare.PAGE.read_text("utf-8")
    asked = [one for one in compare.answers(text) if one.tool == compare.OWN][1]
    asked.run(asked.loaded())
    assert "runs the\ntext four times" in text
    assert len(runs) == 4


def test_the_comparison_has_as_many_lines_as_its_page_says_and_agrees() -> None:
    from proofs import compare

    text = compare.PAGE.read_text("utf-8")
    kept = [row[2:-2].split(" | ") for row in text.splitlines() if row.startswith("| The ")]
    for row, answer in zip(kept, compare.answers(text), strict=True):
        assert [row[0], row[1].split()[0], row[2]] == [
            answer.question,
            answer.tool,
            f"{answer.lines}",
        ]
    for row in (*kept, *compare.compared(text, timed=False)):  # of what is installed
        assert row[3] in ("", "not installed") or float(row[3]) < 1e-4
