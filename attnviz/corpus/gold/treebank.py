"""Treebanks: sentences with gold dependencies from any number of CoNLL-U files.

A sentence that cannot be used becomes a :class:`InvalidRecord` with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from attnviz.corpus import conllu
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.lines import Problem, shown
from attnviz.corpus.texts import InvalidRecord, resolve, separated
from attnviz.errors import InputError
from attnviz.files import listed

PUNCTUATION = "punct"
LOOKS = (
    "a CoNLL-U file has ten columns separated by tabs, one word per line and an empty "
    "line after each sentence (https://universaldependencies.org/format.html)"
)


def commented(sentences: Sequence[Sentence], name: str, split: str) -> Iterator[str]:
    """What the comment of a name says of every sentence, or of one before in its document."""
    document, value = 0, None
    for sentence in sentences:
        if sentence.document != document:
            document, value = sentence.document, None
        value = sentence.comment(name) or value
        if value is None:
            raise InputError(
                "{} has no comment {!r} for {split}, nor has a sentence before it in its document; "
                "write # {} = ... there", sentence.place, name, name, split=split,
            )  # fmt: skip
        yield value


def read(names: Sequence[str]) -> Iterator[Sentence | InvalidRecord]:
    """Every sentence of some files, in order."""
    number = document = 0
    for name in resolve(names):
        read, begun = number, document
        for own, line, sentence in conllu.sentences(name):
            number = read + own
            if isinstance(sentence, Problem):
                yield InvalidRecord(number, f"{shown(name)}:{line}", sentence)
            else:
                document = begun + sentence.document
                yield replace(sentence, number=number, document=document)


def sentences(names: Sequence[str], *, strict: bool) -> tuple[list[Sentence], list[InvalidRecord]]:
    """All of a treebank, and what in it cannot be used."""
    good, bad = separated(read(names), strict=strict)
    if not good:
        why = f"{bad[0].place}: {bad[0].reason}; " if bad else "no sentence in it; "
        raise InputError(f"{', '.join(names)} has nothing usable: {why}{LOOKS}")
    return good, bad


COREF = "coref="
"""Stands before a treebank whose entities are meant, not its dependencies."""

_TABLES = (".tsv", ".csv", ".txt")  # suffixes of tables of pronouns; other files are treebanks


def split_gold(gold: str | Path | Sequence[str | Path] | None) -> tuple[list[str], list[str]]:
    """The files for syntax, and those for coref: tables of pronouns, and ``coref=FILE``."""
    treebanks: list[str] = []
    antecedents: list[str] = []
    for name in listed(gold):
        if name.startswith(COREF):
            antecedents.append(name.removeprefix(COREF))
        elif Path(name).suffix.lower() in _TABLES:
            antecedents.append(name)
        else:
            treebanks.append(name)
    return treebanks, antecedents
