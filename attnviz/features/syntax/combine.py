"""All heads together: the attention-only classifier of Clark et al. 2019 (arXiv:1906.04341), 4.2.

    p(i | j) ∝ exp Σ_k w_k α_k(i, j) + u_k α_k(j, i)

is the probability that word i is the head of word j; α_k(i, j) is what head k gives from i to j.
The candidates are the other words of the sentence, the root is none. The weights w and u are all
that is learned, by logistic regression: with a small quadratic penalty there is one best answer,
which L-BFGS finds from zero.

Notation in shapes: B sentences, W words, H heads of a layer, N heads, M pairs of a dependent and a
candidate, C dependents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Floats, Integers
from attnviz.core.heads import Layout
from attnviz.core.settings import Progress
from attnviz.core.source import Rows, Source
from attnviz.core.split import EVERYTHING, HALVES, sides
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold.cases import Cases, Loader, Task, WordMaps, present
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import ALL, DIFFERENCE, HitTally, share
from attnviz.corpus.running import answered, executor, of_model
from attnviz.errors import InputError
from attnviz.features.syntax.result import Combined, CombinedControl, CombinedWeight
from attnviz.models.controls import Control
from attnviz.scoring.observe import observe

Features = NDArray[np.float32]
Answer = tuple[Features, Integers, Integers]

ROOM = 1 << 30  # bytes of features that are kept to train on
PENALTY = 1e-5  # of the squared weights, beside the mean negative log-likelihood
_STEPS = 500


@dataclass(frozen=True, eq=False, slots=True)
class CombineTask:
    """A batch with its cases; without weights its features are wanted, else what they predict."""

    task: Task
    weights: Floats | None = None


class _Pairs:
    """Every dependent of a batch with every word that may be its head.

    Attributes:
        item: [M], the sentence; ``word`` [M] the dependent, ``other`` [M] the candidate.
        starts: [C], where the candidates of each dependent begin.
        right: [C], which of all pairs is the gold one.
    """

    def __init__(self, task: Task) -> None:
        items, words, partners, sizes, right = [], [], [], [], []
        for item, (inputs, gold) in enumerate(zip(task.batch, task.gold, strict=True)):
            width = 1 + max(inputs.tokens.words)
            kept_words = np.flatnonzero(present(inputs, width))
            for word, head in zip(gold.words, gold.heads, strict=True):
                candidates = kept_words[kept_words != word]
                items.append(np.full(len(candidates), item))
                words.append(np.full(len(candidates), word))
                partners.append(candidates)
                sizes.append(len(candidates))
                right.append(int(np.searchsorted(candidates, head)))
        empty = np.empty(0, np.int64)
        self.item, self.word, self.other = (
            np.concatenate([empty, *lists]) for lists in (items, words, partners)
        )
        self.starts = np.cumsum([0, *sizes[:-1]]) if sizes else empty
        self.right = self.starts + np.array(right, np.int64)


class _Reading:
    """An observer that keeps the features [M, 2N], or only their weighted sum [M]."""

    def __init__(self, task: CombineTask, layout: Layout) -> None:
        self.pairs = _Pairs(task.task)
        self._maps = WordMaps(task.task.batch)
        self._weights, self._heads = task.weights, len(layout)
        sites = [head.site for head in layout]
        self._first = {site: sites.index(site) for site in dict.fromkeys(sites)}
        size = len(self.pairs.item)
        self.features = np.empty((size, 2 * len(layout) if task.weights is None else 0), np.float32)
        self.scores = np.zeros(size)

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        maps = self._maps.add(rows)
        if maps is None:
            return
        pairs = self.pairs
        lib = arrays.of(maps)
        item, word, partner = (
            lib.asarray(n, lib.int64, maps) for n in (pairs.item, pairs.word, pairs.other)
        )
        first = self._first[rows.site]
        for start, (i, j) in ((first, (word, partner)), (first + self._heads, (partner, word))):
            weights = arrays.to_numpy(maps[item, :, i, j])  # [M, H]
            columns = slice(start, start + weights.shape[1])
            if self._weights is None:
                self.features[:, columns] = weights
            else:
                self.scores += weights @ self._weights[columns]


def read_features(source: Source, task: CombineTask) -> Answer:
    """Features, starts and gold pairs; with weights, whether each dependent's head is found."""
    observer = _Reading(task, source.layout)
    observe(source, task.task.batch, observer)
    pairs = observer.pairs
    if task.weights is None:
        return observer.features, pairs.starts, pairs.right
    parts = np.split(observer.scores, pairs.starts[1:]) if len(pairs.starts) else []
    chosen = pairs.starts + np.array([part.argmax() for part in parts], np.int64)
    return observer.features, pairs.starts, np.asarray(chosen == pairs.right, np.int64)


def fit(blocks: Sequence[Answer]) -> Floats:
    """Fit the weights [2N] that make gold heads likeliest, by ``blocks`` of features [M, 2N]."""
    from scipy.optimize import minimize

    cases = sum(len(starts) for _, starts, _ in blocks)

    def objective(weights: Floats) -> tuple[float, Floats]:
        loss, slope = 0.0, np.zeros_like(weights)
        for features, starts, right in blocks:
            scores = (features @ weights.astype(np.float32)).astype(np.float64)
            sizes = np.diff(np.append(starts, len(scores)))
            scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
            likely = np.exp(scores)
            total = np.add.reduceat(likely, starts)
            loss += float(np.log(total).sum() - scores[right].sum())
            likely /= np.repeat(total, sizes)
            likely[right] -= 1
            slope += likely.astype(np.float32) @ features
        penalty = PENALTY / 2 * float(weights @ weights)
        return loss / cases + penalty, slope / cases + PENALTY * weights

    start = np.zeros(blocks[0][0].shape[1])
    solution = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-9}
    )
    weights: Floats = solution.x
    return weights


@dataclass
class _Study:
    """One model: its classifier, and what that finds."""

    source: Source
    load: Loader | None
    sentences: Sequence[Sentence]
    settings: SyntaxSettings
    told: Callable[[int], None]

    def trained(self, sentences: Sequence[Sentence], tally: HitTally) -> Floats:
        """Return the classifier's weights from some sentences, whose cases the tally gets."""
        blocks = [answer for _, answer in self._run(sentences, tally, None) if len(answer[1])]
        if not blocks:
            raise InputError(
                "no dependency is left to train a classifier on: that takes two documents, or two "
                "sentences where none is marked"
            )
        return fit(blocks)

    def hits(self, sentences: Sequence[Sentence], tally: HitTally, weights: Floats) -> Counter[int]:
        """How many heads it finds in each document of some sentences."""
        hits: Counter[int] = Counter()
        for task, (_, _, right) in self._run(sentences, tally, weights):
            sizes = [len(gold.words) for gold in task.gold]
            for gold, part in zip(task.gold, np.split(right, np.cumsum(sizes)[:-1]), strict=True):
                hits[gold.document] += int(part.sum())
        return hits

    def _run(
        self, sentences: Sequence[Sentence], tally: HitTally, weights: Floats | None
    ) -> Iterator[tuple[Task, Answer]]:
        cases = Cases(self.source, self.sentences, self.settings)
        jobs, ray = self.settings.jobs, self.settings.ray
        with executor(of_model(read_features), self.source, self.load, jobs, ray) as running:
            tasks = (CombineTask(task, weights) for task in cases.tasks(tally, sentences))
            for task, answer in answered(running, tasks, "a batch of sentences"):
                self.told(len(task.task.batch))
                yield task.task, answer


def combine(
    source: Source,
    controls: Sequence[tuple[Control, Loader]],
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    load: Loader | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Combined:
    """Train on some documents, measure on others, the model and its like without learning."""
    cases = Cases(source, sentences, settings)
    documents_of = [cases.document(sentence) for sentence in sentences]
    everything = settings.split == EVERYTHING
    chosen, _ = sides(HALVES, documents_of) if everything else cases.sides(documents_of)
    even = [sentence for sentence, first in zip(sentences, chosen, strict=True) if first]
    odd = [sentence for sentence, first in zip(sentences, chosen, strict=True) if not first]
    sample = even[: _fitting(even, len(source.layout))]
    done = 0

    def told(finished: int) -> None:
        nonlocal done
        done += finished
        progress("combine", done, (1 + len(controls)) * (len(sample) + len(odd)))

    first = _Study(source, load, sentences, settings, told)
    trained, measured = HitTally(), HitTally()
    weights = first.trained(sample, trained)
    hits = first.hits(odd, measured, weights)
    of_all = (counts for (_, name), counts in trained.cases.items() if name == ALL)
    lengths: Counter[int] = sum(of_all, Counter())
    offset = min(lengths, key=lambda d: (-lengths[d], abs(d), -d))
    documents = sorted(document for document, name in measured.cases if name == ALL)
    distances_of = [measured.cases[document, ALL] for document in documents]
    count = np.array([distances.total() for distances in distances_of], np.int64)
    right = np.array([hits[d] for d in documents], np.int64)
    at_offset = np.array([d[offset] for d in distances_of], np.int64)

    def compared_with(control: Control, loader: Loader) -> CombinedControl:
        study = _Study(loader(), loader, sentences, settings, told)
        random_hits = study.hits(odd, HitTally(), study.trained(sample, HitTally()))
        baseline = np.array([random_hits[d] for d in documents], np.int64)
        lead = share(right - baseline, count, DIFFERENCE)
        return CombinedControl(control.seed, control.scale, share(baseline, count), lead)

    forward, reverse = np.split(weights, 2)
    return Combined(
        uas=share(right, count),
        controls=tuple(compared_with(*control) for control in controls),
        offset=offset,
        offset_accuracy=share(at_offset, count).value,
        margin=share(right - at_offset, count, DIFFERENCE),
        count=int(count.sum()),
        trained=lengths.total(),
        sentences=len(sample),
        left_out=len(even) - len(sample),
        weights=tuple(
            CombinedWeight(*parts)
            for parts in zip(source.layout, forward.tolist(), reverse.tolist(), strict=True)
        ),
    )


def _fitting(sentences: Sequence[Sentence], heads: int) -> int:
    """How many sentences, from the first on, have features that there is room for."""
    room = ROOM
    for number, sentence in enumerate(sentences):
        room -= 8 * heads * len(sentence.words) ** 2
        if room < 0 and number:
            return number
    return len(sentences)
