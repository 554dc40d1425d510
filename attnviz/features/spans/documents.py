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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.core.prompt import Prompt
from attnviz.core.spans import Range
from attnviz.core.split import (
    EVERYTHING,
    HALVES,
    field_of,
    same_text,
    sides,
    sides_by_name,
    values_of,
)
from attnviz.corpus.lines import Problem, lines, shown
from attnviz.corpus.texts import InvalidRecord
from attnviz.errors import InputError, UsageError
from attnviz.features.spans.result import ANSWER, DISTRACTORS, QUESTION, RIGHT
from attnviz.features.spans.settings import DocumentSettings

RULES = ("first", "last", "longest", "question", "answer")
"""Rules without attention, see :class:`~attnviz.features.spans.result.DocumentRule`."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class DocumentExample:
    """A question with its documents, in the order in which they stand in the prompt.

    Attributes:
        number: from 1, over all lines; ``place`` file and line.
        place: see ``number``.
        documents: the texts; ``right`` the place of the right one among them.
        right: see ``documents``.
        question: the text; ``answer`` too.
        answer: see ``question``.
        half: 0 where heads are chosen on it, 1 where they are measured; ``cluster`` what it shares
            documents with.
        cluster: see ``half``.
        part: what the field says that ``split`` names; empty without.
    """

    number: int
    place: str
    documents: tuple[str, ...]
    right: int
    question: str
    answer: str
    half: int = 0
    cluster: int = 0
    part: str = ""

    def prompt(self) -> Prompt:
        """The text, and the characters of every part of it."""
        text, ranges = "", []
        for number, document in enumerate(self.documents, 1):
            text += f"Document {number}: "
            ranges.append((len(text), len(text) + len(document)))
            text += f"{document}\n\n"
        text += "Question: "
        question = (len(text), len(text) + len(self.question))
        text += f"{self.question}\nAnswer: "
        answer = (len(text), len(text) + len(self.answer))
        others = [span for number, span in enumerate(ranges) if number != self.right]
        spans = {
            RIGHT: [ranges[self.right]],
            DISTRACTORS: others,
            QUESTION: [question],
            ANSWER: [answer],
        }
        return Prompt(text + self.answer, spans={name: _chars(r) for name, r in spans.items()})

    def by_rule(self, rule: str) -> int:
        """The document that a rule without attention takes; the first of several."""
        count = len(self.documents)
        if rule in ("first", "last"):
            return 0 if rule == "first" else count - 1
        if rule == "longest":
            return max(range(count), key=lambda n: len(self.documents[n]))
        wanted = _words(self.question if rule == "question" else self.answer)
        return max(range(count), key=lambda n: len(wanted & _words(self.documents[n])))


def read_examples(
    name: str | Path, settings: DocumentSettings
) -> tuple[list[DocumentExample], list[InvalidRecord]]:
    """The examples of a file, and the lines that cannot be used."""
    name = str(name)
    if Path(name).suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{name} is no .jsonl file, with an object on every line")
    rows: list[tuple[int, str, dict[str, Any]]] = []
    bad: list[InvalidRecord] = []
    for number, line in lines(name):
        place = f"{shown(name)}:{number}"
        row = _row(line, settings)
        if isinstance(row, str):
            bad.append(InvalidRecord(number, place, row))
        else:
            rows.append((number, place, row))
    if settings.strict and bad:
        raise InputError(f"{bad[0].place}: {bad[0].reason}")
    if not rows:
        why = f"; {bad[0].place}: {bad[0].reason}" if bad else ""
        raise InputError(f"{name} holds no example{why}")
    return list(_examples(rows, settings)), bad


def _row(line: str | Problem, settings: DocumentSettings) -> dict[str, Any] | str:
    """The fields of a line, or what is wrong with it."""
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
    rows: Sequence[tuple[int, str, dict[str, Any]]], settings: DocumentSettings
) -> Iterator[DocumentExample]:
    clusters, halves = _apart(
        [row["documents"] for _, _, row in rows], [row["part"] for _, _, row in rows], settings
    )
    pools, blocks = _pools([row["documents"] for _, _, row in rows], clusters, halves, settings)
    done = [0, 0]
    for (number, place, row), half, cluster in zip(rows, halves, clusters, strict=True):
        documents, gold = row["documents"], row["gold"]
        drawn = random.Random(f"{settings.seed} {number}")
        if len(documents) == 1:
            own, pool = same_text(documents[0]), pools[blocks[cluster]]
            others = [document for name, document in pool.items() if name != own]
            if len(others) < settings.distractors:
                where = "" if settings.split == EVERYTHING else " in one part of the examples"
                raise InputError(
                    f"{len(others)} other documents{where} are too few for "
                    f"{settings.distractors} distractors; take fewer, or give every line a list "
                    "of documents"
                )
            documents = [documents[0], *drawn.sample(others, settings.distractors)]
            gold = None
        if gold is None:
            right, *others = documents
            drawn.shuffle(others)
            gold = done[half] % len(documents)  # alike in both halves
            documents = [*others[:gold], right, *others[gold:]]
        done[half] += 1
        yield DocumentExample(
            number, place, tuple(documents), gold, row["question"], row["answer"], half,
            blocks.get(cluster, cluster), row["part"],
        )  # fmt: skip


def _pools(
    documents: Sequence[Sequence[str]],
    clusters: Sequence[int],
    halves: Sequence[int],
    settings: DocumentSettings,
) -> tuple[dict[int, dict[str, str]], dict[int, int]]:
    """The documents that stand beside single ones, by block, and the block of every cluster.

    Blocks are as small as distractors allow, of clusters in a random order, in each half.
    """
    pools: dict[int, dict[str, str]] = {}
    blocks: dict[int, int] = {}
    for side in (0, 1):
        own: dict[int, dict[str, str]] = {}
        for some, cluster, half in zip(documents, clusters, halves, strict=True):
            if half == side and len(some) == 1:
                own.setdefault(cluster, {}).setdefault(same_text(some[0]), some[0])
        left = list(own)
        random.Random(f"{settings.seed} blocks {side}").shuffle(left)
        block, last = -1, -1
        for cluster in left:
            if block < 0 or len(pools[block]) > settings.distractors:
                last, block = block, cluster
            blocks[cluster] = block
            pools.setdefault(block, {}).update(own[cluster])
        if last >= 0 and len(pools[block]) <= settings.distractors:  # too few for one of its own
            pools[last] |= pools.pop(block)
            blocks |= {cluster: last for cluster, of in blocks.items() if of == block}
    return pools, blocks


def _apart(
    documents: Sequence[Sequence[str]], parts: Sequence[str], settings: DocumentSettings
) -> tuple[list[int], list[int]]:
    """Of every example the cluster that it shares documents with, and the half of that."""
    of: dict[str, int] = {}  # the first example with a document
    clusters = list(range(len(documents)))

    def root(number: int) -> int:
        while clusters[number] != number:
            number = clusters[number]
        return number

    for number, some in enumerate(documents):
        for document in some:
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
