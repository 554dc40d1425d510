"""Mentions of CorefUD: the reader, and heads against an independent computation."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.cli import main
from attnviz.errors import InputError
from attnviz.features.coref.mentions import Document, documents, windows
from attnviz.features.coref.result import Coref
from tests import ROOT
from tests.corpus.gold.reference import eager, maps_of_eager

SAMPLE = ROOT / "sample_inputs" / "treebank.conllu"


# -- the reader -------------------------------------------------------------------------------

WORD = "{}\t{}\t_\t{}\t_\t{}\t{}\tdep\t_\t{}\n"


@cache
def measured(**asked: Any) -> Coref:
    """The sample, once for all tests that ask the same of it."""
    return attnviz.coref(SAMPLE, **asked)


def text(*rows: tuple[str, str, str, int, str], comments: str = "# newdoc\n") -> str:
    """A sentence of (number, word, part of speech, head, Entity)."""
    lines = [
        WORD.format(number, word, *[*upos.split("/"), "_"][:2], head, entity or "_")
        for number, word, upos, head, entity in rows
    ]
    return comments + "".join(lines) + "\n"


def read(tmp_path: Path, content: str) -> list[Document]:
    path = tmp_path / "t.conllu"
    path.write_text(content)
    return documents([str(path)], strict=True)[0]


def heads(document: Document) -> list[tuple[int, str, str]]:
    return [(one.word, one.entity, one.kind) for one in document.mentions]


def test_brackets_nested_crossing_and_several_to_a_word(tmp_path) -> None:
    (found,) = read(
        tmp_path,
        text(
            ("1", "her", "PRON", 2, "Entity=(e1-person-2(e2-person-1)(e9--2"),
            ("2", "sister", "NOUN", 3, "Entity=e1)"),
            ("3", "saw", "VERB", 0, "SpaceAfter=No|Entity=e9)"),
            ("4", "Ann", "PROPN", 3, "Entity=(e3-person-1)"),
            ("5", "ses", "DET/PronType=Prs", 4, "Entity=(e4)"),
        ),
    )
    assert heads(found) == [
        (0, "e2", "pronoun"), (1, "e1", "nominal"), (1, "e9", "nominal"), (3, "e3", "proper"),
        (4, "e4", "pronoun"),
    ]  # fmt: skip


def test_parts_of_a_mention_are_one_and_its_head_counts_over_both(tmp_path) -> None:
    (found,) = read(
        tmp_path,
        text(
            ("1", "the", "DET", 2, "Entity=(e1[1/2]-x-3"),
            ("2", "cooks", "NOUN", 3, "Entity=e1[1/2])"),
            ("3", "came", "VERB", 0, ""),
            ("4", "both", "DET", 2, "Entity=(e1[2/2]-x-3)"),
        ),
    )
    assert heads(found) == [(3, "e1", "other")]


def test_without_a_head_the_tree_has_it_and_the_comment_says_where(tmp_path) -> None:
    sentence = (
        ("1", "the", "DET", 2, "Entity=(2-person-e1"), ("2", "cook", "NOUN", 4, ""),
        ("3", "upstairs", "ADV", 2, "Entity=e1)"), ("4", "sang", "VERB", 0, "Entity=(-x-e2)"),
    )  # fmt: skip
    named = "# newdoc\n# global.Entity = minspan-etype-eid\n"
    first, second = read(
        tmp_path, text(*sentence, comments=named) + text(*sentence, comments="# newdoc id = 2\n")
    )
    assert heads(first) == [(1, "e1", "nominal"), (3, "e2", "other")]
    assert heads(second) == heads(first)  # the comment holds for the rest of the file


def test_empty_nodes_are_counted_and_words_of_a_mention(tmp_path) -> None:
    (found,) = read(
        tmp_path,
        text(
            ("1", "came", "VERB", 0, ""), ("1.1", "_", "PRON", 0, "Entity=(e1-person-1)"),
            ("2-3", "du", "_", 0, ""), ("2", "de", "ADP", 3, "Entity=(e2-place-2"),
            ("2.1", "_", "X", 0, ""), ("3", "lac", "NOUN", 1, "Entity=e2)"),
            ("4", "lac", "NOUN", 1, "Entity=(e3-place-"), ("4.1", "_", "X", 0, "Entity=e3)"),
        ),
    )  # fmt: skip
    assert found.empty == 2  # e1, and e2 whose second word is an empty node
    assert heads(found) == [(3, "e3", "nominal")]


BROKEN = [
    ("Entity=e1)", ":2: e1) closes a mention that is not open; (e1-person-1 opens a mention"),
    ("Entity=(e1-person-1", ":2: the mention of e1 that opens here never closes"),
    ("Entity=e1", ":2: Entity=e1 cannot be read; (e1-person-1 opens"),
    ("Entity=()", ":2: Entity=() cannot be read"),
    ("Entity=(-person-1)", ":2: (-person-1) names no entity"),
    ("Entity=(e1-person-7)",
     ":2: the head of a mention of e1 is given as word '7' of it, but it has 1"),
    ("Entity=(e1-person-x)", ":2: the head of a mention of e1 is given as word 'x'"),
    ("Entity=(e1-person-" + "1" * 5000 + ")",
     ":2: the head of a mention of e1 is given as word '1111"),
    ("Entity=" + "(e1)" * 101, ":2: 101 mentions begin or end here, more than 100"),
    ("Entity=" + "a" * 1_000_000, ":2: Entity=aaaa"),
    ("Entity=(e1[2/2]-person-1)", ":2: e1[2/2] comes where [1/2] is expected"),
    ("Entity=(e1[1/2]-person-1)", ":2: e1[2/2] is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("entity", "says"), BROKEN)
def test_annotation_that_cannot_be_read_is_one_line(tmp_path, capsys, entity, says) -> None:
    path = tmp_path / "t.conllu"
    broken = text(("1", "Ann", "PROPN", 0, entity))
    path.write_text(broken)
    assert main(["coref", str(path), "-m", "demo-bert"]) == 1
    error = capsys.readouterr().err
    assert f"t.conllu{says}" in error
    assert error.count("\n") == 1
    path.write_text(broken + SAMPLE.read_text())
    good, bad = documents([str(path)], strict=False)
    assert (len(good), len(bad)) == (2, 1)
    with pytest.raises(InputError, match=r"t\.conllu:2: "):
        documents([str(path)], strict=True)


def test_only_so_many_mentions_are_open_at_once(tmp_path) -> None:
    path = tmp_path / "t.conllu"
    rows = [(str(n), "a", "X", n - 1, f"Entity=(e{n}") for n in range(1, 102)]
    path.write_text(text(*rows))
    with pytest.raises(InputError, match=r":102: more than 100 mentions are open at once"):
        documents([str(path)], strict=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (text(("1", "a", "X", 0, "")), "has no mention: no word has Entity= in its last column"),
        (text(("1", "a", "X", 0, "Entity=(e1)")), "no mention has an antecedent within 128 tokens"),
        ("# newdoc\n", "no sentence in it; a CoNLL-U file has ten columns"),
        ("# global.Entity = x-y\n" + WORD.format(1, "a", "X", "_", 0, "_"), "'x-y', without eid"),
        ("1\ta\n", ":1: 2 columns; CoNLL-U has 10"),
        (
            text(("1", "a", "X", 2, "Entity=(e1)")),
            ":2: its head is word 2, but the sentence has 1 words",
        ),
    ],
)
def test_what_holds_nothing_to_measure_says_so(tmp_path, capsys, content, says) -> None:
    path = tmp_path / "t.conllu"
    path.write_text(content)
    assert main(["coref", str(path), "-m", "demo-bert"]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_formats_are_told_apart_by_what_they_hold(tmp_path, capsys) -> None:
    path = tmp_path / "mentions.txt"
    path.write_bytes(b"\xef\xbb\xbf" + SAMPLE.read_bytes())
    assert attnviz.coref(path, model="demo-bert").data == "mentions"
    table = ROOT / "sample_inputs" / "pronouns.tsv"
    assert main(["coref", str(SAMPLE), str(table), "-m", "demo-bert"]) == 1
    assert "is CoNLL-U and" in capsys.readouterr().err


# -- windows ----------------------------------------------------------------------------------


def test_windows_are_whole_sentences_as_many_as_fit() -> None:
    (kitchen, _), _ = documents([str(SAMPLE)], strict=True)
    sizes: list[int | None] = [len(one.words) for one in kitchen.sentences]
    assert sizes == [10, 7, 11, 7, 7, 8, 6, 9, 8, 10]
    sizes[4] = None
    found = list(windows(kitchen, sizes, 20, 1))
    assert [len(one.words) for one in found] == [17, 18, 14, 17, 10]
    assert [one.number for one in found] == [1, 2, 3, 4, 5]
    assert found[0].prompt.text is not None
    assert found[0].prompt.text.startswith("The cook found an old key")
    assert [(m.word, m.entity) for m in found[1].mentions][:2] == [(1, "e2"), (9, "e5")]
    assert found[1].elsewhere == 3  # the key, the sister and the cook are known by then
    assert [len(one.words) for one in windows(kitchen, sizes, 1, 1)] == [
        size for size in sizes if size
    ]


# -- heads ------------------------------------------------------------------------------------


def gold() -> list[tuple[list[str], list[tuple[int, str, str]], str]]:
    """Words, mentions (head word, entity, part of speech) and name of each document, by hand."""
    found: list[tuple[list[str], list[tuple[int, str, str]], str]] = []
    for block in SAMPLE.read_text().strip().split("\n\n"):
        if "# newdoc" in block:
            found.append(([], [], block.split("# newdoc id = ")[1].split("\n")[0]))
        words, mentions, _ = found[-1]
        rows = [line.split("\t") for line in block.splitlines() if line[0] != "#"]
        for place, row in enumerate(rows):
            entity = [x for x in row[9].split("|") if x.startswith("Entity=")]
            for opening in entity[0][7:].split("(")[1:] if entity else []:
                name, _, head = opening.split("-")[:3]
                at = place + int(head) - 1
                mentions.append((len(words) + at, name, rows[at][3]))
        words += [row[1] for row in rows]
    return found


def by_hand(folder: str, only_mentions: bool) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Accuracy of eager transformers in float64 by kind, [L * H, 2], and of the baselines."""
    tokenizer, _ = eager(folder)
    right: dict[str, list[Any]] = defaultdict(list)
    baselines: dict[str, list[bool]] = defaultdict(list)
    for words, mentions, _ in gold():
        owner, ids = [-1], [tokenizer.cls_token_id]
        for number, word in enumerate(words):
            pieces = tokenizer(word, add_special_tokens=False)["input_ids"]
            ids += pieces
            owner += [number] * len(pieces)
        ids, owner = [*ids, tokenizer.sep_token_id], [*owner, -1]
        assert len(ids) <= 128
        maps = np.concatenate(maps_of_eager(folder, ids))
        tokens = [[k for k, n in enumerate(owner) if n == word] for word in range(len(words))]
        to = np.stack([maps[:, :, t].sum(2) for t in tokens], 2)  # [N, T, W]
        weights = np.stack([to[:, t].mean(1) for t in tokens], 1)  # [N, W, W]
        for word, entity, upos in mentions:
            before = sorted({w for w, _, _ in mentions if w < word})
            answers = {w for w, e, _ in mentions if w < word and e == entity}
            if not answers:
                continue
            places = before if only_mentions else [w for w in range(len(words)) if w != word]
            pair = [
                np.isin(np.array(places)[side[:, places].argmax(1)], sorted(answers))
                for side in (weights[:, word], weights[:, :, word])
            ]
            kind = {"PRON": "pronoun", "PROPN": "proper", "NOUN": "nominal"}[upos]
            for name in ("all", kind):
                right[name].append(np.stack(pair, -1))
            same = [w for w in before if words[w].lower() == words[word].lower()]
            baselines["nearest"].append(before[-1] in answers)
            baselines["first"].append(before[0] in answers)
            baselines["same_word"].append((same or before)[-1] in answers)
    return (
        {name: np.mean(cases, axis=0) for name, cases in right.items()},
        {name: float(np.mean(cases)) for name, cases in baselines.items()},
    )


@pytest.mark.parametrize("candidates", ["words", "mentions"])
def test_all_heads_kinds_and_directions_equal_eager_transformers(
    minilm: str, candidates: str
) -> None:
    report = measured(model=minilm, candidates=candidates)
    expected, baselines = by_hand(minilm, candidates == "mentions")
    assert {kind.name for kind in report.kinds} == set(expected)
    found = {one.name: one.accuracy for one in report.everything.baselines}
    assert found == pytest.approx(baselines)
    for kind in report.kinds:
        heads = np.array([(one.to_name, one.from_name) for one in kind.heads])
        np.testing.assert_allclose(heads, expected[kind.name], atol=1e-12, err_msg=kind.name)
    assert report.examples == 27
    assert sum(kind.count for kind in report.kinds[1:]) == 27


def test_halves_and_the_best_are_by_hand(minilm: str) -> None:
    report = measured(model=minilm)
    assert (report.chosen_on, report.measured_on) == ("even documents", "odd documents")
    kitchen = [one for one in gold() if one[2] == "kitchen"]
    (_, mentions, _) = kitchen[0]
    count = sum(
        any(w < word and e == entity for w, e, _ in mentions) for word, entity, _ in mentions
    )
    assert report.best is not None
    assert report.best.count == count
    everything = measured(model=minilm, split="all")
    assert everything.best is not None
    assert everything.best.accuracy.value == max(
        max(one.to_name, one.from_name) for one in everything.everything.heads
    )
    assert everything.best.baseline == "same_word"


def test_causal_models_have_rows_only() -> None:
    report = measured(model="demo-gpt2")
    assert {one.from_name for kind in report.kinds for one in kind.heads} == {None}


def test_short_windows_leave_antecedents_behind_and_say_so(minilm: str, capsys) -> None:
    report = measured(model=minilm, window=24)
    assert report.window == 24
    assert report.examples < 27
    lost = report.skipped["mentions whose antecedents are all in another window"]
    assert report.examples + lost == 27
    assert main(["coref", str(SAMPLE), "-m", minilm, "--window", "24"]) == 0
    assert f"{lost} left out: mentions whose antecedents" in capsys.readouterr().err


def test_a_sentence_longer_than_the_model_is_left_out(tmp_path) -> None:
    long = "# newdoc\n" + "".join(
        WORD.format(n, "word", "NOUN", "_", n - 1, "_") for n in range(1, 300)
    )
    path = tmp_path / "t.conllu"
    path.write_text(f"{long}\n{SAMPLE.read_text()}")
    report = attnviz.coref(path, model="demo-bert")
    assert report.examples == 27
    assert report.skipped["sentences too long for the model"] == 1
    with pytest.raises(InputError, match=r"t\.conllu:1: .*256"):
        attnviz.coref(path, model="demo-bert", strict=True)


def test_one_document_is_taken_window_by_window(tmp_path, minilm: str) -> None:
    path = tmp_path / "t.conllu"
    path.write_text(SAMPLE.read_text().split("# newdoc id = harbour")[0])
    report = attnviz.coref(path, model=minilm, window=40)
    assert report.unit == "windows"
    assert report.chosen_on == "even windows"
    assert "single document" in " ".join(report.notes)
