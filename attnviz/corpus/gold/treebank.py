"""Sentences with gold dependencies from CoNLL-U files (https://universaldependencies.org).

Words are the syntactic words: ranges (3-4) and empty nodes (3.1) are skipped, enhanced
dependencies are not used. A sentence that cannot be used becomes a :class:`Bad` with its line.
``# newdoc`` begins a document; where a file has none, every sentence is one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import conllu
from conllu.exceptions import ParseException

from attnviz.corpus.lines import Problem, decoded, no_text, opened
from attnviz.corpus.texts import Bad, parted, resolve
from attnviz.errors import InputError
from attnviz.records import Prompt

ROOT_RELATION, PUNCTUATION = "root", "punct"
_COLUMNS = 10
_LONGEST = 1 << 20
"""Bytes of a line; more is no word."""
LOOKS = (
    "a CoNLL-U file has ten columns with tabs between them, a word a line and an empty line after "
    "each sentence (https://universaldependencies.org/format.html)"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a sentence: a word, or an empty node that stands for what is not said.

    Attributes:
        line: its number in the file.
        word: its number among the sentence's words, from 0; -1 for an empty node.
        upos: part of speech; ``feats`` features, ``misc`` the last column, all as they stand.
    """

    line: int
    word: int
    upos: str
    feats: str
    misc: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a treebank.

    Attributes:
        number: from 1, over everything that was read.
        place: file and line of its first line.
        name: its ``sent_id``, or its place.
        document: from 1, over everything that was read.
        words: its syntactic words.
        heads: of each word, the number of its head among ``words``; -1 for the root.
        relations: of each word to its head, as annotated (``nmod:poss``).
        comments: as they stand, without the ``#``.
        rows: its words and empty nodes, in order.
    """

    number: int
    place: str
    name: str
    document: int
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    comments: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def prompt(self) -> Prompt:
        """Its words with spaces between them, and where they stand."""
        return spoken(self.words)


def spoken(words: Sequence[str]) -> Prompt:
    """Words with spaces between them, and where they stand."""
    spans, end = [], 0
    for word in words:
        spans.append((end, end + len(word)))
        end += len(word) + 1
    return Prompt(" ".join(words), spans=tuple(spans))


def read(names: Sequence[str]) -> Iterator[Sentence | Bad]:
    """Every sentence of some files, in order.

    Args:
        names: paths and patterns; ``-`` is standard input.

    Raises:
        InputError: no such file, or one that cannot be opened; UsageError: nothing named.
    """
    number = document = 0
    for name in resolve(names):
        marked = False
        shown = "standard input" if name == "-" else name
        for first, block in _blocks(name):
            number += 1
            place = f"{shown}:{first}"
            if isinstance(block, Problem):
                yield Bad(number, place, block)
                continue
            starts = any(_comment(line).startswith("newdoc") for line in block if line[:1] == "#")
            document += starts or not marked
            marked = marked or starts
            found = _sentence(block, first)
            if isinstance(found, _Fault):
                yield Bad(number, f"{shown}:{found.line}", found.reason)
            elif found is not None:
                words, heads, relations, rows = found
                comments = tuple(_comment(line) for line in block if line[:1] == "#")
                named = [c.partition("=")[2].strip() for c in comments if c.startswith("sent_id")]
                title = named[0] if named and named[0] else place
                yield Sentence(
                    number, place, title, document, words, heads, relations, comments, rows
                )


def sentences(names: Sequence[str], *, strict: bool) -> tuple[list[Sentence], list[Bad]]:
    """All of a treebank, and what in it cannot be used.

    Args:
        names: see :func:`read`.
        strict: raise at the first sentence that cannot be used.

    Raises:
        InputError: nothing usable; or, with ``strict``, a sentence that is not.
    """
    good, bad = parted(read(names), strict=strict)
    if not good:
        why = f"{bad[0].place}: {bad[0].reason}; " if bad else "no sentence in it; "
        raise InputError(f"{', '.join(names)} has nothing to use: {why}{LOOKS}")
    return good, bad


def stripped(relation: str) -> str:
    """A relation without its subtype: ``nmod:poss`` is ``nmod``."""
    return relation.partition(":")[0]


def _blocks(name: str) -> Iterator[tuple[int, list[str] | Problem]]:
    """The lines of each sentence, with the number of the first; or why there are none."""
    with opened(name) as file:
        if problem := no_text(file):
            yield 1, problem
            return
        block: list[str] = []
        fault: Problem | None = None
        first = number = 0
        for number, data in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            text = decoded(data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data)
            if isinstance(text, Problem):
                fault = fault or Problem(f"line {number} is {text}")
            line = text.rstrip("\r\n")
            if line.strip():
                first = first or number
                block.append(line)
            elif block:
                yield first, fault or block
                block, fault, first = [], None, 0
        if block:
            yield first, fault or block


class _Fault(NamedTuple):
    """What is wrong with a sentence, and in which line."""

    line: int
    reason: str


_Annotation = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...], tuple[Row, ...]]


def _sentence(block: Sequence[str], first: int) -> _Annotation | _Fault | None:
    """Words, heads, relations and rows; None for comments only."""
    lines: list[int] = []
    for line, text in enumerate(block, start=first):
        if text.startswith("#"):
            continue
        wrong = _wrong(text.split("\t"), len(lines))
        if wrong:
            return _Fault(line, wrong)
        if text.partition("\t")[0].isdecimal():
            lines.append(line)
    if not lines:
        return None
    try:
        parsed = [t for t in conllu.parse("\n".join(block))[0] if isinstance(t["id"], int)]
    except ParseException as error:
        return _Fault(first, str(error))
    heads = [token["head"] for token in parsed]
    for number, line in enumerate(lines, start=1):
        head = heads[number - 1]
        if head > len(lines):
            return _Fault(line, f"the head is word {head}, and there are {len(lines)} words")
        if _circles(heads, number):
            return _Fault(line, f"the heads of word {number} go round in a circle; a tree has none")
    return (
        tuple(token["form"] for token in parsed),
        tuple(head - 1 for head in heads),
        tuple(token["deprel"] for token in parsed),
        tuple(_rows(block, first)),
    )


def _rows(block: Sequence[str], first: int) -> Iterator[Row]:
    """The words and empty nodes of a sentence whose columns are sound."""
    word = 0
    for line, text in enumerate(block, start=first):
        columns = text.split("\t")
        if text.startswith("#") or "-" in columns[0]:
            continue
        empty = not columns[0].isdecimal()
        yield Row(line, -1 if empty else word, columns[3], columns[5], columns[9])
        word += not empty


def _wrong(columns: Sequence[str], words: int) -> str:
    """What is wrong with the columns of a line that comes after so many words; empty if nothing."""
    if len(columns) != _COLUMNS:
        kind = "column" if len(columns) == 1 else "columns"
        return f"{len(columns)} {kind} where CoNLL-U has 10, with tabs between them"
    name, word, head = columns[0], columns[1], columns[6]
    if not name.isdecimal():
        parts = name.replace("-", ".").split(".")
        if len(parts) == 2 and all(part.isdecimal() for part in parts):
            return ""  # a range or an empty node
        return f"column 1 is {name[:20]!r}; it holds a number such as 3 or 3-4"
    if 1 <= int(name) <= words:
        return f"there are two words {name}; every word has a number of its own"
    if int(name) != words + 1:
        return f"word {name} follows word {words}; words are numbered 1, 2, 3"
    if not head.isdecimal():
        return f"column 7 is {head[:20]!r}; it holds the number of the word's head"
    return "" if word.strip() else "column 2 is empty; it holds the word"


def _circles(heads: Sequence[int], word: int) -> bool:
    """Whether going from word to head, from 1, never reaches 0."""
    for _ in heads:
        if word == 0:
            return False
        word = heads[word - 1]
    return word != 0


def _comment(line: str) -> str:
    return line[1:].strip()
