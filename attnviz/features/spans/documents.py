"""Questions whose answer stands in one of several documents, from a .jsonl file to prompts.

A line is an object with a question, an answer and a document, or a list of documents. Of a single
document the distractors are documents of other lines, drawn from a seed; of a list they are its
others, and the right one is the first unless a field names its number. The right document stands
first, second, ... equally often, but where a field says which one it is, and the order is the
file's.

Heads are chosen on one half of the examples and measured on the other, and no document is in both:
a head that finds a document for what it is would be chosen and praised for the same one. Examples
that share a document, or near copies of one, stay together and count as one where certainty is
concerned. So distractors are drawn within small blocks of examples, which share documents with no
other block.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import notes
from attnviz.captures.trials import check_single_stack
from attnviz.core.arrays import Bools
from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.spans import ELSEWHERE, LAST, Range
from attnviz.core.split import (
    EVERYTHING,
    HALVES,
    field_of,
    resolved,
    same_text,
    sides,
    sides_by_name,
    values_of,
)
from attnviz.core.tokens import Tokens
from attnviz.corpus.gold.tally import DIFFERENCE, enough, p_above_zero, share, sure
from attnviz.corpus.lines import Problem, lines, shown
from attnviz.corpus.texts import InvalidRecord
from attnviz.errors import InputError, UsageError
from attnviz.features.spans import result as records
from attnviz.features.spans.measure import Measuring, shortened, watched
from attnviz.models.norm_based import with_quantity
from attnviz.statistics.clusters import FEW, few_groups

RULES = ("first", "last", "longest", "question", "answer")
"""Rules without attention, see :class:`~attnviz.features.spans.result.DocumentRule`."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class DocumentExample:
    """A question with its documents, in the order in which they stand in the prompt."""

    number: int  # from 1, over all lines; ``place`` file and line
    place: str
    documents: tuple[str, ...]  # the texts; ``right`` the place of the right one among them
    right: int
    question: str  # the text; ``answer`` too
    answer: str
    # 0 where heads are chosen on it, 1 where they are measured; ``cluster`` what it shares
    # documents with
    half: int = 0
    cluster: int = 0
    part: str = ""  # what the field says that ``split`` names; empty without

    def prompt(self) -> Prompt:
        """Return the text, and the characters of every part of it."""
        text, ranges = "", []
        for number, document in enumerate(self.documents, 1):
            text += f"Document {number}: "
            ranges.append((len(text), len(text) + len(document)))
            text += f"{document}\n\n"
        text += "Question: "
        question = (len(text), len(text) + len(self.question))
        text += f"{self.question}\nAnswer: "
        answer = (len(text), len(text) + len(self.answer))
        distractors = [span for number, span in enumerate(ranges) if number != self.right]
        spans = {
            records.RIGHT: [ranges[self.right]],
            records.DISTRACTORS: distractors,
            records.QUESTION: [question],
            records.ANSWER: [answer],
        }
        return Prompt(text + self.answer, spans={name: _chars(r) for name, r in spans.items()})

    def by_rule(self, rule: str) -> int:
        """Return the document that a rule without attention takes; the first of several."""
        count = len(self.documents)
        if rule in ("first", "last"):
            return 0 if rule == "first" else count - 1
        if rule == "longest":
            return max(range(count), key=lambda n: len(self.documents[n]))
        words = _words(self.question if rule == "question" else self.answer)
        return max(range(count), key=lambda n: len(words & _words(self.documents[n])))


def read_examples(
    name: str | Path, settings: records.DocumentSettings
) -> tuple[list[DocumentExample], list[InvalidRecord]]:
    """Return the examples of a file, and the lines that cannot be used."""
    name = str(name)
    if Path(name).suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{name} is no .jsonl file, with an object on every line")
    rows: list[tuple[int, str, dict[str, Any]]] = []
    bad: list[InvalidRecord] = []
    for number, line in lines(name):
        origin = f"{shown(name)}:{number}"
        row = _row(line, settings)
        if isinstance(row, str):
            bad.append(InvalidRecord(number, origin, row))
        else:
            rows.append((number, origin, row))
    if settings.strict and bad:
        raise InputError(f"{bad[0].place}: {bad[0].reason}")
    if not rows:
        reason = f"; {bad[0].place}: {bad[0].reason}" if bad else ""
        raise InputError(f"{name} holds no example{reason}")
    return list(_examples(rows, settings)), bad


def _row(line: str | Problem, settings: records.DocumentSettings) -> dict[str, Any] | str:
    """Return the fields of a line, or what is wrong with it."""
    if isinstance(line, Problem):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({str(error)[:80]})"
    if not isinstance(value, dict):
        return "not an object"
    for field in (settings.question, settings.answer):
        if not isinstance(value.get(field), str) or not value[field].strip():
            return f"{field!r} is no text"
    context = value.get(settings.context)
    documents = [context] if isinstance(context, str) else context
    if not isinstance(documents, list) or not documents:
        return f"{settings.context!r} is neither a text nor a list of texts"
    if not all(isinstance(document, str) and document.strip() for document in documents):
        return f"{settings.context!r} has a document that is no text"
    gold = None if settings.gold is None else value.get(settings.gold)
    if settings.gold is not None and (
        isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(documents)
    ):
        return f"{settings.gold!r} is no number of a document, from 0 to {len(documents) - 1}"
    field = field_of(settings.split)
    if field and field not in value:
        return f"it has no field {field!r}"
    if isinstance(context, list) and len(documents) < 2:
        return f"{settings.context!r} has a single document in its list; one alone is a text"
    return {
        "question": value[settings.question].strip(),
        "answer": value[settings.answer].strip(),
        "documents": [document.strip() for document in documents],
        "gold": gold,
        "part": str(value[field]) if field else "",
    }


def _examples(
    rows: Sequence[tuple[int, str, dict[str, Any]]], settings: records.DocumentSettings
) -> Iterator[DocumentExample]:
    clusters, halves = _apart(
        [row["documents"] for _, _, row in rows], [row["part"] for _, _, row in rows], settings
    )
    pools, blocks = _pools([row["documents"] for _, _, row in rows], clusters, halves, settings)
    counts = [0, 0]
    for (number, origin, row), half, cluster in zip(rows, halves, clusters, strict=True):
        documents, gold = row["documents"], row["gold"]
        generator = random.Random(f"{settings.seed} {number}")
        if len(documents) == 1:
            right_text, pool = same_text(documents[0]), pools[blocks[cluster]]
            candidates = [document for name, document in pool.items() if name != right_text]
            if len(candidates) < settings.distractors:
                scope = "" if settings.split == EVERYTHING else " in one part of the examples"
                raise InputError(
                    f"{len(candidates)} other documents{scope} are too few for "
                    f"{settings.distractors} distractors; take fewer, or give every line a list "
                    "of documents"
                )
            documents = [documents[0], *generator.sample(candidates, settings.distractors)]
            gold = None
        if gold is None:
            right, *candidates = documents
            generator.shuffle(candidates)
            gold = counts[half] % len(documents)  # alike in both halves
            documents = [*candidates[:gold], right, *candidates[gold:]]
        counts[half] += 1
        yield DocumentExample(
            number, origin, tuple(documents), gold, row["question"], row["answer"], half,
            blocks.get(cluster, cluster), row["part"],
        )  # fmt: skip


def _pools(
    documents: Sequence[Sequence[str]],
    clusters: Sequence[int],
    halves: Sequence[int],
    settings: records.DocumentSettings,
) -> tuple[dict[int, dict[str, str]], dict[int, int]]:
    """Draw blocks of documents that stand beside single ones in each half, and clusters' blocks."""
    pools: dict[int, dict[str, str]] = {}
    blocks: dict[int, int] = {}
    for side in (0, 1):
        by_cluster: dict[int, dict[str, str]] = {}
        for texts, cluster, half in zip(documents, clusters, halves, strict=True):
            if half == side and len(texts) == 1:
                by_cluster.setdefault(cluster, {}).setdefault(same_text(texts[0]), texts[0])
        remaining = list(by_cluster)
        random.Random(f"{settings.seed} blocks {side}").shuffle(remaining)
        block, last = -1, -1
        for cluster in remaining:
            if block < 0 or len(pools[block]) > settings.distractors:
                last, block = block, cluster
            blocks[cluster] = block
            pools.setdefault(block, {}).update(by_cluster[cluster])
        if last >= 0 and len(pools[block]) <= settings.distractors:  # too few for one of its own
            pools[last] |= pools.pop(block)
            blocks |= {cluster: last for cluster, of in blocks.items() if of == block}
    return pools, blocks


def _apart(
    documents: Sequence[Sequence[str]], parts: Sequence[str], settings: records.DocumentSettings
) -> tuple[list[int], list[int]]:
    """Of every example the cluster that it shares documents with, and the half of that."""
    of: dict[str, int] = {}  # the first example with a document
    clusters = list(range(len(documents)))

    def root(number: int) -> int:
        while clusters[number] != number:
            number = clusters[number]
        return number

    for number, group in enumerate(documents):
        for document in group:
            clusters[root(number)] = root(of.setdefault(same_text(document), number))
    clusters = [root(number) for number in range(len(clusters))]
    if settings.split == EVERYTHING:
        return clusters, [0] * len(clusters)
    if field_of(settings.split):
        values = values_of(settings.split, zip(clusters, parts, strict=True))
        _, held = sides(settings.split, clusters, values)
        return clusters, held.astype(int).tolist()
    if settings.split != HALVES:
        named = ["\n".join(documents[cluster]) for cluster in clusters]
        _, held = sides_by_name(settings.split, named, settings.seed)
        return clusters, held.astype(int).tolist()
    sizes = Counter(clusters)
    if len(sizes) == 1 < len(clusters):
        raise InputError(
            "all examples share documents, so that no half can be held out; choose and measure "
            "on everything, with {split}",
            split="all",
        )
    filled, side = [0, 0], dict[int, int]()
    for cluster, size in sorted(sizes.items(), key=lambda item: -item[1]):
        side[cluster] = int(filled[1] < filled[0])
        filled[side[cluster]] += size
    return clusters, [side[cluster] for cluster in clusters]


def _chars(ranges: Sequence[Range]) -> str:
    return "chars:" + ",".join(f"{first}-{end - 1}" for first, end in ranges)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


_NAMES = (records.RIGHT, records.DISTRACTORS, records.QUESTION, records.ANSWER, ELSEWHERE)
_ROWS = (records.ANSWER, records.QUESTION, LAST)


def sheet(
    source: Source,
    name: str | Path,
    settings: records.DocumentSettings,
    *,
    rows: str | None,
    quantity: str,
    progress: Progress,
) -> records.Spans:
    """Measure every head on the examples of a file."""
    rows = rows or records.ANSWER
    if rows not in _ROWS:
        raise UsageError(f"no rows {rows!r}; of documents choose {', '.join(_ROWS)}")
    check_single_stack(source.info.model, source.layout, "spans")
    examples, bad = read_examples(name, settings)
    shared = with_quantity(source, quantity, shares=True)
    measuring = Measuring(shared.layout, _NAMES, rows)
    kept_examples: list[DocumentExample] = []
    right: list[Bools] = []
    messages: list[str] = []
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
        right.append(_measured(shared, inputs, example, measuring))
        messages += notes(inputs)
        kept_examples.append(example)
    progress("examples", len(examples), len(examples))
    if not kept_examples:
        raise InputError(
            "the model can take none of the {} examples; {strict} says why",
            len(examples),
            strict=True,
        )
    skipped = {"lines that cannot be used": len(bad), "longer than the model": refused}
    documents = _sheet(kept_examples, np.stack(right), shared.layout, settings, skipped)
    return records.Spans(
        source=source.info,
        layout=shared.layout,
        texts=len(kept_examples),
        corpus=fingerprint((*example.documents, example.question) for example in kept_examples),
        seed=settings.seed,
        rows=rows,
        quantity=quantity,
        spans=measuring.spans(),
        heads=measuring.heads(),
        documents=documents,
        notes=(*_notes(len(kept_examples), settings), *shortened(messages)),
    )


def _measured(
    source: Source, inputs: Inputs, example: DocumentExample, measuring: Measuring
) -> Bools:
    """Whether each head takes the right document, [N]; its sums are added up."""
    tokens = inputs.tokens
    documents = _documents(tokens, example.right)
    keys = measuring.key_groups(tokens)
    sums = watched(source, inputs, measuring.row_groups(tokens), [*keys, *documents])
    first = len(keys)
    measuring.add(sums.block(slice(None), slice(first)), tokens)
    chosen = sums.per_token[:, -1, first:].argmax(1)
    return chosen == example.right


def _documents(tokens: Tokens, right: int) -> list[Sequence[int]]:
    """Return the positions of every document, in the order in which they stand there."""
    spans = {span.name: span for span in tokens.spans}
    places: list[Sequence[int]] = [range(a, b) for a, b in spans[records.DISTRACTORS].ranges]
    places.insert(right, spans[records.RIGHT].positions)
    return places


def _sheet(
    examples: Sequence[DocumentExample],
    right: Bools,
    layout: Layout,
    settings: records.DocumentSettings,
    skipped: Mapping[str, int],
) -> records.DocumentSheet:
    """Every head against chance and the rules, [C, N] hits."""
    everything = np.ones(len(examples), np.bool_)
    held = np.array([example.half == 1 for example in examples])
    split = settings.split != EVERYTHING and held.any() and not held.all()
    chosen, measured = (~held, held) if split else (everything, everything)
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
        records.DocumentRule(rule, share(summed(hits), sizes), float(hits[chosen].mean()))
        for rule, hits in by_rule.items()
    )
    baseline = max(rules, key=lambda rule: rule.where_chosen).name
    base = by_rule[baseline].astype(np.int64)
    accuracy = right[chosen].mean(0)
    heads = list(layout)
    chance = np.array([1 / len(example.documents) for example in examples])
    ranked, p = [], []
    for index in np.argsort(-accuracy, kind="stable").tolist():
        hits = right[:, index].astype(np.int64)
        margin = summed(hits - base)
        ranked.append(
            records.DocumentChoice(
                heads[index],
                share(summed(hits), sizes),
                float(accuracy[index]),
                share(margin, sizes, DIFFERENCE),
            )
        )
        p.append(max(p_above_zero(margin, sizes), p_above_zero(summed(hits - chance), sizes)))
    count = int(measured.sum())
    passed = sure(p, len(p)) if enough(count, len(sizes)) else [False] * len(p)
    return records.DocumentSheet(
        examples=len(examples),
        skipped={reason: number for reason, number in skipped.items() if number},
        documents=float(np.mean([len(example.documents) for example in examples])),
        chance=float(chance[measured].mean()),
        split=resolved(settings.split, {example.cluster: example.part for example in examples}),
        rules=rules,
        baseline=baseline,
        ranked=tuple(ranked),
        sure=tuple(score.head for score, well in zip(ranked, passed, strict=True) if well),
    )


def _notes(count: int, settings: records.DocumentSettings) -> list[str]:
    measured = count if settings.split == EVERYTHING else (count + 1) // 2
    few = few_groups(measured, "examples")
    if few:
        return [few]
    if measured < FEW:
        warning = f"intervals from fewer than {FEW} cover less than they say"
        return [f"{measured} examples are few: {warning}."]
    return []
