"""From examples with an antecedent each to a report: which heads find it.

Heads and the best baseline are chosen on even documents and measured on odd ones, so that the best
of many does not flatter; or both on everything.

Notation in shapes: C examples, N heads, 2 directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Bools
from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import EVERYTHING, Values, by_field, merge_near_copies, sides
from attnviz.corpus.gold import tally as gold
from attnviz.corpus.gold.cases import Loader, WordMaps, check_single, in_batches, present
from attnviz.corpus.gold.settings import CorefSettings
from attnviz.corpus.lines import Problem, lines, whole_number
from attnviz.corpus.running import answered, executor, of_model
from attnviz.corpus.texts import InvalidRecord, resolve, separated
from attnviz.errors import InputError, UsageError
from attnviz.features.coref import result as records
from attnviz.features.coref.result import Coref
from attnviz.scoring.observe import observe
from attnviz.statistics.clusters import FEW


@dataclass(frozen=True, eq=False)
class AntecedentExamples:
    """What was asked of the heads, and what they answered."""

    data: records.Data  # what the examples are
    candidates: records.Candidates  # what heads choose from
    window: int | None  # tokens that are read at a time; None where texts are whole
    document: NDArray[np.int64]  # [C], of each example, from 1
    unit: str  # what a document is called
    kinds: Sequence[str]  # [C], the kind of each example
    order: Sequence[str]  # the kinds that there may be, in the order of tables
    right: Bools  # [C, N, 2], whether each head finds the antecedent in each direction
    baselines: Mapping[str, Bools]  # [C] whether each baseline does
    skipped: Mapping[str, int]  # what was left out, by reason
    corpus: str  # a hash of what was read and asked
    split: str  # which documents to choose on, as results name it
    values: Values  # of documents, what a field says that ``split`` names


def report(source: Source, examples: AntecedentExamples) -> records.Coref:
    """Figures of every head, baseline and kind."""
    directions = 1 if "decoder" in source.layout.kinds else 2  # a causal model sees nothing later
    layout, split = source.layout, examples.split
    of_kind = np.array(examples.kinds)
    masks = {gold.ALL: np.ones(len(of_kind), np.bool_)}
    masks |= {name: of_kind == name for name in examples.order if (of_kind == name).any()}
    tables = {
        name: gold.HitTable.of(
            examples.document[mask],
            examples.right[mask][:, :, :directions],
            {baseline: hits[mask] for baseline, hits in examples.baselines.items()},
            lambda numbers: sides(split, numbers, examples.values),
        )
        for name, mask in masks.items()
    }
    kinds = tuple(_kind(name, table, layout) for name, table in tables.items())
    everything = tables[gold.ALL]
    measured = int(everything.measured.sum())
    return records.Coref(
        source=source.info,
        layout=layout,
        texts=len(everything.documents),
        corpus=examples.corpus,
        unit=examples.unit,
        data=examples.data,
        examples=len(of_kind),
        skipped=examples.skipped,
        split=split,
        candidates=examples.candidates,
        window=examples.window,
        kinds=kinds,
        roles=_roles(everything, kinds[0].ranked, layout, split),
        notes=tuple(_notes(examples, measured, split, len(layout))),
    )


def _kind(name: str, table: gold.HitTable, layout: Layout) -> records.MentionKind:
    """Return the figures of some examples."""
    everything = np.ones(len(table.documents), np.bool_)
    count = int(table.count.sum())
    return records.MentionKind(
        name=name,
        count=count,
        baselines=tuple(
            records.Baseline(baseline, int(hits.sum()) / count, table.share(hits))
            for baseline, hits in zip(table.rules, table.ruled.T, strict=True)
        ),
        heads=tuple(
            records.NameAccuracy(head, shares[0], shares[1] if len(shares) > 1 else None)
            for head, shares in zip(layout, table.accuracy(everything).tolist(), strict=True)
        ),
        ranked=tuple(_ranked(table, layout)) if table.count[table.chosen].any() else (),
    )


def _ranked(table: gold.HitTable, layout: Layout) -> Iterator[records.AntecedentHead]:
    """Every head by its accuracy where heads are chosen; of equals in the layout's order."""
    accuracy, heads = table.accuracy(table.chosen), list(layout)
    for number in np.argsort(-accuracy.max(1), kind="stable").tolist():
        direction = int(accuracy[number].argmax())
        lead = table.lead(number, direction)
        yield records.AntecedentHead(heads[number], records.NAME_DIRECTIONS[direction], *lead)


def _roles(
    table: gold.HitTable, ranked: Sequence[records.AntecedentHead], layout: Layout, split: str
) -> tuple[records.AntecedentHead, ...]:
    """Those that beat the best baseline by ten points where chosen, and surely elsewhere."""
    if not table.enough():
        return ()
    by_head, heads = {head.head: head for head in ranked}, list(layout)
    candidates = [(by_head[heads[number]], p) for number, _, p in table.candidates()]
    questions = table.hits[0].size if split == EVERYTHING else len(candidates)
    return tuple(sorted(gold.proven(candidates, questions), key=lambda head: head.head))


def _notes(examples: AntecedentExamples, measured: int, split: str, heads: int) -> Iterator[str]:
    for reason, count in examples.skipped.items():
        if count:
            yield f"{count:,} left out: {reason}."
    unit = examples.unit
    if split == EVERYTHING:
        yield (
            "The head was chosen on the data that its figures are from: picking the "
            f"best of {2 * heads} overestimates."
        )
    if unit == "windows":
        yield "All examples are from a single document, so every window counts as one of its own."
    if measured < 2:
        yield f"Figures are from a single one of the {unit} or none, so there are no intervals."
    elif measured < FEW:
        yield f"Intervals from {measured} {unit} cover less than 95 %; use {FEW} or more."


COLUMNS = (
    "ID",
    "Text",
    "Pronoun",
    "Pronoun-offset",
    "A",
    "A-offset",
    "A-coref",
    "B",
    "B-offset",
    "B-coref",
    "URL",
)
"""The columns of a table; their order does not matter."""

KINDS = ("feminine", "masculine")  # of pronouns, as the table is balanced by
_GENDER = dict.fromkeys(("she", "her", "hers", "herself"), KINDS[0]) | dict.fromkeys(
    ("he", "him", "his", "himself"), KINDS[1]
)
_TRUTH = {"TRUE": True, "FALSE": False}
PRONOUN, A, B = 0, 1, 2
_PHRASES = ("Pronoun", "A", "B")


@dataclass(frozen=True, slots=True)
class NameChoice:
    """A pronoun and two names, one of which is its antecedent."""

    number: int  # from 1, over everything that was read
    place: str  # file and line
    document: str  # the page that it is from
    text: str  # what to read
    starts: tuple[int, int, int]  # first character of the pronoun, of A and of B
    ends: tuple[int, int, int]  # where each ends
    first: bool  # whether A is the antecedent; else B is
    part: str = ""  # what the column says that ``--split field:NAME`` names; empty without

    @property
    def asked(self) -> tuple[str, tuple[int, ...], bool]:
        """What tells it from other choices: text, places, answer."""
        return self.text, (*self.starts, *self.ends), self.first

    @property
    def kind(self) -> str:
        """The gender of an English pronoun; empty for other pronouns."""
        start, end = self.starts[PRONOUN], self.ends[PRONOUN]
        return _GENDER.get(self.text[start:end].lower(), "")

    @property
    def order(self) -> tuple[int, ...]:
        """Pronoun, A and B (0, 1, 2) in the order of the text."""
        return tuple(sorted(range(3), key=lambda n: self.starts[n]))

    @property
    def prompt(self) -> Prompt:
        """The text, with the three as its only words, in the order of the text."""
        spans = tuple((self.starts[n], self.ends[n]) for n in self.order)
        return Prompt(self.text, words=spans)

    @property
    def nearest(self) -> bool:
        """Whether the name that begins nearer to the pronoun is the antecedent; A of two equals."""
        pronoun, a, b = self.starts
        return (abs(a - pronoun) <= abs(b - pronoun)) == self.first

    @property
    def earliest(self) -> bool:
        """Whether the name that comes first in the text is the antecedent."""
        return (self.starts[A] < self.starts[B]) == self.first

    @property
    def later(self) -> bool:
        """Whether a name comes after the pronoun, where a causal model cannot see it from there."""
        return max(self.starts[A], self.starts[B]) > self.starts[PRONOUN]


def read(names: Sequence[str], part: str = "") -> Iterator[NameChoice | InvalidRecord | None]:
    """Every row of some tables; None for one whose pronoun means neither name, or both."""
    number = 0
    for name in resolve(names):
        title = "standard input" if name == "-" else name
        places: Mapping[str, int] | None = None
        for line, text in lines(name):
            if places is None:
                places = _places(title, text, part)
                continue
            number += 1
            row = _row(number, f"{title}:{line}", text, places, part)
            yield InvalidRecord(number, f"{title}:{line}", row) if isinstance(row, str) else row
        if places is None:
            raise InputError(f"{title} is empty; its first line must name {', '.join(COLUMNS)}")


def choices(
    names: Sequence[str], *, strict: bool, part: str = ""
) -> tuple[list[NameChoice], int, list[InvalidRecord]]:
    """All choices of some tables, the number of rows that are none, and what cannot be used."""
    rows, bad = separated(read(names, part), strict=strict)
    good = [row for row in rows if isinstance(row, NameChoice)]
    if not good:
        reason = f"{bad[0].place}: {bad[0].reason}" if bad else "no row has one name as antecedent"
        raise InputError(f"{', '.join(names)} has nothing usable: {reason}")
    return good, len(rows) - len(good), bad


def _places(name: str, header: str, part: str) -> dict[str, int]:
    """Where each column stands."""
    if isinstance(header, Problem):
        raise InputError(f"{name}: {header}")
    titles = [title.strip() for title in header.split("\t")]
    missing = [column for column in COLUMNS if column not in titles]
    if len(missing) == len(COLUMNS):
        raise InputError(
            f"{name} is neither CoNLL-U nor a table of pronouns, whose first line has "
            f"these names, separated by tabs: {', '.join(COLUMNS)} (as GAP)"
        )
    if missing:
        raise InputError(
            f"{name} lacks the column{'s' if len(missing) > 1 else ''} "
            f"{', '.join(missing)}; a table of pronouns has these columns, separated "
            f"by tabs: {', '.join(COLUMNS)} (as GAP)"
        )
    if part and part not in titles:
        columns = ", ".join(titles)[:200]
        raise UsageError("{} has no column {!r} for {split}; it has {}", name, part, columns,
                         split=f"field:{part}")  # fmt: skip
    return {column: titles.index(column) for column in (*COLUMNS, *([part] if part else []))}


def _row(
    number: int, source: str, text: str, places: Mapping[str, int], part: str
) -> NameChoice | str | None:
    """Return a row, or what is wrong with it; None for one that has no choice."""
    if isinstance(text, Problem):
        return text
    cells = text.split("\t")
    if len(cells) <= max(places.values()):
        return f"{len(cells)} columns; the header has more"
    row = {column: cells[n] for column, n in places.items()}
    starts = []
    for phrase in _PHRASES:
        offset = row[f"{phrase}-offset"]
        start, name = whole_number(offset), row[phrase]
        if start is None:
            return f"{phrase}-offset is {offset[:20]!r}, no whole number"
        excerpt = row["Text"][start : start + len(name)]
        if excerpt != name or not name:
            return f"at {phrase}-offset {start} the text has {excerpt[:40]!r}, not {name[:40]!r}"
        starts.append(start)
    truths = []
    for phrase in ("A-coref", "B-coref"):
        truth = _TRUTH.get(row[phrase].strip().upper())
        if truth is None:
            return f"{phrase} is {row[phrase][:20]!r}; it is TRUE or FALSE"
        truths.append(truth)
    ends = [start + len(row[phrase]) for start, phrase in zip(starts, _PHRASES, strict=True)]
    order = sorted(range(3), key=lambda n: starts[n])
    if any(ends[n] > starts[m] for n, m in pairwise(order)):
        return "the pronoun and the names overlap in the text"
    if truths[0] == truths[1]:
        return None
    pronoun, a, b = starts
    return NameChoice(
        number, source, row["URL"], row["Text"], (pronoun, a, b), (ends[0], ends[1], ends[2]),
        truths[0], row[part] if part else "",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class NameTask:
    """A batch of tokenized texts, with the order of pronoun, A and B in each."""

    batch: tuple[Inputs, ...]
    orders: tuple[tuple[int, ...], ...]


def choose(source: Source, task: NameTask) -> Bools:
    """Whether each head chooses A, [B, N, 2]: by the pronoun's row, and by its column."""
    observer = WordMaps(task.batch)
    observe(source, task.batch, observer)
    chosen = []
    for number, order in enumerate(task.orders):
        inverse = np.argsort(order)
        weights = observer.heads(number)[:, inverse][:, :, inverse]  # pronoun, A and B [N, 3, 3]
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
        for batch in in_batches(self.source, self.choices):
            if isinstance(batch, InvalidRecord):
                self._refuse(batch.place)
                continue
            good = []
            for choice, inputs in batch:
                if present(inputs, 3).all():
                    good.append((choice, inputs))
                else:
                    self._refuse(choice.place)
            if good:
                choices, several = zip(*good, strict=True)
                self.used += choices
                yield NameTask(several, tuple(choice.order for choice in choices))

    def _refuse(self, source: str) -> None:
        if self.strict:
            raise InputError(
                f"{source}: the model cannot take this text; it reads at most "
                f"{self.source.max_tokens} tokens, and needs one for each name"
            )
        self.refused += 1


def run_names(
    source: Source,
    choices: Sequence[NameChoice],
    settings: CorefSettings,
    *,
    skipped: Mapping[str, int],
    load: Loader | None = None,
    progress: Progress = lambda stage, count, total: None,
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
    groups = merge_near_copies((numbered[choice.document], choice.text) for choice in choices)
    numbers = {page: groups[number] for page, number in numbered.items()}
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
        corpus=fingerprint(choice.asked for choice in sorted(study.used, key=attrgetter("number"))),
        split=split,
        values=values,
    )
    return report(source, examples)
