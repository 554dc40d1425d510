"""Dependencies against an independent computation, the reader, and the command."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.captures.loading import load
from attnviz.cli import main
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.result import Interval
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold.cases import sentences
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import HitTable, large, share, sure
from attnviz.errors import InputError
from attnviz.features.syntax.relations import run
from attnviz.features.syntax.result import Syntax
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests.checkpoints import needs_transformers_5
from tests.corpus.gold import results
from tests.corpus.gold.reference import SAMPLE, gold, words_of_eager
from tests.corpus.gold.sentences import treebank


@cache
def measured(**asked: Any) -> Syntax:
    """The sample, once for all tests that ask the same of it."""
    return attnviz.syntax(SAMPLE, **asked)


def by_hand(folder: str, byte_level: bool = False) -> dict[str, np.ndarray]:
    """Accuracy of every relation, [L, H, 2]."""
    right: dict[str, list] = defaultdict(list)
    for weights, (_, heads, relations, _) in zip(
        words_of_eager(folder, byte_level), gold(), strict=True
    ):
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            if head < 0:
                continue
            others = [n for n in range(len(heads)) if n != word]
            pair = []
            for one in (weights[:, :, word, others], weights[:, :, others, word]):
                pair.append(np.array(others)[one.argmax(-1)] == head)
            for name in ("all", relation.split(":")[0]):
                right[name].append(np.stack(pair, -1))
    return {name: np.mean(cases, axis=0) for name, cases in right.items()}


def same(report, expected: dict[str, np.ndarray]) -> None:
    assert set(expected) == {relation.name for relation in report.relations}
    for relation in report.relations:
        assert [one.head for one in relation.heads] == list(report.layout)
        found = np.array([(one.to_head, one.from_head) for one in relation.heads])
        wanted = expected[relation.name].reshape(-1, 2)
        np.testing.assert_allclose(found, wanted, atol=1e-12, err_msg=relation.name)


def test_all_heads_relations_and_directions_equal_eager_transformers(minilm: str) -> None:
    report = measured(model=minilm)
    assert report.source.backend == "native"
    same(report, by_hand(minilm))


@needs_transformers_5
@pytest.mark.parametrize("backend", ["native", "hooked"])
def test_causal_models_and_the_hooks_see_the_same_words(backend: Any) -> None:
    folder = str(DEMOS["demo-gpt2"])
    report = attnviz.syntax(SAMPLE, model=pretrained.load(folder, backend=backend))
    assert report.source.backend == backend
    same(report, by_hand(folder, byte_level=True))
    assert "In a causal model" in " ".join(report.notes)


def test_baselines_counts_and_halves_by_hand(minilm: str) -> None:
    report = measured(model=minilm, split="all")
    cases = [
        (relation.split(":")[0], head - word)
        for _, heads, relations, _ in gold()
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True))
        if head >= 0
    ]
    for relation in report.relations:
        own = [d for name, d in cases if relation.name in (name, "all")]
        assert relation.count == len(own)
        assert relation.offset_accuracy == max(own.count(d) for d in set(own)) / len(own)
        assert own.count(relation.offset) == max(own.count(d) for d in set(own))
        assert relation.best is not None
        assert relation.best.accuracy.value == max(
            max(one.to_head, one.from_head) for one in relation.heads
        )
    halves = measured(model=minilm)
    obj = next(relation for relation in halves.relations if relation.name == "obj")
    kitchen = sum(r.count("obj") for _, _, r, document in gold() if document == "kitchen")
    assert obj.best is not None
    assert obj.best.count == kitchen  # the first document, which is odd
    assert (halves.chosen_on, halves.measured_on) == ("even documents", "odd documents")


def test_subtypes_and_punctuation(minilm: str) -> None:
    names = {r.name for r in measured(model=minilm, subtypes=True).relations}
    assert {"nmod:poss", "acl:relcl", "obl:tmod"} <= names
    without = measured(model=minilm, punct=False)
    assert "punct" not in {relation.name for relation in without.relations}
    assert without.relations[0].count == 130


def test_the_interval_is_that_of_clusters() -> None:
    hits, count = np.array([30, 28, 22, 11, 9, 7]), np.array([40, 50, 41, 20, 12, 8])
    found = share(hits, count)
    p = 107 / 171
    v = 6 / 5 * ((hits - p * count) ** 2).sum() / 171**2
    assert found.value == pytest.approx(p)
    assert found.high == pytest.approx(p + 2.570582 * v**0.5)  # t(5)
    assert share(hits[:4], count[:4]) == Interval(91 / 151)  # too few to say how sure
    assert share(hits[:1], count[:1]) == Interval(0.75)
    assert share(hits[:0], count[:0]) == Interval(None)


def test_spans_say_which_word_a_token_belongs_to(minilm: str) -> None:
    text = "Oh, unbelievably (don't) 10 000."
    spans = ((4, 16), (18, 23), (25, 31), (31, 32))
    tokens = load(minilm).prepare(Prompt(text, words=spans)).sides["encoder"].queries
    pieces = dict.fromkeys(tokens.words, "")
    for piece, word in zip(tokens.texts, tokens.words, strict=True):
        pieces[word] += piece.replace("##", "")
    assert pieces.pop(-1) == "[CLS]oh,()[SEP]"
    assert list(pieces.values()) == ["unbelievably", "don't", "10000", "."]
    hidden = load("demo-gpt2").prepare(Prompt(text, words=spans)).sides["decoder"].queries
    assert {w for w in hidden.words if w >= 0} == set(range(4))


LINE = "{}\t{}\t_\tNOUN\t_\t_\t{}\tdep\t_\t_\n"
GOOD = LINE.format(1, "a", 2) + LINE.format(2, "b", 0) + "\n"
BROKEN = [
    (b"1\ta\t2\n", ":1: 3 columns; CoNLL-U has 10"),
    (b"a word\n", ":1: 1 column; CoNLL-U has 10"),
    (LINE.format(1, "a", 3) + LINE.format(2, "b", 0),
     ":1: its head is word 3, but the sentence has 2"),
    (LINE.format(1, "a", 2) + LINE.format(2, "b", 1), ":1: the heads above word 1 form a cycle"),
    (LINE.format(1, "a", 2) + LINE.format(2, "b", 9) + LINE.format(3, "c", 0),
     ":2: its head is word 9, but the sentence has 3 words"),
    (LINE.format("1" * 5000, "a", 0), ":1: word 11111111111111111111 follows word 0"),
    (LINE.format(1, "a", "1" * 5000), ":1: column 7 is '11111111111111111111'"),
    (LINE.format(1, "a", 0) + LINE.format(1, "b", 1), ":2: number 1 appears twice"),
    (LINE.format(1, "a", 0) + LINE.format(3, "b", 1), ":2: word 3 follows word 1"),
    (LINE.format(1, "a", "_"), ":1: column 7 is '_'"),
    (LINE.format("x", "a", 0), ":1: column 1 is 'x'"),
    (LINE.format(1, " ", 0), ":1: column 2 is empty"),
    (LINE.format(1, "é", 0).encode("latin-1"), ":1: line 1 is not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_what_cannot_be_used_is_named_and_counted(tmp_path, capsys, text, says: str) -> None:
    path = tmp_path / "t.conllu"
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(data)
    assert main(["syntax", str(path), "-m", "demo-bert"]) == 1
    error = capsys.readouterr().err
    assert f"t.conllu{says}" in error
    assert "has nothing usable" in error
    assert error.count("\n") == 1
    path.write_bytes(data + b"\n" + GOOD.encode())
    good, bad = sentences([str(path)], strict=False)
    assert (len(good), len(bad)) == (1, 1)
    with pytest.raises(InputError, match=r"t\.conllu"):
        sentences([str(path)], strict=True)


def test_numbers_that_nothing_reads_may_be_of_any_length(tmp_path) -> None:
    path = tmp_path / "t.conllu"
    path.write_text(LINE.format("1-" + "9" * 5000, "ab", "_") + LINE.format(1, "a", 0))
    (found,), bad = sentences([str(path)], strict=False)
    assert found.words == ("a",)
    assert not bad


def test_the_time_of_reading_grows_with_the_words_alone(tmp_path) -> None:
    path = tmp_path / "t.conllu"
    words = 20_000  # a chain in which every head is the next word: squared, that is minutes
    heads = [*range(2, words + 1), 0]
    path.write_text("".join(LINE.format(n, "a", head) for n, head in enumerate(heads, start=1)))
    start = process_time()
    (found,), _ = sentences([str(path)], strict=True)
    assert found.heads[-1] == -1
    assert process_time() - start < 10


def test_a_sentence_without_end_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("attnviz.corpus.conllu._MOST_LINES", 3)
    path = tmp_path / "t.conllu"
    path.write_text("".join(LINE.format(n, "a", n - 1) for n in range(1, 5)) + "\n" + GOOD)
    good, bad = sentences([str(path)], strict=False)
    assert (len(good), bad[0].reason) == (1, "a sentence of more than 3 lines")


def test_ranges_and_empty_nodes_are_skipped(tmp_path) -> None:
    path = tmp_path / "t.conllu"
    path.write_text(
        "# text = dámelo\n1-2\tdámelo\t_\t_\t_\t_\t_\t_\t_\t_\n"
        + LINE.format(1, "dá", 0)
        + LINE.format(2, "melo", 1)
        + "2.1\tx\t_\t_\t_\t_\t_\t_\t1:dep\t_\n"
    )
    (found,), _ = sentences([str(path)], strict=True)
    assert (found.words, found.heads) == (("dá", "melo"), (-1, 0))


def test_a_sentence_that_is_too_long_is_left_out_and_counted(tmp_path) -> None:
    path = tmp_path / "t.conllu"
    long = "".join(LINE.format(n, "word", n - 1) for n in range(1, 300))
    path.write_text(long + "\n" + GOOD * 3)
    report = attnviz.syntax(path, model="demo-bert")
    assert (report.sentences, report.unit) == (3, "sentences")
    assert report.skipped["refused by the model"] == 1
    with pytest.raises(InputError, match="at most 256 tokens"):
        attnviz.syntax(path, model="demo-bert", strict=True)


def test_words_without_a_token_do_not_count() -> None:
    source = load("demo-bert")
    sentence = Sentence(1, "x:1", "x", 1, ("a", "\u200d", "b"), (2, 2, -1), ("det", "dep", "root"))
    report = run(source, [sentence], SyntaxSettings(split="all"))
    assert report.untokenized == 1
    assert [relation.name for relation in report.relations] == ["all", "det"]


def test_roles_are_held_out(minilm: str, tmp_path) -> None:
    """The head that finds objects is named where there are sentences enough."""
    path = tmp_path / "t.conllu"
    path.write_text(treebank(80))
    report = attnviz.syntax(path, model=minilm)
    assert report.unit == "sentences"
    named = {(report.layout.name(role.head), role.title) for role in report.roles}
    assert ("2.0", "syntactic: obj") in named
    assert report.asked >= len(report.roles)
    for role in report.roles:
        assert role.accuracy.value >= 0.25
        assert role.margin.value >= 0.1
        assert role.margin.low > 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("minilm", marks=pytest.mark.slow),
        "demo-bert",
        pytest.param("demo-gpt2", marks=pytest.mark.slow),
    ],
)
def test_untrained_weights_have_no_role(name: str, minilm: str, tmp_path) -> None:
    path = tmp_path / "t.conllu"
    path.write_text(treebank(60))
    model = minilm if name == "minilm" else name
    report = attnviz.syntax(path, model=model, punct=False, control=1)
    drawn, shuffled = report.untrained
    assert [drawn.scale, shuffled.scale] == ["default", "trained"]
    assert "obj" in {role.relation for role in report.roles}
    assert not drawn.roles
    assert not shuffled.roles
    assert drawn.seed == report.seed == 0
    assert [r.count for r in drawn.relations] == [r.count for r in report.relations]
    document = report.to_dict()
    assert document["untrained"][0]["roles"] == []


def test_the_control_stands_in_the_table(tmp_path, capsys) -> None:
    kept = tmp_path / "control.json"
    line = ["syntax", str(SAMPLE), "-m", "demo-bert", "--split", "all", "--control", "2", "-q"]
    assert main([*line, "-o", str(kept)]) == 0
    out = capsys.readouterr().out
    report = attnviz.read(kept)
    assert [(one.seed, one.scale) for one in report.untrained] == [
        (0, "default"), (1, "default"), (0, "trained"), (1, "trained")
    ]  # fmt: skip
    best = [one.relations[0].best.accuracy.value for one in report.untrained]
    row = next(text for text in out.splitlines() if text.startswith("all "))
    assert row.split()[-2:] == [f"{100 * max(some):.0f}" for some in (best[:2], best[2:])]
    assert "untrained (seeds 0, 1): 0, 0 of 24 heads syntactic" in " ".join(out.split())
    assert main([*line, "--control", "101"]) == 2
    assert "--control must be from 0 to 100, not 101" in capsys.readouterr().err
    assert main([*line, "--seed", "-1"]) == 2
    assert "--seed must be at least 0, not -1" in capsys.readouterr().err


def table(count: list[int], hits: list[int]) -> HitTable:
    """A relation with one head, which no offset ever finds but the chosen half's."""
    documents = np.arange(1, len(count) + 1)
    found = np.stack([np.array(hits, np.int32)[:, None]] * 2, -1)
    offsets, odd = np.zeros((len(count), 1), np.int64), documents % 2 == 1
    return HitTable(documents, np.array(count), found, offsets, [1], ~odd, odd)


@pytest.mark.parametrize(
    ("count", "documents", "named"), [(3, 20, True), (2, 20, False), (30, 18, False)]
)
def test_a_role_needs_cases_and_documents(count: int, documents: int, named: bool) -> None:
    """30 held-out cases from 10 documents."""
    whole = table([count] * documents, [count - n // 2 % 2 for n in range(documents)])
    assert whole.enough() == named
    ((_, _, p),) = whole.candidates()
    assert sure([p], 1) == [True]


def test_a_head_that_is_right_in_every_document_has_an_interval_and_a_role() -> None:
    """Of 10 documents that all agree: q^10 = 0.025 at the lower end."""
    whole = table([4] * 20, [4] * 20)
    ((number, direction, p),) = whole.candidates()
    accuracy, count, offset, of_offset, margin = whole.lead(number, direction)
    assert (accuracy.value, count, offset, of_offset) == (1.0, 40, 1, 0.0)
    assert accuracy.low == pytest.approx(0.025**0.1)
    assert accuracy.high == 1.0
    assert margin.low == pytest.approx(2 * 0.025**0.1 - 1)
    assert p == pytest.approx(0.5**10)
    assert share(np.array([1] * 4), np.array([1] * 4)).low is None


def test_a_role_is_corrected_for_all_questions_and_takes_a_quarter_of_the_cases() -> None:
    assert sure([0.01, 0.02], 2) == [True, True]
    assert sure([0.01, 0.03], 3) == [True, False]
    assert sure([0.01], 6) == [False]
    margin = Interval(0.16, 0.12, 0.2)
    assert not large(Interval(0.17, 0.14, 0.2), margin)
    assert large(Interval(0.3, 0.26, 0.34), margin)


def test_the_table(minilm: str, capsys) -> None:
    assert main(["syntax", str(SAMPLE), "-m", minilm, "--relation", "obj,det"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["obj", "det"]
    assert "2.0" in out.splitlines()[2]
    assert "no intervals" in err


def test_without_a_seed_nothing_was_drawn() -> None:
    assert attnviz.syntax(SAMPLE, model="demo-bert").seed is None


def test_roles_are_evidence_beside_the_offset() -> None:
    one = results.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3), 200)
    other = results.relation_head("1.2", "det", (0.9, 0.8, 1.0), (0.5, 0.4, 0.6), 40)
    found = results.syntax(roles=[one, other]).annotated_roles()
    assert list(found) == [Head(Site("encoder", 1), 2)]
    (first, estimate), (second, _) = found[one.head]
    assert [first.title, second.title] == ["syntactic: obj", "syntactic: det"]
    assert (first.evidence.mean, first.evidence.chance, first.evidence.lift) == (0.75, 0.5, 1.5)
    assert (estimate.low, estimate.high, estimate.rows) == (0.7, 0.8, 200)
    nothing = replace(one, offset_accuracy=0.0)
    ((role, _),) = results.syntax(roles=[nothing]).annotated_roles()[one.head]
    assert role.evidence.lift is None
