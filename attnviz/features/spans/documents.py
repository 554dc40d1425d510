"""Questions whose answer stands in one of several documents, from a .jsonl file to prompts.

A line is an object with a question, an answer and a document, or a list of documents. Of a single
document the distractors are documents of other lines, drawn from a seed; of a list they are its
others, and the right one is the first unless a field names its number. The right document stands
first, second, ... equally often, but where a field says which one it is, and the order is the
file's.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.core.arguments import check_fields
from attnviz.core.prompt import Prompt
from attnviz.core.spans import Range
from attnviz.corpus.gold.halves import HALVES, Selection
from attnviz.corpus.lines import Problem, lines, shown
from attnviz.corpus.texts import Bad
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.spans.result import ANSWER, DISTRACTORS, QUESTION, RIGHT

RULES = ("first", "last", "longest", "question", "answer")
"""Rules without attention, see :class:`~attnviz.features.spans.result.DocumentRule`."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class DocumentSettings:
    """Which fields of a file are what, and how heads are chosen.

    Attributes:
        context: the field with the right document, or a list of documents.
        question: the field with the question; ``answer`` with its answer.
        answer: see ``question``.
        gold: the field with the number of the right document in the list, from 0.
        distractors: how many are drawn where the file has one document a line.
        select_on: ``halves`` chooses heads and the baseline on even examples and measures them on
            odd ones; ``all`` does both on everything.
        seed: of what is drawn.
        strict: an example that cannot be used ends the run.
    """

    context: str = "context"
    question: str = "question"
    answer: str = "answer"
    gold: str | None = None
    distractors: int = 3
    select_on: Selection = HALVES
    seed: int = 0
    strict: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for a value that there is not."""
        if self.distractors < 1:
            raise UsageError("{} is too few; take at least 1", Setting("distractors", 0))
        if not 0 <= self.seed < 1 << 63:
            raise UsageError("{} must be from 0 to 2^63 - 1", Setting("seed", self.seed))


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
    """

    number: int
    place: str
    documents: tuple[str, ...]
    right: int
    question: str
    answer: str

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
        others = [one for number, one in enumerate(ranges) if number != self.right]
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
) -> tuple[list[DocumentExample], list[Bad]]:
    """The examples of a file, and the lines that cannot be used.

    Raises:
        InputError: no such file, or no line that can be used; with ``strict``, the first that
            cannot.
    """
    settings.check()
    name = str(name)
    if Path(name).suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{name} is no .jsonl file, with an object on every line")
    rows: list[tuple[int, str, dict[str, Any]]] = []
    bad: list[Bad] = []
    for number, line in lines(name):
        place = f"{shown(name)}:{number}"
        row = _row(line, settings)
        if isinstance(row, str):
            bad.append(Bad(number, place, row))
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
    found = value.get(settings.context)
    documents = [found] if isinstance(found, str) else found
    if not isinstance(documents, list) or not documents:
        return f"{settings.context!r} is neither a text nor a list of texts"
    if not all(isinstance(one, str) and one.strip() for one in documents):
        return f"{settings.context!r} has a document that is no text"
    gold = None if settings.gold is None else value.get(settings.gold)
    if settings.gold is not None and (
        isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(documents)
    ):
        return f"{settings.gold!r} is no number of a document, from 0 to {len(documents) - 1}"
    if isinstance(found, list) and len(documents) < 2:
        return f"{settings.context!r} has a single document in its list; one alone is a text"
    return {
        "question": value[settings.question].strip(),
        "answer": value[settings.answer].strip(),
        "documents": [one.strip() for one in documents],
        "gold": gold,
    }


def _examples(
    rows: Sequence[tuple[int, str, dict[str, Any]]], settings: DocumentSettings
) -> Iterator[DocumentExample]:
    pool = list(dict.fromkeys(row["documents"][0] for _, _, row in rows))
    for index, (number, place, row) in enumerate(rows):
        documents, gold = row["documents"], row["gold"]
        drawn = random.Random(f"{settings.seed} {number}")
        if len(documents) == 1:
            others = [one for one in pool if one != documents[0]]
            if len(others) < settings.distractors:
                raise InputError(
                    f"{len(others)} other documents are too few for {settings.distractors} "
                    "distractors; take fewer, or give every line a list of documents"
                )
            documents = [documents[0], *drawn.sample(others, settings.distractors)]
            gold = None
        if gold is None:
            right, *others = documents
            drawn.shuffle(others)
            gold = index // 2 % len(documents)  # alike in both halves
            documents = [*others[:gold], right, *others[gold:]]
        yield DocumentExample(number, place, tuple(documents), gold, row["question"], row["answer"])


def _chars(ranges: Sequence[Range]) -> str:
    return "chars:" + ",".join(f"{first}-{end - 1}" for first, end in ranges)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
