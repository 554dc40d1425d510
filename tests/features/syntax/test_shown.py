"""Sentences with arcs: what is shown against eager transformers, the terminal, and the figure."""

from __future__ import annotations

import io
import re

import jsonschema_rs
import pytest
from rich.cells import cell_len
from rich.console import Console

import attnviz
from attnviz.cli import main
from attnviz.errors import UsageError
from attnviz.features.syntax.arcs import DrawnArc, levels, line_up
from attnviz.features.syntax.description import arc_sentence
from attnviz.features.syntax.result import Arc, Parse
from tests.corpus.gold.reference import SAMPLE, gold, words_of_eager


def test_arcs_are_gold_and_where_eager_transformers_point(minilm: str) -> None:
    """The first sentences of the odd document with both relations, by the heads of the table."""
    report = attnviz.syntax(SAMPLE, model=minilm, sentences=3, relation="obj,det")
    best = {r.name: r.best for r in report.named("obj,det")}
    wanted = []
    for weights, (words, heads, relations, document) in zip(
        words_of_eager(minilm, False), gold(), strict=True
    ):
        if document != "kitchen" or not {"obj", "det"} <= set(relations):
            continue
        arcs = []
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            if relation in best:
                chosen = best[relation]
                assert chosen is not None
                maps = weights[chosen.head.layer, chosen.head.index]
                row = maps[word] if chosen.direction == "to_head" else maps[:, word]
                row = row.copy()
                row[word] = -1
                arcs.append(Arc(relation, relation, word, head, int(row.argmax())))
        wanted.append((tuple(words), tuple(arcs)))
    assert [(parse.words, parse.arcs) for parse in report.shown] == wanted[:3]
    assert report.shown[0].name == "kitchen-1"
    jsonschema_rs.validate(report.json_schema(), report.to_dict())


def test_without_a_relation_every_word_has_the_arc_of_one_head(minilm: str) -> None:
    report = attnviz.syntax(SAMPLE, model=minilm, sentences=1, punct=False)
    (parse,) = report.shown
    assert {arc.chosen_for for arc in parse.arcs} == {"all"}
    assert [arc.dependent for arc in parse.arcs] == [0, 1, 3, 4, 5, 6, 7, 8]


def test_arcs_run_outside_of_those_that_they_span() -> None:
    arcs = [
        DrawnArc(3, 0, "a"), DrawnArc(1, 0, "b"), DrawnArc(1, 2, "c"), DrawnArc(3, 1, "d"),
        DrawnArc(3, 4, "e"),
    ]  # fmt: skip
    assert levels(arcs) == [3, 1, 1, 2, 1]


def test_words_move_apart_for_labels() -> None:
    line = line_up([2, 2, 2], 1, 0, [(DrawnArc(1, 0, "long label"), 12)])
    assert line.lefts == (0, 12, 15)
    assert line.ends(DrawnArc(1, 0, "")) == (13, 1)


PARSE = Parse(
    "s-1",
    ("The", "cook", "found", "an", "old", "key"),
    (Arc("det", "det", 0, 1, 1), Arc("det", "det", 3, 5, 4), Arc("obj", "obj", 5, 2, 2)),
)


def drawn(parse: Parse, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, color_system=None, highlight=False)
    console.print(arc_sentence(parse), end="")
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_the_drawing() -> None:
    lines = drawn(PARSE)
    words = next(n for n, line in enumerate(lines) if "cook" in line)
    above, below = "\n".join(lines[:words]), "\n".join(lines[words + 1 :])
    assert above.count("▼") == 3
    assert below.count("▲") == 3
    assert "✓" not in above
    assert below.count("✓ det") == below.count("✓ obj") == below.count("✗ det") == 1
    assert "─ det ─" in above
    assert "╌ ✗ det ╌" in below or "╰ ✗ det ╯" in below
    column = lines[words].index("found")
    assert lines[words - 1][column + 3] == "│"  # the object's arc leaves at the right side
    assert lines[words - 1][lines[words].index("key") + 1] == "▼"


def test_a_drawing_fits_the_console_and_says_what_it_cut() -> None:
    for width in (80, 40, 25, 12):
        lines = drawn(PARSE, width)
        assert max(map(cell_len, lines)) <= width
        whole = all(word in " ".join(lines) for word in PARSE.words)
        assert whole == ("too wide" not in " ".join(lines)), width
    assert "of 3 arcs are cut" in " ".join(drawn(PARSE, 25))


def test_a_drawing_in_ascii() -> None:
    text = "\n".join(drawn(PARSE, encoding="ascii"))
    assert "ok det" in text
    assert "x det" in text
    assert "v" in text
    assert "^" in text


def test_the_command(minilm: str, tmp_path, capsys) -> None:
    line = ["syntax", str(SAMPLE), "-m", minilm, "--relation", "obj,det", "--sentences", "2", "-q"]
    assert main([*line, f"--out={tmp_path / 'arcs.svg'}"]) == 0
    svg = (tmp_path / "arcs.svg").read_text()
    assert "stroke-dasharray" in svg
    out = " ".join(capsys.readouterr().out.split())
    assert "kitchen-1" in out
    assert re.search(r"obj: head 2\.0 by row, right in 75 % of 8 cases on odd documents", out)
    assert "the first 2 sentences of odd documents with " in out


def test_without_sentences_there_are_no_arcs_to_draw() -> None:
    report = attnviz.syntax(SAMPLE, model="demo-bert")
    with pytest.raises(UsageError, match="no sentence was kept"):
        report.arcs()


def test_a_treebank_that_is_too_small_to_test_says_so(capsys) -> None:
    assert main(["syntax", str(SAMPLE)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "significantly above it (nothing to test: no head came that far, or there" in said
    assert "over 0" not in said
