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

from attnviz.core.arrays import Bools, Integers
from attnviz.core.result import Leaf
from attnviz.core.tokens import Tokens
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.errors import UsageError
from attnviz.scoring.axes import is_punctuation
from attnviz.scoring.block import LOCAL_WINDOW

CLASSES = ("first", "special", "punctuation", "digit", "continuation", "initial")
"""Every token is of one: position 0, one of the tokenizer's own, punctuation, a number, a later
piece of a word, or a word's first piece."""

_ENDS = frozenset(".!?。！？…")


@dataclass(frozen=True, eq=False)
class TokenTraits:
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
        continues = np.zeros(len(self.words), np.bool_)
        continues[1:] = self.words[1:] == self.words[:-1]
        return continues & ~self.special & ~self.punctuation & ~self.digit

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
        repeated = np.ones(len(self.identity), np.bool_)
        repeated[first] = False
        return repeated & ~self.special

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


Targets = Callable[[TokenTraits, Integers], Bools]


@dataclass(frozen=True)
class Relation:
    """What sets a key apart."""

    # of a score where it has that score's targets; in words, see
    # :mod:`attnviz.features.profile.words`.
    name: str
    targets: Targets  # of rows [n] over a text: bool [n, S]
    sink: bool = False  # whether position 0 and special tokens may be targets


def _offset(distance: int) -> Targets:
    def targets(traits: TokenTraits, rows: Integers) -> Bools:
        return np.arange(len(traits.words)) == rows[:, None] + distance

    return targets


def _flag(name: str) -> Targets:
    def targets(traits: TokenTraits, rows: Integers) -> Bools:
        return np.broadcast_to(getattr(traits, name), (len(rows), len(traits.words)))

    return targets


def _first(traits: TokenTraits, rows: Integers) -> Bools:
    return np.broadcast_to(np.arange(len(traits.words)) == 0, (len(rows), len(traits.words)))


def _separator(traits: TokenTraits, rows: Integers) -> Bools:
    flags = traits.separators.copy()
    flags[0] = False
    return np.broadcast_to(flags, (len(rows), len(flags)))


def _local(traits: TokenTraits, rows: Integers) -> Bools:
    return abs(np.arange(len(traits.words)) - rows[:, None]) <= LOCAL_WINDOW


def _copied(distance: int) -> Targets:
    """Keys so many positions after a copy of the query's token, at least two positions back."""

    def targets(traits: TokenTraits, rows: Integers) -> Bools:
        positions = np.arange(len(traits.words))
        token = positions - distance  # which is to be a copy
        inside = (token >= 0) & (token < len(positions))
        identity = traits.identity[token.clip(0, len(positions) - 1)]
        copies = inside & (identity == traits.identity[rows][:, None])
        return copies & (positions <= rows[:, None] - 2)

    return targets


def _same_letters(traits: TokenTraits, rows: Integers) -> Bools:
    letters = traits.letters[rows][:, None]
    distinct = traits.identity != traits.identity[rows][:, None]
    return (traits.letters == letters) & (letters >= 0) & distinct


def _same_word(traits: TokenTraits, rows: Integers) -> Bools:
    equal: Bools = (traits.words == traits.words[rows][:, None]) & (traits.words >= 0)
    return equal & ~_offset(0)(traits, rows)


def _word_before(traits: TokenTraits, rows: Integers) -> Bools:
    previous: Bools = traits.words == traits.words[rows][:, None] - 1
    return previous & (traits.words >= 0)


def _last_mark(traits: TokenTraits, rows: Integers) -> Bools:
    """Return the last punctuation before the query."""
    places = np.where(traits.punctuation, np.arange(len(traits.words)), -1)
    last = np.concatenate([[-1], np.maximum.accumulate(places)[:-1]])[rows]
    return np.arange(len(traits.words)) == last[:, None]


def _governor(traits: TokenTraits, rows: Integers) -> Bools:
    above = traits.governors[rows][:, None]
    return (traits.words == above) & (above >= 0)


def _dependent(*arcs: str) -> Targets:
    """Words that depend on the query's, by arcs of some names or of any."""

    def targets(traits: TokenTraits, rows: Integers) -> Bools:
        words = traits.words[rows][:, None]
        below: Bools = (traits.governors == words) & (words >= 0)
        return below & np.isin(traits.arcs, arcs) if arcs else below

    return targets


RELATIONS: tuple[Relation, ...] = (
    Relation("first", _first, sink=True),
    Relation("self", _offset(0), sink=True),
    Relation("previous", _offset(-1), sink=True),
    Relation("next", _offset(1), sink=True),
    Relation("induction", _copied(1)),
    Relation("duplicate", _copied(0)),
    Relation("before-copy", _copied(-1)),
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


def targets(traits: TokenTraits, rows: Integers) -> Bools:
    """Which keys of some rows are targets of which relation, bool [R, n, S]."""
    return np.stack([_outside(relation, traits, rows) for relation in RELATIONS])


def _outside(relation: Relation, traits: TokenTraits, rows: Integers) -> Bools:
    """Return the targets of one relation, bool [n, S], without the sink where that has none."""
    keys = relation.targets(traits, rows)
    return keys if relation.sink else keys & ~traits.sink


@dataclass(frozen=True)
class Condition:
    """What a query can be."""

    name: str  # a short one; in words, see :mod:`attnviz.features.profile.words`.
    holds: Callable[[TokenTraits], Bools]  # of the tokens of a text: bool [S]


def _arc(*arcs: str) -> Callable[[TokenTraits], Bools]:
    """Return queries whose words depend on others by arcs of some names."""

    def holds(traits: TokenTraits) -> Bools:
        return np.isin(traits.arcs, arcs)

    return holds


def _followed(traits: TokenTraits) -> Bools:
    """Whether the token before is punctuation."""
    followed = np.zeros(len(traits.words), np.bool_)
    followed[1:] = traits.punctuation[:-1]
    return followed


EARLY = 8  # positions that are the beginning of a text

CONDITIONS: tuple[Condition, ...] = (
    Condition("repeated", lambda traits: traits.repeated),
    Condition("punctuation", lambda traits: traits.punctuation),
    Condition("continuation", lambda traits: traits.continuation),
    Condition("digit", lambda traits: traits.digit),
    Condition("capital", lambda traits: traits.capital),
    Condition("opens", lambda traits: traits.opens),
    Condition("after", _followed),
    Condition("early", lambda traits: np.arange(len(traits.words)) < EARLY),
    Condition("argument", _arc("nsubj", "csubj", "obj", "iobj")),
    Condition("function", _arc("det", "case", "aux", "cop", "mark", "cc", "clf")),
    Condition("modifier", _arc("amod", "advmod", "nmod", "nummod", "compound", "acl", "appos")),
)
"""What the tokens tell, and behind it what only a treebank knows: :data:`GOLD_CONDITIONS`."""
GOLD_CONDITIONS = 3  # the last ones, by names of Universal Dependencies


def conditions(traits: TokenTraits) -> Integers:
    """[S], a bit for each condition that holds."""
    bits = np.zeros(len(traits.words), np.int64)
    for number, condition in enumerate(CONDITIONS):
        bits |= condition.holds(traits).astype(np.int64) << number
    return bits


_BY_NAME = {condition.name: condition for condition in CONDITIONS}


def selected(tree: Sequence[Leaf], traits: TokenTraits, allowed: Bools) -> Bools:
    """Mark keys by a tree of rules, bool [T, S]: those of the first relation that has some.

    ``tree``: as :meth:`attnviz.core.result.Result.rule_trees` has it, each query being of one leaf.
    """
    marked, rows = np.zeros_like(allowed), np.arange(len(traits.words))
    for path, names in tree:
        of = np.ones(len(rows), np.bool_)
        for name, holds in path:
            of &= _BY_NAME[name].holds(traits) == holds
        for name in names:
            waiting = of & ~marked.any(-1)
            marked |= _outside(RELATIONS[PLACES[name]], traits, rows) & allowed & waiting[:, None]
    return marked


def check_tree(tree: Sequence[Leaf], of: str) -> None:
    """Raise UsageError for a tree that asks for more than the tokens tell."""
    plain = {r.name for r in RELATIONS[:-GOLD_RELATIONS]}
    plain_conditions = {c.name for c in CONDITIONS[:-GOLD_CONDITIONS]}
    untold = {name for _, names in tree for name in names} - plain
    untold |= {name for path, _ in tree for name, _ in path} - plain_conditions
    if untold:
        raise UsageError(
            "the rules of {} ask for what tokens do not tell ({}); profile plain texts", of,
            ", ".join(sorted(untold)),
        )  # fmt: skip
