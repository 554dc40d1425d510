"""Sentences with gold dependencies in one CoNLL-U file (https://universaldependencies.org).

Words are the syntactic words: ranges (3-4) and empty nodes (3.1) are skipped, enhanced
dependencies are not used. ``# newdoc`` begins a document; where a file has none, every sentence is
one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnviz.core.prompt import Prompt
from attnviz.core.provenance import own_name
from attnviz.corpus.lines import Problem, decoded, no_text, open_bytes, shown, whole_number

_COLUMNS = 10
_LONGEST = 1 << 20  # bytes of a line; more is no word
_MOST_LINES = 100_000  # lines of a sentence; more is none


@dataclass(frozen=True, slots=True)
class ConlluRow:
    """A line of a sentence: a word, or an empty node that stands for what is not said."""

    line: int  # its number in the file
    word: int  # its number among the sentence's words, from 0; -1 for an empty node
    upos: str  # part of speech; ``feats`` features, ``misc`` the last column, all as they stand
    feats: str
    misc: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a treebank."""

    number: int  # from 1, over everything that was read, good or bad
    place: str  # file and line of its first line
    name: str  # its ``sent_id``, or its place
    document: int  # from 1, likewise
    words: tuple[str, ...]  # its syntactic words
    heads: tuple[int, ...]  # of each word, the number of its head among ``words``; -1 for the root
    relations: tuple[str, ...]  # of each word to its head, as annotated (``nmod:poss``)
    comments: tuple[str, ...] = ()  # as they stand, without the ``#``
    rows: tuple[ConlluRow, ...] = ()  # its words and empty nodes, in order

    @property
    def prompt(self) -> Prompt:
        """Its words with spaces between them, and where they stand."""
        return spoken(self.words)

    def comment(self, name: str) -> str | None:
        """Return what ``# name = ...`` says; None where it does not stand."""
        pairs = (comment.partition("=") for comment in self.comments)
        return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def stripped(relation: str) -> str:
    """Return a relation without its subtype: ``nmod:poss`` is ``nmod``."""
    return relation.partition(":")[0]


def spoken(words: Sequence[str]) -> Prompt:
    """Words with spaces between them, and where they stand."""
    spans, end = [], 0
    for word in words:
        spans.append((end, end + len(word)))
        end += len(word) + 1
    return Prompt(" ".join(words), words=tuple(spans))


def sentences(name: str) -> Iterator[tuple[int, int, Sentence | Problem]]:
    """Every sentence of a file with its number and line, or what is wrong with it and where."""
    document, marked = 0, False
    for number, (first, block) in enumerate(_blocks(name), start=1):
        if isinstance(block, Problem):
            yield number, first, block
            continue
        comments = tuple(line[1:].strip() for line in block if line[:1] == "#")
        starts = any(comment.startswith("newdoc") for comment in comments)
        document += starts or not marked
        marked = marked or starts
        sentence = _sentence(block, first)
        if isinstance(sentence, _Fault):
            yield number, sentence.line, Problem(sentence.reason)
        elif sentence is not None:
            words, heads, relations, rows = sentence
            origin = f"{shown(name)}:{first}"
            named = [c.partition("=")[2].strip() for c in comments if c.startswith("sent_id")]
            title = named[0] if named and named[0] else own_name(origin)
            yield (
                number,
                first,
                Sentence(number, origin, title, document, words, heads, relations, comments, rows),
            )


def _blocks(name: str) -> Iterator[tuple[int, list[str] | Problem]]:
    """Yield the lines of each sentence, with the number of the first; or why there are none."""
    with open_bytes(name) as file:
        if problem := no_text(file):
            yield 1, problem
            return
        block: list[str] = []
        fault: Problem | None = None
        first = 0
        for number, data in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            text = decoded(data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data)
            if isinstance(text, Problem):
                fault = fault or Problem(f"line {number} is {text}")
            line = text.rstrip("\r\n")
            if line.strip():
                first = first or number
                if len(block) < _MOST_LINES:
                    block.append(line)
                else:
                    fault = fault or Problem(f"a sentence of more than {_MOST_LINES:,} lines")
            elif block:
                yield first, fault or block
                block, fault, first = [], None, 0
        if block:
            yield first, fault or block


class _Fault(NamedTuple):
    """What is wrong with a sentence, and in which line."""

    line: int
    reason: str


_Annotation = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...], tuple[ConlluRow, ...]]


def _sentence(block: Sequence[str], first: int) -> _Annotation | _Fault | None:
    """Words, heads, relations and rows; None for comments only."""
    lines: list[int] = []
    words: list[Sequence[str]] = []
    heads: list[int] = []
    for line, text in enumerate(block, start=first):
        if text.startswith("#"):
            continue
        columns = text.split("\t")
        wrong = _wrong(columns, len(lines))
        if wrong:
            return _Fault(line, wrong)
        if columns[0].isdecimal():
            lines.append(line)
            words.append(columns)
            heads.append(int(columns[6]))
    if not lines:
        return None
    for line, head in zip(lines, heads, strict=True):
        if head > len(lines):
            return _Fault(line, f"its head is word {head}, but the sentence has {len(lines)} words")
    if word := _circling(heads):
        return _Fault(lines[word - 1], f"the heads above word {word} form a cycle; a tree has none")
    return (
        tuple(columns[1] for columns in words),
        tuple(head - 1 for head in heads),
        tuple(columns[7] for columns in words),
        tuple(_rows(block, first)),
    )


def _rows(block: Sequence[str], first: int) -> Iterator[ConlluRow]:
    """Yield the words and empty nodes of a sentence whose columns are sound."""
    word = 0
    for line, text in enumerate(block, start=first):
        columns = text.split("\t")
        if text.startswith("#") or "-" in columns[0]:
            continue
        empty = not columns[0].isdecimal()
        yield ConlluRow(line, -1 if empty else word, columns[3], columns[5], columns[9])
        word += not empty


def _wrong(columns: Sequence[str], words: int) -> str:
    """Say what is wrong with the columns of a line after so many words; empty if nothing."""
    if len(columns) != _COLUMNS:
        kind = "column" if len(columns) == 1 else "columns"
        return f"{len(columns)} {kind}; CoNLL-U has 10, separated by tabs"
    name, word, head = columns[0], columns[1], columns[6]
    if not name.isdecimal():
        parts = name.replace("-", ".").split(".")
        if len(parts) == 2 and all(part.isdecimal() for part in parts):
            return ""  # a range or an empty node
        return f"column 1 is {name[:20]!r}; it holds a number such as 3 or 3-4"
    number = whole_number(name)
    if number is not None and 1 <= number <= words:
        return f"number {number} appears twice; every word needs a number of its own"
    if number != words + 1:
        return f"word {name[:20]} follows word {words}; words are numbered 1, 2, 3"
    if whole_number(head) is None:
        return f"column 7 is {head[:20]!r}; it holds the number of the word's head"
    return "" if word.strip() else "column 2 is empty; it holds the word"


def _circling(heads: Sequence[int]) -> int:
    """Return the first word, from 1, from which going from word to head never reaches 0; 0 if none.

    Every word is passed once: what leads to a word that is known to reach 0 reaches it too.
    """
    reaches = [True] + [False] * len(heads)
    for start in range(1, len(heads) + 1):
        path, word = dict[int, None](), start
        while not reaches[word]:
            if word in path:
                return start
            path[word] = None
            word = heads[word - 1]
        for passed in path:
            reaches[passed] = True
    return 0
