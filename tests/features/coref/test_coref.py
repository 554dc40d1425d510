"""Pronouns and names against an independent computation, the reader, and the command."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.cli import main
from attnviz.errors import InputError
from attnviz.features.coref.choosing import choices
from attnviz.features.coref.result import Coref
from tests import ROOT
from tests.corpus.gold import results as gold
from tests.corpus.gold.reference import eager, maps_of_eager

SAMPLE = ROOT / "sample_inputs" / "pronouns.tsv"


@cache
def measured(**asked: Any) -> Coref:
    """The sample, once for all tests that ask the same of it."""
    return attnviz.coref(SAMPLE, **asked)


def rows() -> list[dict[str, str]]:
    header, *lines = SAMPLE.read_text().splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def by_hand(folder: str) -> np.ndarray:
    """Accuracy of eager transformers in float64, [L * H, 2]."""
    tokenizer, _ = eager(folder)
    right = []
    for row in rows():
        if row["A-coref"] == row["B-coref"]:
            continue
        read = tokenizer(row["Text"], return_offsets_mapping=True)
        places = []
        for phrase in ("Pronoun", "A", "B"):
            start = int(row[f"{phrase}-offset"])
            end = start + len(row[phrase])
            offsets = enumerate(read["offset_mapping"])
            places.append([n for n, (a, b) in offsets if a < b and a < end and b > start])
        pronoun, a, b = places
        maps = np.concatenate(maps_of_eager(folder, read["input_ids"]))

        def weight(rows: list[int], keys: list[int], maps: np.ndarray = maps) -> np.ndarray:
            return maps[:, rows][:, :, keys].sum(2).mean(1)

        to_a = weight(pronoun, a) >= weight(pronoun, b)
        from_a = weight(a, pronoun) >= weight(b, pronoun)
        right.append(np.stack([to_a, from_a], -1) == (row["A-coref"] == "TRUE"))
    return np.mean(right, axis=0)


def test_all_heads_and_both_directions_equal_eager_transformers(minilm: str) -> None:
    report = measured(model=minilm)
    assert report.examples == 11
    assert report.skipped["neither name or both are the antecedent"] == 1
    expected = by_hand(minilm)
    heads = report.everything.heads
    assert [one.head for one in heads] == list(report.layout)
    np.testing.assert_allclose([one.to_name for one in heads], expected[:, 0], atol=1e-12)
    np.testing.assert_allclose([one.from_name for one in heads], expected[:, 1], atol=1e-12)


def test_baselines_by_hand(minilm: str) -> None:
    usable = [row for row in rows() if row["A-coref"] != row["B-coref"]]
    nearest = first = 0
    for row in usable:
        pronoun, a, b = (int(row[f"{phrase}-offset"]) for phrase in ("Pronoun", "A", "B"))
        truth = row["A-coref"] == "TRUE"
        nearest += (abs(a - pronoun) <= abs(b - pronoun)) == truth
        first += (a < b) == truth
    report = measured(model=minilm)
    baselines = {one.name: one.accuracy for one in report.everything.baselines}
    assert baselines == {"nearest": nearest / 11, "first": first / 11}
    of_kind = {kind.name: kind.count for kind in report.kinds}
    assert of_kind == {"all": 11, "feminine": 7, "masculine": 4}


def test_a_causal_model_sees_no_later_name() -> None:
    report = measured(model="demo-gpt2")
    assert report.examples == 10
    assert {one.from_name for one in report.everything.heads} == {None}
    assert report.skipped["a name after the pronoun, which a causal model cannot see"] == 1


def test_halves_are_of_documents(minilm: str) -> None:
    report = measured(model=minilm)
    assert report.texts == 6
    assert report.best is not None
    odd = [r for r in rows() if r["URL"] in ("station", "house", "chess")]
    assert report.best.count == len(odd)
    everything = measured(model=minilm, split="all")
    assert everything.best is not None
    assert everything.best.accuracy.value == max(
        max(one.to_name, one.from_name) for one in everything.everything.heads
    )


def test_near_copies_are_one_document_on_one_side(tmp_path, minilm: str) -> None:
    """A page again under another name, in capitals and with other white space, adds no document."""
    header, *lines = SAMPLE.read_text().splitlines()
    columns = header.split("\t")
    copies = []
    for number, line in enumerate(lines):
        row = dict(zip(columns, line.split("\t"), strict=True))
        row |= {
            "ID": f"copy-{number}",
            "URL": f"mirror/{number}",
            "Text": row["Text"].upper() + " ",
        }
        row |= {name: row[name].upper() for name in ("Pronoun", "A", "B")}
        copies.append("\t".join(row[name] for name in columns))
    path = tmp_path / "twice.tsv"
    path.write_text("\n".join([header, *lines, *copies]) + "\n")
    halves = attnviz.coref(path, model=minilm)
    assert halves.texts == measured(model=minilm).texts == 6
    assert halves.best is not None
    odd = [r for r in rows() if r["URL"] in ("station", "house", "chess")]
    assert halves.best.count == 2 * len(odd)


def test_the_table(minilm: str, capsys) -> None:
    assert main(["coref", str(SAMPLE), "-m", minilm]) == 0
    out, err = capsys.readouterr()
    assert "nearest name" in out
    assert "on odd documents" in out
    assert "1 left out: neither name" in err


def test_a_picture_of_bars_and_grid(tmp_path) -> None:
    asked = ["coref", str(SAMPLE), "-m", "demo-bert", "-q"]
    assert main([*asked, f"--out={tmp_path / 'c.svg'}"]) == 0
    drawn = (tmp_path / "c.svg").read_text()
    assert "nearest name" in drawn
    assert "feminine" in drawn


HEADER = SAMPLE.read_text().splitlines()[0]
ROW = ["x", "Ann met Eve; she ran.", "she", "13", "Ann", "0", "TRUE", "Eve", "8", "FALSE", "u"]


def changed(place: int, value: str) -> str:
    return "\t".join([*ROW[:place], value, *ROW[place + 1 :]])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (changed(3, "12"), ":2: at Pronoun-offset 12 the text has ' sh', not 'she'"),
        (changed(5, "1" * 5000), ":2: A-offset is '11111111111111111111', no whole number"),
        (changed(5, "-1"), ":2: A-offset is '-1', no whole number"),
        (changed(6, "yes"), ":2: A-coref is 'yes'; it is TRUE or FALSE"),
        (changed(8, "99"), ":2: at B-offset 99 the text has '', not 'Eve'"),
        ("a\tb", ":2: 2 columns; the header has more"),
        (changed(6, "FALSE"), "no row has one name as antecedent"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, capsys, row: str, says: str) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(f"{HEADER}\n{row}\n")
    assert main(["coref", str(path), "-m", "demo-bert"]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    good = "\t".join(ROW)
    path.write_text(f"{HEADER}\n{row}\n{good}\n")
    assert len(choices([str(path)], strict=False)[0]) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER.replace("A-offset\t", ""), "lacks the column A-offset; a table of pronouns has"),
        ("", "is empty; its first line must name"),
        ("a treebank", "is neither CoNLL-U nor a table of pronouns, whose first line has"),
    ],
)
def test_columns_are_checked_by_name(tmp_path, text: str, says: str) -> None:
    (tmp_path / "t.tsv").write_text(text)
    with pytest.raises(InputError, match=says):
        choices([str(tmp_path / "t.tsv")], strict=False)


def test_roles_are_evidence_beside_the_baseline() -> None:
    one = gold.antecedent_head("1.2", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3))
    ((role, estimate),) = gold.coref(roles=[one]).annotated_roles()[one.head]
    assert (role.title, role.evidence.mean, role.evidence.chance) == ("coreference", 0.75, 0.5)
    assert (estimate.low, estimate.high, estimate.rows) == (0.7, 0.8, 90)
