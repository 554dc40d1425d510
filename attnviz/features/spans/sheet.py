"""Which heads attend from an answer to the document that it stands in.

A head takes the document whose tokens have the most weight on average, summed over the rows of the
answer: lengths do not decide. Heads and the best rule without attention are chosen on one half of
the examples and measured on the other, which shares no document with it, so that the best of many
does not flatter.

Notation in shapes: C examples, N heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import notes
from attnviz.core.heads import Head, Layout
from attnviz.core.prompt import Inputs
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.spans import ELSEWHERE, LAST
from attnviz.core.split import EVERYTHING, field_of, resolved
from attnviz.core.tokens import Tokens
from attnviz.corpus.gold.tally import DIFFERENCE, enough, p_above_zero, share, sure
from attnviz.errors import InputError, UsageError
from attnviz.features.spans.documents import RULES, DocumentExample, read_examples
from attnviz.features.spans.measure import Measuring, check_stack, shortened, tokens_of, watched
from attnviz.features.spans.result import (
    ANSWER,
    DISTRACTORS,
    QUESTION,
    RIGHT,
    DocumentChoice,
    DocumentRule,
    DocumentSheet,
    Spans,
)
from attnviz.features.spans.settings import DocumentSettings
from attnviz.models.quantity import with_quantity
from attnviz.statistics.clusters import FEW, few_groups

_NAMES = (RIGHT, DISTRACTORS, QUESTION, ANSWER, ELSEWHERE)
_ROWS = (ANSWER, QUESTION, LAST)

Bools = NDArray[np.bool_]


def sheet(
    source: Source,
    name: str | Path,
    settings: DocumentSettings,
    *,
    rows: str | None,
    quantity: str,
    progress: Progress,
) -> Spans:
    """Measure every head on the examples of a file."""
    rows = rows or ANSWER
    if rows not in _ROWS:
        raise UsageError(f"no rows {rows!r}; of documents choose {', '.join(_ROWS)}")
    check_stack(source.info.model, source.layout)
    examples, bad = read_examples(name, settings)
    shown = with_quantity(source, quantity, shares=True)
    measuring = Measuring(shown.layout, _NAMES, rows)
    used: list[DocumentExample] = []
    right: list[Bools] = []
    told: list[str] = []
    refused = 0
    for number, example in enumerate(examples):
        progress("examples", number, len(examples))
        try:
            inputs = source.prepare(example.prompt())
        except InputError as error:
            if settings.strict:
                raise InputError(f"{example.place}: {error.what}") from None
            refused += 1
            continue
        right.append(_measured(shown, inputs, example, measuring))
        told += notes(inputs)
        used.append(example)
    progress("examples", len(examples), len(examples))
    if not used:
        raise InputError(
            "the model can take none of the {} examples; {strict} says why",
            len(examples),
            strict=True,
        )
    skipped = {"lines that cannot be used": len(bad), "longer than the model": refused}
    documents = _sheet(used, np.stack(right), shown.layout, settings, skipped)
    return Spans(
        source=source.info,
        layout=shown.layout,
        texts=len(used),
        corpus=fingerprint((*example.documents, example.question) for example in used),
        seed=settings.seed,
        rows=rows,
        quantity=quantity,
        spans=measuring.spans(),
        heads=measuring.heads(),
        documents=documents,
        notes=(*_notes(len(used), settings), *shortened(told)),
    )


def _measured(
    shown: Source, inputs: Inputs, example: DocumentExample, measuring: Measuring
) -> Bools:
    """Whether each head takes the right document, [N]; its sums are added up."""
    tokens = tokens_of(inputs)
    documents = _documents(tokens, example.right)
    keys = measuring.key_groups(tokens)
    sums = watched(shown, inputs, measuring.row_groups(tokens), [*keys, *documents])
    own = len(keys)
    measuring.add(sums.part(own), tokens)
    taken = sums.per_token[:, -1, own:].argmax(1)
    chosen: Bools = taken == example.right
    return chosen


def _documents(tokens: Tokens, right: int) -> list[Sequence[int]]:
    """The positions of every document, in the order in which they stand there."""
    spans = {span.name: span for span in tokens.spans}
    places: list[Sequence[int]] = [range(a, b) for a, b in spans[DISTRACTORS].ranges]
    places.insert(right, spans[RIGHT].positions)
    return places


def _sheet(
    examples: Sequence[DocumentExample],
    right: Bools,
    layout: Layout,
    settings: DocumentSettings,
    skipped: Mapping[str, int],
) -> DocumentSheet:
    """Every head against chance and the rules, [C, N] hits."""
    every = np.ones(len(examples), np.bool_)
    held = np.array([example.half == 1 for example in examples])
    both = settings.split != EVERYTHING and held.any() and not held.all()
    chosen, measured = (~held, held) if both else (every, every)
    clusters = np.array([example.cluster for example in examples])[measured]
    of = np.unique(clusters, return_inverse=True)[1]
    sizes = np.bincount(of)

    def summed(values: NDArray[Any]) -> NDArray[Any]:
        """Of the measured examples [C], by cluster."""
        return np.bincount(of, np.asarray(values[measured], np.float64), len(sizes))

    by_rule = {
        rule: np.array([example.by_rule(rule) == example.right for example in examples])
        for rule in RULES
    }
    rules = tuple(
        DocumentRule(rule, share(summed(hits), sizes), float(hits[chosen].mean()))
        for rule, hits in by_rule.items()
    )
    baseline = max(rules, key=lambda rule: rule.where_chosen).name
    base = by_rule[baseline].astype(np.int64)
    accuracy = right[chosen].mean(0)
    heads = list(layout)
    chance = np.array([1 / len(example.documents) for example in examples])
    ranked, p = [], []
    for place in np.argsort(-accuracy, kind="stable").tolist():
        hits = right[:, place].astype(np.int64)
        margin = summed(hits - base)
        ranked.append(
            DocumentChoice(
                heads[place],
                share(summed(hits), sizes),
                float(accuracy[place]),
                share(margin, sizes, DIFFERENCE),
            )
        )
        p.append(max(p_above_zero(margin, sizes), p_above_zero(summed(hits - chance), sizes)))
    count = int(measured.sum())
    passed = sure(p, len(p)) if enough(count, len(sizes)) else [False] * len(p)
    return DocumentSheet(
        examples=len(examples),
        skipped={reason: number for reason, number in skipped.items() if number},
        documents=float(np.mean([len(example.documents) for example in examples])),
        chance=float(chance[measured].mean()),
        split=_named(settings.split, examples),
        rules=rules,
        baseline=baseline,
        ranked=tuple(ranked),
        sure=tuple(_sure(ranked, passed)),
    )


def _named(split: str, examples: Sequence[DocumentExample]) -> str:
    """The split with the value that is chosen on, where a field decides."""
    if not field_of(split):
        return split
    return resolved(split, {example.cluster: example.part for example in examples})


def _sure(ranked: Sequence[DocumentChoice], passed: Sequence[bool]) -> list[Head]:
    return [head.head for head, well in zip(ranked, passed, strict=True) if well]


def _notes(count: int, settings: DocumentSettings) -> list[str]:
    measured = count if settings.split == EVERYTHING else (count + 1) // 2
    few = few_groups(measured, "examples")
    if few:
        return [few]
    if measured < FEW:
        less = f"intervals from fewer than {FEW} cover less than they say"
        return [f"{measured} examples are few: {less}."]
    return []
