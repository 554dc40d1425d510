"""What can set a key apart from the others, seen from its query; and what a query can be.

A relation says which keys of a row are its targets, a condition which rows it is about; both are
known from the tokens alone, or from what a treebank says of their words. Relations of the names of
scores have the targets of those scores (:mod:`attnviz.scoring.scores`): outside of the sink but for
``first`` and ``separator``; only that position 0 is the token before position 1 here.

Notation in shapes: n rows, S keys, R relations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnviz.core.result import Leaf
from attnviz.core.tokens import Tokens
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.errors import UsageError
from attnviz.scoring.axes import is_punctuation
from attnviz.scoring.block import LOCAL_WINDOW

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

CLASSES = ("first", "special", "punctuation", "digit", "continuation", "initial")
"""Every token is of one: position 0, one of the tokenizer's own, punctuation, a number, a later
piece of a word, or a word's first piece."""

_ENDS = frozenset(".!?。！？…")


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the tokens of one text."""

    tokens: Tokens  # S of them
    sentence: Sentence | None = None  # of a treebank, whose words are those of the tokens

    @cached_property
    def identity(self) -> Integers:
        """[S], the same number for the same token."""
        return _numbered(self.tokens.identity)

    @cached_property
    def letters(self) -> Integers:
        """[S], the same number for the same letters, whatever their case; -1 without letters."""
        plain = [text.strip().removeprefix("##").casefold() for text in self.tokens.texts]
        numbers = _numbered(plain)
        return np.where([any(map(str.isalnum, text)) for text in plain], numbers, -1)

    @cached_property
    def words(self) -> Integers:
        """[S], the number of each token's word; -1 for special tokens."""
        return np.array(self.tokens.words, np.int64)

    @cached_property
    def special(self) -> Bools:
        """[S], the tokenizer's own."""
        return np.array(self.tokens.special, np.bool_)

    @cached_property
    def separators(self) -> Bools:
        """[S], tokens that end a segment."""
        return np.array(self.tokens.separators, np.bool_)

    @cached_property
    def punctuation(self) -> Bools:
        """[S], nothing but punctuation."""
        return np.array([is_punctuation(text) for text in self.tokens.texts]) & ~self.special

    @cached_property
    def digit(self) -> Bools:
        """[S], numbers."""
        return (
            np.array([text.strip().removeprefix("##").isnumeric() for text in self.tokens.texts])
            & ~self.special
        )

    @cached_property
    def capital(self) -> Bools:
        """[S], tokens that begin with a capital letter."""
        return np.array([text.strip()[:1].isupper() for text in self.tokens.texts]) & ~self.special

    @cached_property
    def continuation(self) -> Bools:
        """[S], later pieces of a word."""
        same = np.zeros(len(self.words), np.bool_)
        same[1:] = self.words[1:] == self.words[:-1]
        return same & ~self.special & ~self.punctuation & ~self.digit

    @cached_property
    def opens(self) -> Bools:
        """[S], the first token of a sentence but the first of all: after . ! ? or a line's end."""
        texts = self.tokens.texts
        ends = np.array(
            [bool(_ENDS & set(text.strip()[-1:])) or text.endswith("\n") for text in texts]
        )
        opens = np.zeros(len(texts), np.bool_)
        opens[1:] = ends[:-1] & ~ends[1:]
        return opens & ~self.punctuation & ~self.special

    @cached_property
    def repeated(self) -> Bools:
        """[S], occurred before in this text."""
        _, first = np.unique(self.identity, return_index=True)
        again = np.ones(len(self.identity), np.bool_)
        again[first] = False
        return again & ~self.special

    @cached_property
    def governors(self) -> Integers:
        """[S], the number of the word that each token's word depends on; -1 for none."""
        heads = () if self.sentence is None else self.sentence.heads
        return np.array([heads[word] if 0 <= word < len(heads) else -1 for word in self.words])

    @cached_property
    def arcs(self) -> tuple[str, ...]:
        """Of each token's word to that, without subtypes; empty for none."""
        names = () if self.sentence is None else self.sentence.relations
        plain = [*map(stripped, names)]
        return tuple(plain[word] if 0 <= word < len(plain) else "" for word in self.words)

    @cached_property
    def sink(self) -> Bools:
        """[S], position 0 and the tokenizer's own."""
        sink = self.special.copy()
        sink[0] = True
        return sink

    @cached_property
    def classes(self) -> NDArray[np.int8]:
        """[S], places in :data:`CLASSES`."""
        classes = np.full(len(self.words), CLASSES.index("initial"), np.int8)
        for name, flags in (
            ("continuation", self.continuation),
            ("digit", self.digit),
            ("punctuation", self.punctuation),
            ("special", self.special),
        ):
            classes[flags] = CLASSES.index(name)
        classes[0] = CLASSES.index("first")
        return classes


def _numbered(names: object) -> Integers:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Relation:
    """What sets a key apart."""

    # of a score where it has that score's targets; in words, see
    # :mod:`attnviz.features.profile.words`.
    name: str
    targets: Callable[[Known, Integers], Bools]  # of rows [n] over a text: bool [n, S]
    sink: bool = False  # whether position 0 and special tokens may be targets


def _offset(by: int) -> Callable[[Known, Integers], Bools]:
    def targets(known: Known, rows: Integers) -> Bools:
        return np.arange(len(known.words)) == rows[:, None] + by

    return targets


def _flag(name: str) -> Callable[[Known, Integers], Bools]:
    def targets(known: Known, rows: Integers) -> Bools:
        return np.broadcast_to(getattr(known, name), (len(rows), len(known.words)))

    return targets


def _first(known: Known, rows: Integers) -> Bools:
    return np.broadcast_to(np.arange(len(known.words)) == 0, (len(rows), len(known.words)))


def _separator(known: Known, rows: Integers) -> Bools:
    flags = known.separators.copy()
    flags[0] = False
    return np.broadcast_to(flags, (len(rows), len(flags)))


def _local(known: Known, rows: Integers) -> Bools:
    return abs(np.arange(len(known.words)) - rows[:, None]) <= LOCAL_WINDOW


def _earlier(known: Known, rows: Integers) -> Bools:
    """At least two positions back."""
    return np.arange(len(known.words)) <= rows[:, None] - 2


def _duplicate(known: Known, rows: Integers) -> Bools:
    same: Bools = known.identity == known.identity[rows][:, None]
    return same & _earlier(known, rows)


def _after(flags: Bools, by: int) -> Bools:
    """Keys so many positions after those that are marked."""
    moved = np.zeros_like(flags)
    if by > 0:
        moved[:, by:] = flags[:, :-by]
    else:
        moved[:, :by] = flags[:, -by:]
    return moved


def _induction(known: Known, rows: Integers) -> Bools:
    same: Bools = known.identity == known.identity[rows][:, None]
    return _after(same, 1) & _earlier(known, rows)


def _before_copy(known: Known, rows: Integers) -> Bools:
    same: Bools = known.identity == known.identity[rows][:, None]
    return _after(same, -1) & _earlier(known, rows)


def _same_letters(known: Known, rows: Integers) -> Bools:
    own = known.letters[rows][:, None]
    other = known.identity != known.identity[rows][:, None]
    return (known.letters == own) & (own >= 0) & other


def _same_word(known: Known, rows: Integers) -> Bools:
    same: Bools = (known.words == known.words[rows][:, None]) & (known.words >= 0)
    return same & ~_offset(0)(known, rows)


def _word_before(known: Known, rows: Integers) -> Bools:
    before: Bools = known.words == known.words[rows][:, None] - 1
    return before & (known.words >= 0)


def _last_mark(known: Known, rows: Integers) -> Bools:
    """Return the last punctuation before the query."""
    places = np.where(known.punctuation, np.arange(len(known.words)), -1)
    last = np.concatenate([[-1], np.maximum.accumulate(places)[:-1]])[rows]
    return np.arange(len(known.words)) == last[:, None]


def _governor(known: Known, rows: Integers) -> Bools:
    above = known.governors[rows][:, None]
    return (known.words == above) & (above >= 0)


def _dependent(*arcs: str) -> Callable[[Known, Integers], Bools]:
    """Words that depend on the query's, by arcs of some names or of any."""

    def targets(known: Known, rows: Integers) -> Bools:
        own = known.words[rows][:, None]
        below: Bools = (known.governors == own) & (own >= 0)
        return below & np.isin(known.arcs, arcs) if arcs else below

    return targets


RELATIONS: tuple[Relation, ...] = (
    Relation("first", _first, sink=True),
    Relation("self", _offset(0), sink=True),
    Relation("previous", _offset(-1), sink=True),
    Relation("next", _offset(1), sink=True),
    Relation("induction", _induction),
    Relation("duplicate", _duplicate),
    Relation("before-copy", _before_copy),
    Relation("same-letters", _same_letters),
    Relation("same-word", _same_word),
    Relation("word-before", _word_before),
    Relation("sentence-start", _flag("opens")),
    Relation("last-punctuation", _last_mark),
    Relation("separator", _separator, sink=True),
    Relation("special", _flag("special"), sink=True),
    Relation("punctuation", _flag("punctuation")),
    Relation("digit", _flag("digit")),
    Relation("capital", _flag("capital")),
    Relation("continuation", _flag("continuation")),
    Relation("repeated", _flag("repeated")),
    Relation("local", _local),
    Relation("governor", _governor),
    Relation("subject", _dependent("nsubj", "csubj")),
    Relation("object", _dependent("obj", "iobj")),
    Relation("dependent", _dependent()),
)
"""In the order in which equally good ones are tried: the narrow before the wide. Behind them, those
of :data:`GOLD_RELATIONS`."""
GOLD_RELATIONS = 4  # the last ones, which only a treebank knows

PLACES: Mapping[str, int] = {relation.name: n for n, relation in enumerate(RELATIONS)}


def targets(known: Known, rows: Integers) -> Bools:
    """Which keys of some rows are targets of which relation, bool [R, n, S]."""
    return np.stack([_outside(relation, known, rows) for relation in RELATIONS])


def _outside(relation: Relation, known: Known, rows: Integers) -> Bools:
    """Return the targets of one relation, bool [n, S], without the sink where that has none."""
    keys = relation.targets(known, rows)
    return keys if relation.sink else keys & ~known.sink


@dataclass(frozen=True)
class Condition:
    """What a query can be."""

    name: str  # a short one; in words, see :mod:`attnviz.features.profile.words`.
    holds: Callable[[Known], Bools]  # of the tokens of a text: bool [S]


def _arc(*arcs: str) -> Callable[[Known], Bools]:
    """Return queries whose words depend on others by arcs of some names."""

    def holds(known: Known) -> Bools:
        return np.isin(known.arcs, arcs)

    return holds


def _early(known: Known) -> Bools:
    return np.arange(len(known.words)) < EARLY


def _followed(known: Known) -> Bools:
    """Return the token before is punctuation."""
    after = np.zeros(len(known.words), np.bool_)
    after[1:] = known.punctuation[:-1]
    return after


EARLY = 8  # positions that are the beginning of a text

CONDITIONS: tuple[Condition, ...] = (
    Condition("repeated", lambda known: known.repeated),
    Condition("punctuation", lambda k: k.punctuation),
    Condition("continuation", lambda k: k.continuation),
    Condition("digit", lambda known: known.digit),
    Condition("capital", lambda known: known.capital),
    Condition("opens", lambda known: known.opens),
    Condition("after", _followed),
    Condition("early", _early),
    Condition("argument", _arc("nsubj", "csubj", "obj", "iobj")),
    Condition("function", _arc("det", "case", "aux", "cop", "mark", "cc", "clf")),
    Condition("modifier", _arc("amod", "advmod", "nmod", "nummod", "compound", "acl", "appos")),
)
"""What the tokens tell, and behind it what only a treebank knows: :data:`GOLD_CONDITIONS`."""
GOLD_CONDITIONS = 3  # the last ones, by names of Universal Dependencies


def conditions(known: Known) -> Integers:
    """[S], a bit for each condition that holds."""
    bits = np.zeros(len(known.words), np.int64)
    for number, condition in enumerate(CONDITIONS):
        bits |= condition.holds(known).astype(np.int64) << number
    return bits


_BY_NAME = {condition.name: condition for condition in CONDITIONS}


def selected(tree: Sequence[Leaf], known: Known, allowed: Bools) -> Bools:
    """Mark keys by a tree of rules, bool [T, S]: those of the first relation that has some.

    ``tree``: as :meth:`attnviz.core.result.Result.rule_trees` has it, each query being of one leaf.
    """
    marked, rows = np.zeros_like(allowed), np.arange(len(known.words))
    for path, names in tree:
        of = np.ones(len(rows), np.bool_)
        for name, holds in path:
            of &= _BY_NAME[name].holds(known) == holds
        for name in names:
            left = of & ~marked.any(-1)
            marked |= _outside(RELATIONS[PLACES[name]], known, rows) & allowed & left[:, None]
    return marked


def check_tree(tree: Sequence[Leaf], of: str) -> None:
    """Raise UsageError for a tree that asks for more than the tokens tell."""
    plain = {r.name for r in RELATIONS[:-GOLD_RELATIONS]}
    plain_conditions = {c.name for c in CONDITIONS[:-GOLD_CONDITIONS]}
    asked = {name for _, names in tree for name in names} - plain
    asked |= {name for path, _ in tree for name, _ in path} - plain_conditions
    if asked:
        raise UsageError(
            "the rules of {} ask for what tokens do not tell ({}); profile plain texts", of,
            ", ".join(sorted(asked)),
        )  # fmt: skip
