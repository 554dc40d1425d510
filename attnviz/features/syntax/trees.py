"""The maximum spanning trees of every head over the words of a sentence, in two ways.

``undirected``: an edge of two words weighs what the head gives from one to the other and back, and
the tree has the edges that weigh most together (Prim 1957).

``rooted``: edges lead from the word that looks to the word that is looked at and weigh what is
given; the tree starts at the gold root and every other word has one edge to it (Htut et al. 2019,
arXiv:1911.12246; Chu & Liu 1965, Edmonds 1967). Each word hangs on one that looks at it, so that a
tree is told what the root is and which way to look.

The figure of both is UUAS, the share of dependencies that are edges of the tree, whichever way they
go. What needs no head is the chain in which every word hangs on its neighbour; a right-branching
tree has its edges.

Notation in shapes: N heads, W words, P pairs of words, D documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Integers
from attnviz.core.prompt import Inputs
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold.cases import Cases, Gold, Loader, Task, WordMaps, present
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import ALL, HitTable, HitTally
from attnviz.corpus.running import answered, executor, of_model
from attnviz.features.syntax.result import TreeChoice, TreeHead, Trees
from attnviz.scoring.observe import observe

Weights = NDArray[np.floating]
TreeMethod = Literal["undirected", "rooted"]  # how a head's weights make a tree, see the module


def spanning(weights: Weights) -> NDArray[np.bool_]:
    """Find each head's maximum spanning tree of ``weights`` [N, W, W]; edges [N, P], first wins."""
    heads, words, _ = weights.shape
    left, right = np.triu_indices(words, 1)
    both = weights[:, left, right] + weights[:, right, left]
    cost = np.empty(both.shape)  # 1 for the heaviest, so that no two are alike
    np.put_along_axis(
        cost, np.argsort(-both, axis=1, kind="stable"), np.arange(1.0, both.shape[1] + 1), axis=1
    )
    numbers = np.full((words, words), -1)
    numbers[left, right] = numbers[right, left] = np.arange(len(left))
    costs = np.where(numbers < 0, np.inf, cost[:, numbers])  # [N, W, W]
    all_heads, edges = np.arange(heads), np.zeros(both.shape, np.bool_)
    near, least = np.zeros((heads, words), np.int64), costs[:, 0].copy()
    costs[:, :, 0] = np.inf  # no edge leads to what is inside
    for _ in range(words - 1):  # from the first word, the cheapest edge that leaves the tree
        word = least.argmin(1)
        edges[all_heads, numbers[word, near[all_heads, word]]] = True
        costs[all_heads, :, word] = np.inf
        least[all_heads, word] = np.inf
        closer = costs[all_heads, word] < least
        near[closer] = np.broadcast_to(word[:, None], closer.shape)[closer]
        least = np.where(closer, costs[all_heads, word], least)
    return edges


def rooted(weights: Weights, root: int) -> NDArray[np.bool_]:
    """Find each head's maximum arborescence, of ``weights`` [N, W, W] as :func:`spanning`."""
    heads, words, _ = weights.shape
    left, right = np.triu_indices(words, 1)
    numbers = np.zeros((words, words), np.int64)
    numbers[left, right] = numbers[right, left] = np.arange(len(left))
    dependents = np.delete(np.arange(words), root)
    edges = np.zeros((heads, len(left)), np.bool_)
    for head, scores in enumerate(np.asarray(weights, np.float64)):
        edges[head, numbers[arborescence(scores, root)[dependents], dependents]] = True
    return edges


def arborescence(score: Weights, root: int) -> Integers:
    """Find every word's parent in the heaviest tree; ``score`` [W, W] from parent to child."""
    score = score.astype(np.float64)
    np.fill_diagonal(score, -np.inf)
    score[:, root] = -np.inf
    parent: Integers = score.argmax(0)
    parent[root] = root
    cycle = _cycle(parent)
    if cycle is None:
        return parent
    out = np.setdiff1d(np.arange(len(score)), cycle)
    into = score[np.ix_(out, cycle)] - score[parent[cycle], cycle]  # for the edge that it replaces
    outgoing = score[np.ix_(cycle, out)]
    entry, leave = into.argmax(1), outgoing.argmax(0)
    small = np.full((len(out) + 1, len(out) + 1), -np.inf)  # the cycle as one word, the last
    small[:-1, :-1] = score[np.ix_(out, out)]
    small[:-1, -1], small[-1, :-1] = into.max(1), outgoing.max(0)
    chosen = arborescence(small, int(np.searchsorted(out, root)))
    inside = chosen[:-1] == len(out)
    parent[out] = np.where(inside, cycle[leave], out[np.where(inside, 0, chosen[:-1])])
    parent[cycle[entry[chosen[-1]]]] = out[chosen[-1]]
    parent[root] = root
    return parent


def _cycle(parent: Integers) -> Integers | None:
    """Return the words of some cycle, sorted; None where every word leads to the root."""
    state = [0] * len(parent)
    above = parent.tolist()
    for start in range(len(above)):
        word = start
        while state[word] == 0:
            state[word] = start + 1
            word = above[word]
        if state[word] == start + 1 and above[word] != word:
            cycle = [word]
            while above[cycle[-1]] != word:
                cycle.append(above[cycle[-1]])
            return np.array(sorted(cycle))
    return None


class _Growing(WordMaps):
    """Counts the dependencies in every head's tree, [N] for each sentence."""

    def __init__(self, task: Task, method: TreeMethod) -> None:
        super().__init__(task.batch)
        self._method, self._roots = method, [gold.root for gold in task.gold]
        self._gold = [
            _edges(inputs, gold) for inputs, gold in zip(task.batch, task.gold, strict=True)
        ]

    def of(self, maps: Array) -> list[Integers]:
        """[H] of each sentence."""
        hits = []
        items = zip(arrays.to_numpy(maps), self._gold, self._roots, strict=True)
        for sentence_maps, (words, pairs), root in items:
            edges = np.zeros((len(sentence_maps), 0), np.bool_)
            if len(pairs):
                word_maps = sentence_maps[:, words][:, :, words]
                start = int(np.searchsorted(words, root)) % len(words)
                tree = rooted(word_maps, start) if self._method == "rooted" else spanning(word_maps)
                edges = tree[:, pairs]
            hits.append(edges.sum(1))
        return hits


def _edges(inputs: Inputs, gold: Gold) -> tuple[Integers, Integers]:
    """Return the words that have tokens, and which pairs of them are dependencies."""
    width = 1 + max((*gold.words.tolist(), *gold.heads.tolist(), *inputs.tokens.words))
    words = np.flatnonzero(present(inputs, width))
    columns = np.zeros(width, np.int64)
    columns[words] = np.arange(len(words))
    ends = np.sort(np.stack([columns[gold.words], columns[gold.heads]]), axis=0)
    left, right = np.triu_indices(len(words), 1)
    numbers = np.zeros((len(words), len(words)), np.int64)
    numbers[left, right] = np.arange(len(left))
    return words, numbers[ends[0], ends[1]]


def tree_hits(source: Source, task: Task, *, method: TreeMethod) -> Mapping[int, Integers]:
    """How many dependencies of each document are in each head's trees, [N]."""
    observer = _Growing(task, method)
    observe(source, task.batch, observer)
    hits: dict[int, Integers] = {}
    for item, gold in enumerate(task.gold):
        hits[gold.document] = hits.get(gold.document, 0) + observer.heads(item)
    return hits


def grow(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    method: TreeMethod,
    *,
    load: Loader | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Trees:
    """Grow every head's tree over every sentence; arguments as of ``syntax.run``."""
    worker = of_model(partial(tree_hits, method=method))
    cases, tally = Cases(source, sentences, settings), HitTally()
    hits: dict[int, Integers] = {}
    with executor(worker, source, load, settings.jobs, settings.ray) as running:
        for task, answer in answered(running, cases.tasks(tally), "a batch of sentences"):
            for document, counts_of in answer.items():
                hits[document] = hits.get(document, 0) + counts_of
            cases.done += len(task.batch)
            progress(f"{method} trees", cases.done, len(sentences))
    documents = sorted(document for document, name in tally.cases if name == ALL)
    distances_of = [tally.cases[document, ALL] for document in documents]
    table = HitTable(
        np.array(documents),
        np.array([distances.total() for distances in distances_of]),
        np.stack([hits[document] for document in documents])[:, :, None],
        np.array([[distances[1] + distances[-1]] for distances in distances_of]),
        ["chain"],
        *cases.sides(documents),
    )
    best = None
    if table.chosen.any():
        scheme = int(table.accuracy(table.chosen).argmax())
        uuas, measured, _, chain, margin = table.lead(scheme, 0)
        best = TreeChoice(list(source.layout)[scheme], uuas, measured, chain, margin)
    total = int(table.count.sum())
    shares = table.accuracy(np.ones(len(documents), np.bool_))[:, 0].tolist()
    return Trees(
        count=total,
        chain=int(table.ruled.sum()) / total,
        heads=tuple(starmap(TreeHead, zip(source.layout, shares, strict=True))),
        best=best,
    )
