"""From pronouns with two names each to a report: which heads find the antecedent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnviz.annotated.coref import NAME_DIRECTIONS, CorefReport, NameChoice
from attnviz.annotated.share import Share
from attnviz.corpus.batches import batches, tokenize
from attnviz.corpus.executors import Lost
from attnviz.corpus.running import executor
from attnviz.corpus.texts import Bad, Text
from attnviz.errors import AttnvizError, InputError
from attnviz.grammar.cases import BATCH_TOKENS, EVERYTHING, Loader, Progress, check_single
from attnviz.grammar.gap import PRONOUN, A, B, Choice
from attnviz.grammar.pointing import WordMaps, present
from attnviz.grammar.rule import TEN_POINTS
from attnviz.grammar.tally import share
from attnviz.passes import Rows, Source
from attnviz.records import Inputs, Layout, Site
from attnviz.statistics.clusters import FEW

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class CorefTask:
    """A batch of tokenized texts, with the order of pronoun, A and B in each."""

    batch: tuple[Inputs, ...]
    orders: tuple[tuple[int, ...], ...]


class _Choosing:
    """An observer that keeps the weights between pronoun, A and B, [H, 3, 3] for each text."""

    def __init__(self, task: CorefTask, layout: Layout, device: str) -> None:
        self._maps = WordMaps(task.batch, device)
        self._found: dict[Site, NDArray[np.float64]] = {}
        self._sites = tuple(dict.fromkeys(head.site for head in layout))

    def observe(self, rows: Rows) -> None:
        maps = self._maps.add(rows)
        if maps is not None:
            self._found[rows.site] = maps.cpu().numpy()

    def weights(self, item: int, order: Sequence[int]) -> NDArray[np.float64]:
        """[N, 3, 3] from and to pronoun, A and B."""
        maps = np.concatenate([self._found[site][item] for site in self._sites])
        place = np.argsort(order)
        return np.asarray(maps[:, place][:, :, place])


class CorefWork:
    """Does tasks.

    Args:
        source: the model.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, task: CorefTask) -> NDArray[np.bool_]:
        """Whether each head chooses A, [B, N, 2]: by the pronoun's row, and by its column."""
        observer = _Choosing(task, self._source.layout, self._source.info.device)
        self._source.forward(task.batch, [observer], hidden=False)
        chosen = []
        for number, order in enumerate(task.orders):
            weights = observer.weights(number, order)
            to_name = weights[:, PRONOUN, A] >= weights[:, PRONOUN, B]
            from_name = weights[:, A, PRONOUN] >= weights[:, B, PRONOUN]
            chosen.append(np.stack([to_name, from_name], -1))
        return np.stack(chosen)


@dataclass
class _Study:
    source: Source
    choices: Sequence[Choice]
    strict: bool
    used: list[Choice] = field(default_factory=list)
    refused: int = 0

    def tasks(self) -> Iterator[CorefTask]:
        by_number = {choice.number: choice for choice in self.choices}
        texts = (Text(c.number, c.place, c.prompt) for c in self.choices)
        tokenized = tokenize(texts, self.source)
        for found in batches(tokenized, lambda inputs: inputs.length, BATCH_TOKENS):
            if isinstance(found, Bad):
                self._refuse(found.place)
                continue
            good = []
            for one in found:
                if present(one.inputs, 3).all():
                    good.append(one)
                else:
                    self._refuse(one.text.place)
            some = [by_number[one.text.number] for one in good]
            self.used += some
            if good:
                inputs = tuple(one.inputs for one in good)
                yield CorefTask(inputs, tuple(choice.order for choice in some))

    def _refuse(self, place: str) -> None:
        if self.strict:
            raise InputError(
                f"{place}: the model cannot take this text; it reads at most "
                f"{self.source.max_tokens} tokens, and needs one for each name"
            )
        self.refused += 1


def run_coref(
    source: Source,
    choices: Sequence[Choice],
    *,
    skipped: Mapping[str, int],
    select_on: str,
    strict: bool = False,
    jobs: int = 1,
    ray: str | None = None,
    load: Loader | None = None,
    progress: Progress = lambda stage, done, all_: None,
) -> CorefReport:
    """Measure every head in both directions.

    Args:
        source: the model.
        choices: pronouns with two names each.
        skipped: rows that were left out before, by reason.
        select_on: see :class:`~attnviz.grammar.syntax.SyntaxSettings`.
        strict: raise where the model cannot take a text.
        jobs: processes.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
        load: loads the model in another process; None for a model that only this one has.
        progress: called again and again.

    Raises:
        UsageError: a model with two stacks.
        InputError: no text that the model can take.
    """
    check_single(source)
    causal = "decoder" in source.layout.kinds
    usable = [choice for choice in choices if not (causal and choice.later)]
    study = _Study(source, usable, strict)
    chosen = []
    with executor(CorefWork, source, load, jobs, ray) as running:
        for _, answer in running.run(study.tasks()):
            if isinstance(answer, Lost):
                raise AttnvizError("a batch of texts cannot be run: {}", answer.reason)
            chosen.append(answer)
            progress("texts", sum(map(len, chosen)), len(usable))
    if not chosen:
        raise InputError("no example is left that the model can take; its texts are too long")
    left_out = {
        **skipped,
        "a name after the pronoun, which a causal model cannot see": len(choices) - len(usable),
        "refused by the model": study.refused,
    }
    first = np.array([choice.first for choice in study.used])
    right = np.concatenate(chosen) == first[:, None, None]
    return _report(study, right, left_out, causal, select_on == EVERYTHING)


def _report(
    study: _Study, right: Bools, left_out: Mapping[str, int], causal: bool, everything: bool
) -> CorefReport:
    layout, used = study.source.layout, study.used
    pages = dict.fromkeys(choice.document for choice in study.choices)
    numbers = {page: number for number, page in enumerate(pages, start=1)}
    document = np.array([numbers[choice.document] for choice in used])
    baselines = {
        "nearest": np.array([choice.nearest for choice in used]),
        "first": np.array([choice.earliest for choice in used]),
    }
    chosen = np.ones(len(used), np.bool_) if everything else document % 2 == 0
    measured = chosen if everything else ~chosen
    directions = NAME_DIRECTIONS[:1] if causal else NAME_DIRECTIONS
    kept = right[:, :, : len(directions)]
    best: NameChoice | None = None
    roles: list[NameChoice] = []
    if chosen.any():
        rival = max(baselines, key=lambda name: float(baselines[name][chosen].mean()))
        accuracy = kept[chosen].mean(0)
        base = float(baselines[rival][chosen].mean())
        heads = list(layout)

        def figures(head: int, direction: int) -> NameChoice:
            hits = kept[:, head, direction].astype(np.int64)
            over = hits - baselines[rival]
            return NameChoice(
                heads[head],
                directions[direction],
                _share(hits, document, measured),
                int(measured.sum()),
                rival,
                _share(baselines[rival].astype(np.int64), document, measured).value,
                _share(over, document, measured),
            )

        best = figures(*divmod(int(accuracy.argmax()), len(directions)))
        for place in range(len(heads)):
            direction = int(accuracy[place].argmax())
            if accuracy[place, direction] - base >= TEN_POINTS:
                found = figures(place, direction)
                if (found.margin.value or 0.0) >= TEN_POINTS and (found.margin.low or 0.0) > 0:
                    roles.append(found)
    mean = right.mean(0)
    return CorefReport(
        source=study.source.info,
        layout=layout,
        examples=len(used),
        documents=len(set(document.tolist())),
        skipped=left_out,
        chosen_on="all documents" if everything else "even documents",
        measured_on="all documents" if everything else "odd documents",
        baselines={name: float(hits.mean()) for name, hits in baselines.items()},
        to_name=tuple(mean[:, 0].tolist()),
        from_name=None if causal else tuple(mean[:, 1].tolist()),
        best=best,
        roles=tuple(roles),
        notes=tuple(_notes(left_out, len(set(document[measured].tolist())), everything, layout)),
    )


def _share(hits: NDArray[np.int64], document: NDArray[np.int64], where: Bools) -> Share:
    """The share of hits among some examples, with its interval from documents as clusters."""
    _, place = np.unique(document[where], return_inverse=True)
    size = int(place.max(initial=-1)) + 1
    sums, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(sums, place, hits[where])
    np.add.at(count, place, 1)
    return share(sums, count)


def _notes(
    left_out: Mapping[str, int], measured: int, everything: bool, layout: Layout
) -> Iterator[str]:
    for why, count in left_out.items():
        if count:
            noun = "example was" if count == 1 else "examples were"
            yield f"{count:,} {noun} left out: {why}."
    if everything:
        yield (
            "The head was chosen on the data that its figures are from: the best of "
            f"{2 * len(layout)} flatters."
        )
    if measured < 2:
        yield "Figures are from a single document or none, so there are no intervals."
    elif measured < FEW:
        yield f"Intervals from {measured} documents cover less than 95 %; use {FEW} or more."
