"""From pronouns with two names each to a report: which heads find the antecedent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Rows, Source
from attnviz.core.split import by_field, merge_near_copies
from attnviz.corpus.batches import batches, tokenize
from attnviz.corpus.gold.cases import BATCH_TOKENS, Loader, check_single
from attnviz.corpus.gold.pointing import WordMaps, present
from attnviz.corpus.running import answered, executor, of_model
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError
from attnviz.features.coref.choosing import AntecedentExamples, Bools, report
from attnviz.features.coref.gap import KINDS, PRONOUN, A, B, NameChoice
from attnviz.features.coref.result import Coref
from attnviz.features.coref.settings import CorefSettings
from attnviz.scoring.passes import observe


@dataclass(frozen=True, eq=False, slots=True)
class NameTask:
    """A batch of tokenized texts, with the order of pronoun, A and B in each."""

    batch: tuple[Inputs, ...]
    orders: tuple[tuple[int, ...], ...]


class _Choosing:
    """An observer that keeps the weights between pronoun, A and B, [H, 3, 3] for each text."""

    def __init__(self, task: NameTask, layout: Layout) -> None:
        self._maps = WordMaps(task.batch)
        self._by_site: dict[Site, NDArray[np.float64]] = {}
        self._sites = tuple(dict.fromkeys(head.site for head in layout))

    def observe(self, rows: Rows) -> None:
        maps = self._maps.add(rows)
        if maps is not None:
            self._by_site[rows.site] = arrays.to_numpy(maps)

    def weights(self, item: int, order: Sequence[int]) -> NDArray[np.float64]:
        """[N, 3, 3] from and to pronoun, A and B."""
        maps = np.concatenate([self._by_site[site][item] for site in self._sites])
        place = np.argsort(order)
        return np.asarray(maps[:, place][:, :, place])


def choose(source: Source, task: NameTask) -> Bools:
    """Whether each head chooses A, [B, N, 2]: by the pronoun's row, and by its column."""
    observer = _Choosing(task, source.layout)
    observe(source, task.batch, observer)
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
    choices: Sequence[NameChoice]
    strict: bool
    used: list[NameChoice] = field(default_factory=list)
    refused: int = 0

    def tasks(self) -> Iterator[NameTask]:
        by_number = {choice.number: choice for choice in self.choices}
        texts = (Text(c.number, c.place, c.prompt) for c in self.choices)
        tokenized = tokenize(texts, self.source)
        for batch in batches(tokenized, lambda inputs: inputs.length, BATCH_TOKENS):
            if isinstance(batch, InvalidRecord):
                self._refuse(batch.place)
                continue
            good = []
            for item in batch:
                if present(item.inputs, 3).all():
                    good.append(item)
                else:
                    self._refuse(item.text.place)
            some = [by_number[item.text.number] for item in good]
            self.used += some
            if good:
                inputs = tuple(item.inputs for item in good)
                yield NameTask(inputs, tuple(choice.order for choice in some))

    def _refuse(self, place: str) -> None:
        if self.strict:
            raise InputError(
                f"{place}: the model cannot take this text; it reads at most "
                f"{self.source.max_tokens} tokens, and needs one for each name"
            )
        self.refused += 1


def _number(choice: NameChoice) -> int:
    return choice.number


def run_names(
    source: Source,
    choices: Sequence[NameChoice],
    settings: CorefSettings,
    *,
    skipped: Mapping[str, int],
    load: Loader | None = None,
    progress: Progress = lambda stage, done, all_: None,
) -> Coref:
    """Measure every head in both directions."""
    check_single(source)
    causal = "decoder" in source.layout.kinds
    usable = [choice for choice in choices if not (causal and choice.later)]
    study = _Study(source, usable, settings.strict)
    chosen = []
    with executor(of_model(choose), source, load, settings.jobs, settings.ray) as running:
        for _, answer in answered(running, study.tasks(), "a batch of texts"):
            chosen.append(answer)
            progress("texts", sum(map(len, chosen)), len(usable))
    if not chosen:
        raise InputError("no example is left that the model can take; its texts are too long")
    first = np.array([choice.first for choice in study.used])
    pages = dict.fromkeys(choice.document for choice in choices)
    numbered = {page: number for number, page in enumerate(pages, start=1)}
    same = merge_near_copies((numbered[choice.document], choice.text) for choice in choices)
    numbers = {page: same[number] for page, number in numbered.items()}
    split, values = by_field(
        settings.split, lambda _: [(numbers[c.document], c.part) for c in study.used]
    )
    examples = AntecedentExamples(
        data="names",
        candidates="names",
        window=None,
        document=np.array([numbers[choice.document] for choice in study.used]),
        unit="documents",
        kinds=[choice.kind for choice in study.used],
        order=KINDS,
        right=np.concatenate(chosen) == first[:, None, None],
        baselines={
            "nearest": np.array([choice.nearest for choice in study.used]),
            "first": np.array([choice.earliest for choice in study.used]),
        },
        skipped={
            **skipped,
            "a name after the pronoun, which a causal model cannot see": len(choices) - len(usable),
            "refused by the model": study.refused,
        },
        corpus=fingerprint(choice.asked for choice in sorted(study.used, key=_number)),
        split=split,
        values=values,
    )
    return report(source, examples)
