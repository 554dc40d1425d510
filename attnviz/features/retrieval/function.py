"""``attnviz.retrieval``: which heads copy a needle out of a long text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import check_single_stack
from attnviz.core.arrays import Bools, Floats
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.result import Interval, fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import EVERYTHING, Values, by_field, sides
from attnviz.corpus.gold.tally import DIFFERENCE, share
from attnviz.features.retrieval import result as records
from attnviz.features.retrieval.measure import Answered, NeedleScores, answers, scored
from attnviz.features.retrieval.needles import (
    NULL,
    Needle,
    field_values,
    file_needles,
    needle_numbers,
    read_needles,
    word_needles,
)
from attnviz.models.cache import Cache, as_records
from attnviz.statistics.clusters import FEW, few_groups

_EXAMPLES = 3
WORDS = "words"


class _Table:
    """All C needles and N heads: what was measured, and where."""

    def __init__(
        self,
        heads: Sequence[Head],
        needles: Sequence[Needle],
        measured: Sequence[NeedleScores],
        split: str,
        values: Values,
    ) -> None:
        self.heads, self.needles = heads, needles
        self.numbers = np.array([needle.number for needle in needles])  # [C], what they count with
        # [C], the needles that heads are ranked on; ``held`` those that they are measured on
        self.chosen, self.held = sides(split, self.numbers, values)
        if not self.chosen.any():  # a single needle of a file
            self.chosen = self.held
        answers = [scores.answered for scores in measured]
        query = [scores.query for scores in measured if scores.query is not None]
        self.generated = answers[0] is not None
        self.hits = np.array([answer is not None and answer.retrieved for answer in answers])
        self.copied = np.stack([scores.copied for scores in measured])  # [C, N], its chance [C]
        self.copied_chance = np.array([scores.copied_chance for scores in measured])
        self.query = np.stack(query) if len(query) == len(needles) else None
        self.weight = np.stack([scores.weight for scores in measured])
        self.weight_chance = np.stack([scores.weight_chance for scores in measured])

    @property
    def asked(self) -> Floats:
        """The query-focused score; the weight as it is where there is no empty question."""
        return self.weight if self.query is None else self.query

    def ranks(self, by: records.RankedBy) -> bool:
        """Whether there is anything that heads can be ranked by."""
        return by == "query" or bool((self.chosen & self.hits).any())

    def where_chosen(self, by: records.RankedBy) -> Floats:
        """[N], the score that heads are ranked by."""
        means: Floats
        if by == "query":
            means = self.asked[self.chosen].mean(0)
        else:
            means = self.copied[self.chosen & self.hits].mean(0)
        return means

    def order(self, by: records.RankedBy) -> list[int]:
        """Heads, the highest score first; ties by their place."""
        return np.argsort(-self.where_chosen(by), kind="stable").tolist()

    def share(
        self, values: Floats | Bools, mask: Bools | None = None, least: float = 0.0
    ) -> Interval:
        """Average values [C] over the held-out needles, those of one number as a cluster."""
        selected = self.held if mask is None else self.held & mask
        numbers, group = np.unique(self.numbers[selected], return_inverse=True)
        sums = np.bincount(group, np.asarray(values, np.float64)[selected], len(numbers))
        return share(sums, np.bincount(group, minlength=len(numbers)), least)

    def mean(self, values: Floats, mask: Bools) -> float | None:
        """Over the held-out needles of these; None for none."""
        selected = values[self.held & mask]
        return float(selected.mean()) if len(selected) else None

    def score(self, head: Head, number: int, by: records.RankedBy) -> records.RetrievalScore:
        """One head."""
        nothing = Interval(None)
        copied = self.copied[:, number]
        return records.RetrievalScore(
            head,
            self.share(copied, self.hits) if self.generated else nothing,
            self.share(copied) if self.generated else nothing,
            nothing if self.query is None else self.share(self.query[:, number], least=DIFFERENCE),
            self.share(self.weight[:, number]),
            float(self.where_chosen(by)[number]),
        )

    def cells(self, best: int) -> list[records.RetrievalCell]:
        """Lengths and depths, and the chosen head in each."""
        cells = []
        for length, depth in dict.fromkeys(
            (needle.length, needle.depth) for needle in self.needles
        ):
            in_cell = np.array(
                [(needle.length, needle.depth) == (length, depth) for needle in self.needles]
            )
            best_scores = self.copied[in_cell & self.hits, best]
            cells.append(
                records.RetrievalCell(
                    length,
                    depth,
                    int(in_cell.sum()),
                    float(self.hits[in_cell].mean()) if self.generated else None,
                    float(best_scores.mean()) if len(best_scores) else None,
                    float(self.asked[in_cell, best].mean()),
                )
            )
        return cells

    def others(self, heads: Sequence[Head], enough: int) -> Sequence[Head]:
        """Those of some heads that are no retrieval heads; all of them where these are too few."""
        if not self.ranks("copied"):
            return heads
        scores = dict(zip(self.heads, self.where_chosen("copied").tolist(), strict=True))
        unlike = [head for head in heads if scores[head] <= records.LEAST_COPIED]
        return unlike if len(unlike) >= enough else heads

    @property
    def held_out(self) -> list[Needle]:
        """The needles that heads are measured on."""
        return [needle for needle, held in zip(self.needles, self.held, strict=True) if held]


def _ablations(
    source: Source,
    table: _Table,
    ranked: Sequence[Head],
    settings: records.RetrievalSettings,
    progress: Progress,
) -> list[records.RetrievalAblation]:
    """Return the first heads ablated together, and as many others as often as there are draws."""
    sizes = sorted({k for k in settings.sizes if 2 * k <= len(ranked)})
    if not table.generated or source.no_gates:
        return []
    needles, done = table.held_out, 0
    total = len(sizes) * (1 + settings.draws) * len(needles)

    def hits_of_ablated(heads: Sequence[Head]) -> Floats:
        nonlocal done
        names = ", ".join(source.layout.name(head) for head in heads)
        retrieved = []
        with source.gated({names: 0.0}) as ablated:
            for answer in answers(ablated, needles):
                retrieved.append(answer.retrieved)
                done += 1
                progress("ablations", done, total)
        values = np.zeros(len(table.needles))
        values[table.held] = retrieved
        return values

    ablations = []
    for size in sizes:
        first, pool = ranked[:size], table.others(ranked[size:], size)
        hits = hits_of_ablated(first)
        random_shares = []
        for draw in range(settings.draws):
            chosen = random.Random(f"{settings.seed}/{size}/{draw}").sample(pool, size)
            random_shares.append(hits_of_ablated(chosen))
        means = [float(values[table.held].mean()) for values in random_shares]
        mean = np.mean(random_shares, 0)
        ablations.append(
            records.RetrievalAblation(
                tuple(first),
                table.share(hits),
                table.share(mean),
                min(means),
                max(means),
                settings.draws,
                table.share(mean - hits, least=DIFFERENCE),
            )
        )
    return ablations


def _random(
    load: Callable[[], Source], progress: Progress, seed: int, needles: Sequence[Needle]
) -> records.RetrievalControl:
    """Measure some needles with the weights that ``load`` draws by the seed."""
    measured = _told(scored(load(), needles, given=True), "random weights", len(needles), progress)
    copied = np.stack([sums.copied for sums in measured]).mean(0)
    query = np.stack([sums.weight if sums.query is None else sums.query for sums in measured]).mean(
        0
    )
    wrote = measured[0].answered is not None
    return records.RetrievalControl(
        seed,
        len(needles),
        float(copied.mean()) if wrote else None,
        float(copied.max()) if wrote else None,
        float(np.mean([sums.copied_chance for sums in measured])) if wrote else None,
        float(query.mean()),
        float(query.max()),
    )


def _told(
    scores: Iterable[NeedleScores], stage: str, total: int, progress: Progress
) -> list[NeedleScores]:
    measured = []
    progress(stage, 0, total)
    for number, score in enumerate(scores, 1):
        measured.append(score)
        progress(stage, number, total)
    return measured


def _examples(
    source: Source, needles: Sequence[Needle], measured: Sequence[NeedleScores]
) -> list[records.NeedleExample]:
    def said(ids: Sequence[int]) -> str:
        return source.tokens(ids).running(range(len(ids)))

    examples = []
    for needle, scores in list(zip(needles, measured, strict=True))[:_EXAMPLES]:
        answered: Answered | None = scores.answered
        examples.append(
            records.NeedleExample(
                needle.length,
                needle.depth,
                said(needle.ids[slice(*needle.document)]),
                said(needle.ids[slice(*needle.question)]),
                said(needle.wanted),
                "" if answered is None else said(answered.ids),
            )
        )
    return examples


def _notes(
    source: Source, table: _Table, settings: records.RetrievalSettings, by: records.RankedBy
) -> list[str]:
    """Return what the reader must not miss."""
    notes = []
    if not table.generated:
        notes.append(
            f"{source.info.model} generates nothing: no score while generating, no accuracy and no "
            "ablation; heads are ranked by the query-focused score."
        )
    elif by == "copied" and not table.ranks("copied"):
        notes.append(
            "The model retrieved none of the needles that heads are ranked on; they are ranked by "
            "the query-focused score, which needs no answer."
        )
    if table.query is None:
        notes.append(
            f"Without a tokenizer there is no question without content ({NULL}); the query-focused "
            "score is the weight as it is."
        )
    groups = len(np.unique(table.numbers[table.held]))
    few = few_groups(groups, "needles")
    if few:
        notes.append(few)
    elif groups < FEW:
        notes.append(
            f"{groups} needles are few: intervals from fewer than {FEW} cover less than they say."
        )
    if len(np.unique(table.numbers)) == 1 and settings.split != EVERYTHING:
        notes.append("Heads are ranked and measured on the same needle, since there is one.")
    return notes


@interface
def retrieval(
    needles: str | Path | None = None,
    *,
    settings: records.RetrievalSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, count, total: None,
) -> records.Retrieval:
    """Find the heads that copy a needle out of a long text, and see what is lost without them.

    Two scores of every head: what it copies while the model generates the answer (Wu et al. 2024,
    arXiv:2404.15574), and how much weight goes from the question to the needle, less that from a
    question without content (QRHead, arXiv:2506.09944). Heads are ranked on even needles and
    measured on odd ones; there the first of them are ablated, against as many others. A model that
    generates nothing (BERT) has the query-focused score alone.

    Args:
        needles: a .jsonl file, see :mod:`attnviz.features.retrieval.needles`; by default random
            words that the tokenizer keeps whole.

    Returns:
        Shares from 0 to 1 of N heads with 95 % intervals over needles, cells of lengths and depths,
        ablations, and the same model with random weights.

    Raises:
        UsageError: lengths that do not fit; AttnvizError: see :mod:`attnviz.errors`.
    """
    read = None if needles is None else read_needles(str(needles))
    source = light(model.load())
    check_single_stack(source.info.model, source.layout, "needles")
    prompts = (
        word_needles(source, settings) if read is None else file_needles(source, read, settings)
    )
    split, values = by_field(
        settings.split,
        lambda field: zip(
            needle_numbers(read), field_values(read, field, settings.split), strict=True
        ),
    )
    measured = _told(scored(source, prompts), "needles", len(prompts), progress)
    heads = list(source.layout)
    table = _Table(heads, prompts, measured, split, values)
    by: records.RankedBy = "query" if not table.generated else settings.rank_by
    notes = list(_notes(source, table, settings, by))
    if by == "copied" and not table.ranks("copied"):
        by = "query"
    order = table.order(by)
    ablations = _ablations(source, table, [heads[n] for n in order], settings, progress)
    control = None
    # a loaded model, or one that is fresh, has no random weights of its own
    if settings.control and isinstance(model.model, str | Path) and model.model != "fresh":
        load = model.loading(untrained=settings.seed)
        about, pack = (settings.seed, table.held_out), as_records(records.RetrievalControl)
        control = Cache(source).recall(
            "needles with random weights", about, partial(_random, load, progress), *pack
        )
    return records.Retrieval(
        source=source.info,
        layout=source.layout,
        identity=model.identity,
        texts=len(prompts),
        corpus=fingerprint(needle.ids for needle in prompts),
        seed=settings.seed,
        notes=tuple(notes),
        task=WORDS if read is None else Path(read.name).name,
        by=by,
        split=split,
        needles=len(prompts),
        retrieved=int(table.hits.sum()) if table.generated else None,
        accuracy=table.share(table.hits) if table.generated else Interval(None),
        chance=table.mean(table.copied_chance, table.hits) if table.generated else None,
        weight_chance=float(table.weight_chance.mean()),
        cells=tuple(table.cells(order[0])),
        heads=tuple(table.score(heads[n], n, by) for n in order),
        ablations=tuple(ablations),
        control=control,
        examples=tuple(_examples(source, prompts, measured)),
    )
