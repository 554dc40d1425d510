"""Which heads find the right document: planted ones, and the demo model's recounted by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import attnviz as av
from attnviz.cli import app, main
from attnviz.core.heads import Layout, Site
from attnviz.core.result import Interval
from attnviz.core.source import Rows
from attnviz.core.split import same_text
from attnviz.errors import InputError, UsageError
from attnviz.features.results import read_record
from attnviz.features.spans.documents import _sheet, read_examples
from attnviz.features.spans.result import DISTRACTORS, RIGHT, DocumentSettings

ROOT = Path(__file__).parents[3]
QUESTIONS = ROOT / "sample_inputs" / "questions.jsonl"
FIELDS = {"fields": {"context": "doc", "question": "q", "answer": "a"}}
TYPED = "--fields=context=doc,question=q,answer=a"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the questions, as many in either half."""
    path = tmp_path_factory.mktemp("few") / QUESTIONS.name
    path.write_text("".join(QUESTIONS.read_text().splitlines(keepends=True)[:32]))
    return path


@pytest.fixture(scope="module")
def found(few: Path) -> Any:
    return av.spans(few, **FIELDS)


class Planted:
    """Heads with known weights on the tokens of the demo model, causal by hand.

    Head 0 attends to the right document alone, head 1 to all keys alike, head 2 to the first
    document, head 3 to a distractor.
    """

    def __init__(self) -> None:
        self._real = av.load("demo-gpt2")
        self.info, self.layout = self._real.info, Layout({"decoder": (4,)})

    def prepare(self, prompt: av.Prompt) -> Any:
        return self._real.prepare(prompt)

    def forward(self, batch: Any, observers: Any = (), request: Any = None) -> Any:
        (inputs,) = batch
        tokens = inputs.sides["decoder"].keys
        spans = {span.name: span for span in tokens.spans}
        runs = sorted((*spans[RIGHT].ranges, *spans[DISTRACTORS].ranges))
        wanted = [spans[RIGHT].ranges[0], (0, len(tokens)), runs[0], spans[DISTRACTORS].ranges[-1]]
        causal = torch.tril(torch.ones(len(tokens), len(tokens), dtype=torch.bool))
        weights = torch.zeros(1, 4, len(tokens), len(tokens))
        for head, (start, end) in enumerate(wanted):
            weights[0, head, :, start:end] = 1
        weights = weights * causal + 1e-9 * causal
        weights /= weights.sum(-1, keepdim=True)
        for observer in observers:
            observer.observe(Rows(Site("decoder", 0), 0, 0, weights, causal[None, None]))
        return SimpleNamespace()


def test_a_planted_head_scores_one_and_uniform_attention_chance() -> None:
    source: Any = Planted()
    found = av.spans(QUESTIONS, model=source, **FIELDS)
    sheet = found.documents
    by_head = {one.head.index: one for one in sheet.ranked}
    assert sheet.best.head.index == 0
    assert by_head[0].accuracy.value == by_head[0].where_chosen == 1.0
    assert by_head[2].accuracy.value == by_head[1].accuracy.value == 0.25 == sheet.chance
    assert by_head[3].accuracy.value == 0.0
    assert {head.index for head in sheet.sure} <= {0}
    (first,) = [one for one in found.heads if one.head.index == 0]
    assert first.shares[0].mean == pytest.approx(1.0, abs=1e-4)


def test_accuracy_is_that_of_a_recount(found: Any, few: Path) -> None:
    """Texts put together, tokens found and maps read without the feature."""
    sheet = found.documents
    examples, _ = read_examples(few, DocumentSettings(**FIELDS))
    hits: Counter[str] = Counter()
    measured = 0
    for one in examples:
        if one.half == 0:
            continue
        measured += 1
        text = "".join(f"Document {n}: {d}\n\n" for n, d in enumerate(one.documents, 1))
        text += f"Question: {one.question}\nAnswer: {one.answer}"
        held = av.capture(text)
        tokens = held.inputs.sides["decoder"].keys
        ends = np.cumsum([0, *(len(t) for t in tokens.texts[1:])])  # the first is no text
        assert "".join(tokens.texts[1:]) == text

        def inside(part: str, ends: Any = ends, text: str = text) -> list[int]:
            start = text.rindex(part) if part == one.answer else text.index(part)  # noqa: B023
            stop = start + len(part)
            return [n + 1 for n in range(len(ends) - 1) if ends[n] < stop and ends[n + 1] > start]

        rows = inside(one.answer)
        for head in held.layout:
            scores = [held[head][rows][:, inside(d)].mean(1).sum() for d in one.documents]
            hits[head.name] += int(np.argmax(scores)) == one.right
    assert measured == 16
    for one in sheet.ranked:
        assert one.accuracy.value == pytest.approx(hits[one.head.name] / measured), one.head


def test_the_right_document_stands_everywhere_alike_in_both_halves() -> None:
    examples, bad = read_examples(QUESTIONS, DocumentSettings(**FIELDS))
    assert not bad
    halves = [[one for one in examples if one.half == half] for half in (0, 1)]
    for half in halves:
        assert set(Counter(one.right for one in half).values()) == {8}
    chosen, held = ({text for one in half for text in one.documents} for half in halves)
    assert not chosen & held
    lines = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    for one, line in zip(examples, lines, strict=True):
        assert one.documents[one.right] == line["doc"]
        assert len(set(one.documents)) == 4
    again, _ = read_examples(QUESTIONS, DocumentSettings(**FIELDS, seed=1))
    assert [one.documents for one in again] != [one.documents for one in examples]


def test_examples_that_share_a_document_count_once() -> None:
    """No two clusters of measured examples have a document in common, distractors included."""
    examples, _ = read_examples(QUESTIONS, DocumentSettings(**FIELDS))
    of: dict[str, set[int]] = {}
    for one in examples:
        for document in one.documents:
            of.setdefault(same_text(document), set()).add(one.cluster)
    assert all(len(clusters) == 1 for clusters in of.values())
    held = {one.cluster for one in examples if one.half == 1}
    assert len(held) == 8  # 32 examples, four documents a prompt


def test_near_copies_of_documents_stay_on_one_side(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    near = [{**line, "doc": line["doc"].upper().replace(" ", "  ")} for line in lines]
    path = tmp_path / "near.jsonl"
    path.write_text("\n".join(map(json.dumps, [*lines, *near])))
    examples, _ = read_examples(path, DocumentSettings(**FIELDS))
    halves = [{same_text(d) for e in examples if e.half == h for d in e.documents} for h in (0, 1)]
    assert not halves[0] & halves[1]
    for one in examples:
        assert len({same_text(document) for document in one.documents}) == 4


def test_rules_without_attention_are_counted() -> None:
    examples, _ = read_examples(QUESTIONS, DocumentSettings(**FIELDS))
    one = examples[0]
    assert one.by_rule("first") == 0
    assert one.by_rule("last") == 3
    assert one.documents[one.by_rule("longest")] == max(one.documents, key=len)
    words = {"where", "is", "the", "green", "lamp"}
    shared = [len(words & set(d.lower().strip(".").split())) for d in one.documents]
    assert one.by_rule("question") == shared.index(max(shared))


def test_a_file_may_bring_its_documents(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    listed = [("one a", f"two {n}", f"three {n}") for n in range(4)]
    lines = [{"docs": docs, "q": "b?", "a": "b", "n": 1} for docs in listed]
    path.write_text("\n".join(map(json.dumps, lines)))
    fields = {"context": "docs", "question": "q", "answer": "a"}
    own = DocumentSettings(fields={**fields, "gold": "n"}, split="all")
    examples, _ = read_examples(path, own)
    assert [(one.documents, one.right) for one in examples] == [(docs, 1) for docs in listed]
    with pytest.raises(InputError, match="all examples share documents"):
        read_examples(path, DocumentSettings(fields=fields))
    for line, n in zip(lines, range(4), strict=True):
        line["docs"] = (f"one {n // 2}", *line["docs"][1:])
    path.write_text("\n".join(map(json.dumps, lines)))
    drawn, _ = read_examples(path, DocumentSettings(fields=fields))
    assert [one.documents[one.right] for one in drawn] == ["one 0", "one 0", "one 1", "one 1"]
    assert [one.right for one in drawn] == [0, 1, 0, 1]
    assert [one.half for one in drawn] == [0, 0, 1, 1]
    assert len({one.cluster for one in drawn}) == 2  # what shares a document counts as one


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no", "not JSON"), ("[1]", "not an object"), ('{"doc": "a", "q": "b"}', "'a' is no text"),
        ('{"doc": 3, "q": "b", "a": "c"}', "neither a text nor a list"),
        ('{"doc": ["a"], "q": "b", "a": "c"}', "a single document in its list"),
        ('{"doc": ["a", ""], "q": "b", "a": "c"}', "a document that is no text"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_used_are_counted(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "some.jsonl"
    good = '{"doc": ["x y", "z w"], "q": "x?", "a": "y"}'
    path.write_text(f"{good}\n{line}\n{good}")
    found = av.spans(path, **FIELDS, split="all")
    assert found.documents.skipped == {"lines that cannot be used": 1}
    with pytest.raises(InputError, match=f"some.jsonl:2: .*{reason}"):
        av.spans(path, **FIELDS, strict=True)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no \.jsonl file"):
        av.spans(tmp_path / "a.txt", **FIELDS)
    with pytest.raises(UsageError, match="of documents choose answer, question, last"):
        av.spans(QUESTIONS, **FIELDS, rows="all")
    with pytest.raises(InputError, match="too few for 70 distractors"):
        av.spans(QUESTIONS, **FIELDS, distractors=70)
    with pytest.raises(UsageError, match="distractors must be from 1 to 1,000, not 0"):
        av.spans(QUESTIONS, **FIELDS, distractors=0)
    (tmp_path / "long.jsonl").write_text(
        json.dumps({"doc": ["word " * 200, "other " * 200], "q": "q", "a": "a"})
    )
    with pytest.raises(InputError, match="can take none of the 1 examples"):
        av.spans(tmp_path / "long.jsonl", **FIELDS)


def test_the_sheet_stands_beside_other_results(found: Any, tmp_path: Path) -> None:
    assert read_record(json.loads(found.to_json()), "x") == found
    assert found.save(tmp_path / "rag.png").stat().st_size > 10_000
    said = found.finding("rag.json")
    assert said.title == "Which document it attends to"
    assert said.measures[0].values.keys() == {found.layout.name(h) for h in found.layout}
    assert len(found.to_records()) == len(found.layout) * 4
    assert found.compared().values["3.3"]["right document"] is not None


def test_the_command_prints_the_sheet(found: Any, few: Path, tmp_path: Path) -> None:
    kept = tmp_path / "rag.json"
    shown = CliRunner().invoke(app, ["spans", str(few), TYPED, "-o", str(kept)]).stdout
    assert av.read(kept).documents == found.documents
    best = found.layout.name(found.documents.best.head)
    assert f"head {best}" in shown
    assert "most words of the answer" in shown


def test_a_field_of_nothing_is_one_line(capsys: Any) -> None:
    arguments = ["spans", str(QUESTIONS), "--fields", "context=doc,question=q,answer=zzz"]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "'zzz' is no text" in err
    assert err.count("\n") == 1


def test_one_half_alone_chooses() -> None:
    """What happens on the other half changes no choice."""
    examples, _ = read_examples(QUESTIONS, DocumentSettings(**FIELDS))
    rng = np.random.default_rng(0)
    right = rng.random((len(examples), 24)) < 0.5
    layout = av.load("demo-gpt2").layout
    one = _sheet(examples, right, layout, DocumentSettings(**FIELDS), {})
    held = np.array([example.half == 1 for example in examples])
    right[held] = ~right[held]
    other = _sheet(examples, right, layout, DocumentSettings(**FIELDS), {})
    assert [each.head for each in one.ranked] == [each.head for each in other.ranked]
    assert one.best.accuracy.value == pytest.approx(1 - other.best.accuracy.value)
    assert isinstance(one.best.margin, Interval)
