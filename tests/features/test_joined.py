"""The tables of all commands have the same columns for heads, so that they can be joined."""

from __future__ import annotations

from typing import Any

import pytest

import attnviz as av
from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.tables import HEAD, which_head
from tests import ROOT

INPUTS = ROOT / "sample_inputs"
TEXT = "one two three one two three"
EVERY = ("heads", "profile", "ablate", "sinks", "spans", "retrieval", "logits", "capture", "lens")
"""Those with a row for every head at least."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    model = av.load("demo-gpt2")
    texts = tmp_path_factory.mktemp("texts") / "t.txt"
    texts.write_text("one two three one two\na b c a b c\n")
    small = {"lengths": [40], "depths": [0.5], "count": 2, "group_size": (), "control": 0}
    results: dict[str, Any] = {
        "heads": av.heads(TEXT, model=model), "profile": av.profile(texts, model=model),
        "ablate": av.ablate(TEXT, model=model),
        "patch": av.patch(task="induction", count=4, select="2.*", model=model),
        "explain": av.explain(TEXT, model=model), "logits": av.logits(TEXT, model=model),
        "lens": av.lens(TEXT, by="head", model=model), "sinks": av.sinks(TEXT, model=model),
        "spans": av.spans(av.Prompt(TEXT, spans={"one": "one"}), model=model),
        "knockout": av.knockout(
            av.Prompt(TEXT, spans={"one": "one"}), select="*.*", draws=0, model=model
        ),
        "thoughts": av.thoughts("One. Two. One. Two. One. Two. One. Two.", model=model),
        "syntax": av.syntax(INPUTS / "treebank.conllu", model=model),
        "coref": av.coref(INPUTS / "pronouns.tsv", model=model),
        "retrieval": av.retrieval(model=model, **small),
        "diff": av.diff([TEXT], other_model="demo-gpt2", model=model),
        "film": av.read(INPUTS / "phases" / "repeats-2.json"),
    }  # fmt: skip
    capture: Any = av.capture(TEXT, model=model).to_pandas().to_dict("records")
    return {name: result.to_records() for name, result in results.items()} | {"capture": capture}


def keys(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """The heads that rows are of."""
    return {tuple(row[name] for name in HEAD) for row in rows if row["head"] is not None}


def test_tables_join_on_the_head(tables: dict[str, list[dict[str, Any]]]) -> None:
    heads = keys(tables["heads"])
    assert len(heads) == 24
    assert all(name == f"{layer}.{index}" for layer, index, name in heads)
    for command, rows in tables.items():
        found = keys(rows)
        assert found, command
        assert all("stack" not in row for row in rows), command
        if command == "film":  # of another model
            assert all(name == f"{layer}.{index}" for layer, index, name in found)
        else:
            assert found <= heads, command
    for command in EVERY:
        assert keys(tables[command]) == heads, command


def test_frames_join(tables: dict[str, list[dict[str, Any]]]) -> None:
    pandas = pytest.importorskip("pandas")
    effects = pandas.DataFrame(tables["ablate"]).dropna(subset="head")
    joined = pandas.DataFrame(tables["heads"]).merge(effects, on=list(HEAD))
    assert len(joined) == 24
    assert joined["effect"].notna().all()


def test_a_model_of_several_stacks_says_which() -> None:
    layout = Layout({"encoder": (2,), "decoder": (2,)})
    head = Head(Site("decoder", 0), 1)
    assert which_head(layout, head) == {
        "stack": "decoder", "layer": 0, "index": 1, "head": "dec:0.1",
    }  # fmt: skip
    assert set(which_head(layout, head, head).values()) == {None}
