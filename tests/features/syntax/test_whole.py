"""Trees and all heads together, against eager transformers and an independent computation."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz
from attnviz.cli import main
from attnviz.errors import InputError
from attnviz.features.syntax import combine
from attnviz.features.syntax.result import Combined
from attnviz.features.syntax.trees import arborescence, rooted, spanning
from attnviz.models.demo import DEMOS
from tests.checkpoints import needs_transformers_5
from tests.corpus.gold.reference import SAMPLE, gold, words_of_eager
from tests.corpus.gold.sentences import treebank


def heaviest(weights: np.ndarray) -> set[tuple[int, int]]:
    """Kruskal's algorithm on one head, [W, W], as in a textbook."""
    words = len(weights)
    tree = list(range(words))
    edges = sorted(combinations(range(words), 2), key=lambda e: -(weights[e] + weights[e[::-1]]))
    found = set()
    for left, right in edges:
        if tree[left] != tree[right]:
            found.add((left, right))
            tree = [tree[left] if part == tree[right] else part for part in tree]
    return found


def test_a_tree_by_hand() -> None:
    """Four words, weights one way: 0-3 and 2-3 are heaviest, 0-2 would close a circle."""
    weights = np.zeros((1, 4, 4))
    for (i, j), weight in {(3, 0): 0.9, (2, 3): 0.8, (0, 2): 0.7, (1, 2): 0.1, (1, 0): 0.2}.items():
        weights[0, i, j] = weight
    pairs = np.stack(np.triu_indices(4, 1), 1)[spanning(weights)[0]]
    assert {tuple(pair) for pair in pairs.tolist()} == {(0, 3), (2, 3), (0, 1)}
    alike = np.stack(np.triu_indices(4, 1), 1)[spanning(np.zeros((2, 4, 4)))[1]]
    assert alike.tolist() == [[0, 1], [0, 2], [0, 3]]


def test_trees_are_spanning_and_heaviest() -> None:
    weights = np.random.default_rng(0).random((5, 9, 9))
    pairs = np.stack(np.triu_indices(9, 1), 1)
    for head, chosen in zip(weights, spanning(weights), strict=True):
        assert {tuple(pair) for pair in pairs[chosen].tolist()} == heaviest(head)


def test_arborescences_are_those_of_networkx() -> None:
    """Of random weights, with a root that no edge leads to."""
    networkx = pytest.importorskip("networkx")
    random = np.random.default_rng(1)
    for words in (2, 3, 5, 9, 14):
        weights = random.random((4, words, words)) ** 3
        root = words // 2
        pairs = np.stack(np.triu_indices(words, 1), 1)
        for one, chosen in zip(weights, rooted(weights, root), strict=True):
            graph = networkx.DiGraph()
            graph.add_weighted_edges_from(
                (i, j, one[i, j])
                for i in range(words)
                for j in range(words)
                if i != j and j != root
            )
            expected = set(networkx.maximum_spanning_arborescence(graph).edges)
            parents = arborescence(one, root)
            assert {(int(parents[j]), j) for j in range(words) if j != root} == expected
            undirected = {tuple(sorted(edge)) for edge in expected}
            assert {tuple(pair) for pair in pairs[chosen].tolist()} == undirected


@needs_transformers_5
@pytest.mark.parametrize("name", ["minilm", "demo-gpt2"])
def test_trees_of_all_heads_equal_eager_transformers(name: str, minilm: str) -> None:
    folder = minilm if name == "minilm" else str(DEMOS[name])
    report = attnviz.syntax(SAMPLE, model=folder, also="trees", punct=False)
    hits, count, chain = [], 0, 0
    for weights, (_, heads, relations, _) in zip(
        words_of_eager(folder, name != "minilm"), gold(), strict=True
    ):
        ends = [
            tuple(sorted((word, head)))
            for word, (head, relation) in enumerate(zip(heads, relations, strict=True))
            if head >= 0 and relation != "punct"
        ]
        flat = weights.reshape(-1, *weights.shape[2:])
        hits.append([len(heaviest(head) & set(ends)) for head in flat])
        count += len(ends)
        chain += sum(pair in set(pairwise(range(len(heads)))) for pair in ends)
    assert report.trees is not None
    assert report.trees.count == count
    assert report.trees.chain == chain / count
    assert [one.head for one in report.trees.heads] == list(report.layout)
    uuas = [one.uuas for one in report.trees.heads]
    np.testing.assert_allclose(uuas, np.sum(hits, 0) / count, atol=1e-12)


def scored(weights: np.ndarray, found: Combined) -> np.ndarray:
    """[W, W]: how likely the classifier takes the second for the head of the first."""
    flat = weights.reshape(-1, *weights.shape[2:])
    there = np.tensordot([one.to_head for one in found.weights], flat, 1)
    back = np.tensordot([one.from_head for one in found.weights], flat, 1)
    return np.asarray(there + back.T)


@pytest.mark.slow
def test_the_classifier_is_the_best_there_is_and_is_measured_elsewhere(minilm: str) -> None:
    """Its slope is zero on the even document, its accuracy is that on the odd one."""
    report = attnviz.syntax(SAMPLE, model=minilm, also="combined", control=1)
    found = report.combined
    assert found is not None
    assert [one.head for one in found.weights] == list(report.layout)
    theta = torch.tensor(
        [one.to_head for one in found.weights] + [one.from_head for one in found.weights],
        dtype=torch.float64,
    )
    theta.requires_grad_(True)
    loss, cases, right, measured = torch.zeros(1, dtype=torch.float64), 0, 0, 0
    for weights, (_, heads, _, document) in zip(words_of_eager(minilm, False), gold(), strict=True):
        flat = torch.from_numpy(weights.reshape(-1, *weights.shape[2:]))
        both = torch.cat([flat, flat.transpose(1, 2)])  # [2N, from, to]
        scores = torch.tensordot(theta, both, 1).fill_diagonal_(-torch.inf)
        words = [word for word, head in enumerate(heads) if head >= 0]
        goal = torch.tensor([heads[word] for word in words])
        if document == "kitchen":
            mine = scored(weights, found)
            np.fill_diagonal(mine, -np.inf)
            right += int((mine[words].argmax(1) == goal.numpy()).sum())
            measured += len(words)
        else:
            loss = loss + torch.nn.functional.cross_entropy(scores[words], goal, reduction="sum")
            cases += len(words)
    assert (found.trained, found.count) == (cases, measured)
    assert found.uas.value == pytest.approx(right / measured)
    mean = loss / cases + combine.PENALTY / 2 * (theta**2).sum()
    mean.backward()
    assert theta.grad is not None
    assert float(theta.grad.abs().max()) < 1e-4
    assert float(mean.detach()) < 1.0


def written(tmp_path: Path, count: int = 200) -> Path:
    path = tmp_path / "t.conllu"
    path.write_text(treebank(count))
    return path


@pytest.mark.slow
def test_all_heads_know_more_than_one_and_than_untrained_weights(minilm: str, tmp_path) -> None:
    report = attnviz.syntax(
        written(tmp_path, 100), model=minilm, punct=False, also="combined,trees,rooted-trees",
        control=1,
    )  # fmt: skip
    found, best = report.combined, report.relations[0].best
    drawn, shuffled = report.untrained
    assert found is not None
    assert best is not None
    assert found.uas.value > best.accuracy.value + 0.1
    assert found.margin.low > 0.1
    assert found.margin.value == pytest.approx(found.uas.value - found.offset_accuracy)
    assert [one.scale for one in found.controls] == ["default", "trained"]
    for one in found.controls:
        assert one.margin.low > 0.1
        assert one.margin.value == pytest.approx(found.uas.value - one.uas.value)
    assert report.rooted is not None
    assert report.rooted.chain == report.trees.chain
    assert shuffled.rooted is not None
    assert report.trees is not None
    assert drawn.trees is not None
    assert report.trees.best.margin.low > 0 > drawn.trees.best.margin.value
    document = report.to_dict()
    assert document["combined"]["uas"]["value"] == found.uas.value
    assert document["untrained"][0]["trees"]["chain"] == document["trees"]["chain"]


def test_what_there_is_no_room_for_is_left_out_and_said(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(combine, "ROOM", 8 * 24 * 12**2 * 10)
    path = written(tmp_path, 30)
    options = ["-m", "demo-bert", "--also", "combined,trees", "--control", "1", "-q"]
    assert main(["syntax", str(path), *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "of 15 sentences were not trained on" in out
    assert "chain of neighbours" in out
    assert "all heads, untrained" in out
    assert "all heads, shuffled" in out


def test_one_sentence_is_not_enough_to_train_on(tmp_path) -> None:
    with pytest.raises(InputError, match="no dependency is left to train"):
        attnviz.syntax(written(tmp_path, 1), model="demo-bert", also="combined")
