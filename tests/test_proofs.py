"""The table of proofs: a smaller one holds, it can fail, and the page is what was computed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import __main__ as program
from benchmarks import ablation, drawn, logits, streaming, thoughts
from benchmarks.table import Row, show
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


SENTENCES = ROOT / "sample_inputs" / "sentences.txt"
TINY: dict[str, Any] = {
    "LAYERS": 2, "HEADS": 4, "WIDTH": 32, "VOCABULARY": 1000, "RUNS": 1, "ROUNDS": 1, "STEPS": 2,
    "EVERY": 1, "COPIES": 1, "PASSES": 1, "PAIRS": 1, "TOKENS": 32, "LENGTH": 24, "SHORT": 8,
    "SENTENCES": 4, "STEP": 2, "LINES": 2, "LONG": 40, "LENGTHS": (256, 512), "SIZES": ((2, 4),),
}  # fmt: skip
"""What benchmarks call their sizes."""
OTHERWISE: dict[str, dict[str, Any]] = {
    "arrays": {"PASSES": ((1, 16),)}, "atlas": {"TEXTS": ("the cat sat",)},
    "export": {"HEADS": 2}, "profiling": {"TEXTS": 600}, "startup": {"SENTENCES": SENTENCES},
    "commands": {"SENTENCES": SENTENCES}, "thoughts": {"LENGTH": 60, "SENTENCES": 6},
    "streaming": {"LENGTHS": (32, 64)}, "live": {"MOST_PASS": {16: 120.0}, "MINILM_TOKENS": (12,)},
    "viewer": {"MOST_MB": {16: 1.5}, "MOST_SECONDS": {16: 1.0}, "COMPARED": ((2, 16),), "LONG": 32},
}  # fmt: skip
MODEL = drawn.Shape(
    "tiny", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "float32", passes=1, tokens=64, lines=2,
)  # fmt: skip
CASES = {"gpt2": "gpt2 24", "llama": "llama 24 8", "layer": "layer 8", "sentences": "sentences 4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", program.TABLES)
def test_a_benchmark_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    module = import_module(f"benchmarks.{name}")
    own = OTHERWISE.get(name, {})
    for shared in {module, ablation, logits, thoughts}:  # models that several benchmarks run
        for constant, value in (TINY | (own if shared is module else {})).items():
            if hasattr(shared, constant):
                monkeypatch.setattr(shared, constant, value)
    if name == "models":
        monkeypatch.setattr(module, "SHAPES", {"tiny": MODEL})
        monkeypatch.delenv("ATTNVIZ_SHAPES", raising=False)
    if name == "streaming":
        monkeypatch.setattr(streaming, "_child", measured_here)
    rows = module.measure()
    assert rows
    assert all(isinstance(row, Row) and row.ratio > 0 for row in rows)
    assert rows[0].what in capsys.readouterr().err


def measured_here(job: str, case: str, *rest: str) -> dict[str, Any]:
    """What a process of its own measures, in this one and small; memory does not grow."""
    small = CASES[case.split()[0]]
    if job == "memory":
        return {"peak": 1, "added": 1}
    with torch.inference_mode():
        if job == "accuracy":
            return streaming._error("llama 128 8", *rest)
        return streaming._time(small, *rest[:-1], "1")


def test_figures_are_told_as_they_are_found_and_targets_are_judged(capsys) -> None:
    row = Row("a", "b", 2.0, 1.0, "3 s")
    assert capsys.readouterr().err == "a: 2\u00d7 of b (3 s)\n"
    assert not show("title", [row])


def test_a_run_of_all_ends_in_time_and_names_what_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "__init__.py").write_text(f"__path__.append({str(ROOT / 'benchmarks')!r})")
    ends = {"quick": "return", "broken": "raise OSError", "slow": "time.sleep(600)"}
    for name, end in ends.items():
        (package / f"{name}.py").write_text(
            "import time\nfrom benchmarks.table import Row, rounds\n"
            f"def measure():\n    Row({name!r}, 'b', 0.5 * rounds(2), 1.0)\n    {end}\n"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNVIZ_SHAPES", "")
    monkeypatch.setattr(program, "TABLES", dict.fromkeys(ends, "title"))
    monkeypatch.setattr(program, "MOST_SECONDS", 9)
    assert program.main([]) == 1
    out, told = capfd.readouterr()
    assert told.count("quick: 0.5\u00d7") == 1  # in this process not again
    assert out.count(" ok ") == 3  # and all that was measured before the end is in a table
    assert told.endswith("time was up; for the rest: python -m benchmarks broken slow\n")
