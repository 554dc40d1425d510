"""What can set a key apart from the others, seen from its query; and what a query can be.

A relation says which keys of a row are its targets, a condition which rows it is about; both are
known from the tokens alone, or from what a treebank says of their words. Relations of the names of
scores have the targets of those scores (:mod:`attnviz.scoring.scores`): outside of the sink but for
``first`` and ``separator``; only that position 0 is the token before position 1 here.

Notation in shapes: n rows, S keys, R relations.

Which rules say where a head's strongest key is: a small tree, by the bits that it saves.

Naming one of n keys takes log₂ n bits. A rule "the strongest key is a target of r" that holds in a
share p of the rows names it in -log₂ p + log₂(n c) bits where it holds, c being the share of the n
keys that are targets, and adds -log₂(1 - p) where it does not. So a rule saves

    Σ over rows where it holds (-log₂ c) - N · H(p)

bits over N rows: much where narrow targets are met often, and less than nothing where targets are
met as often as chance would (minimum description length, Rissanen 1978). Rules are taken one after
the other, each for the rows that those before it left over, as long as each saves; then the rows
are divided by what their query is wherever that lets both sides save more. What is chosen so on one
half of the texts is measured on the other.

Notation: N rows, R relations, C conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnviz.core.tokens import Tokens
from attnviz.corpus.conllu import Sentence, stripped
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
        keys: Bools = np.arange(len(known.words)) == rows[:, None] + by
        return keys

    return targets


def _flag(name: str) -> Callable[[Known, Integers], Bools]:
    def targets(known: Known, rows: Integers) -> Bools:
        return np.broadcast_to(getattr(known, name), (len(rows), len(known.words)))

    return targets


def _first(known: Known, rows: Integers) -> Bools:
    keys: Bools = np.broadcast_to(np.arange(len(known.words)) == 0, (len(rows), len(known.words)))
    return keys


def _separator(known: Known, rows: Integers) -> Bools:
    flags = known.separators.copy()
    flags[0] = False
    return np.broadcast_to(flags, (len(rows), len(flags)))


def _local(known: Known, rows: Integers) -> Bools:
    near: Bools = abs(np.arange(len(known.words)) - rows[:, None]) <= LOCAL_WINDOW
    return near


def _earlier(known: Known, rows: Integers) -> Bools:
    """At least two positions back."""
    back: Bools = np.arange(len(known.words)) <= rows[:, None] - 2
    return back


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
    alike: Bools = (known.letters == own) & (own >= 0) & other
    return alike


def _same_word(known: Known, rows: Integers) -> Bools:
    same: Bools = (known.words == known.words[rows][:, None]) & (known.words >= 0)
    return same & ~_offset(0)(known, rows)


def _word_before(known: Known, rows: Integers) -> Bools:
    before: Bools = known.words == known.words[rows][:, None] - 1
    return before & (known.words >= 0)


def _last_mark(known: Known, rows: Integers) -> Bools:
    """The last punctuation before the query."""
    places = np.where(known.punctuation, np.arange(len(known.words)), -1)
    last = np.concatenate([[-1], np.maximum.accumulate(places)[:-1]])[rows]
    keys: Bools = np.arange(len(known.words)) == last[:, None]
    return keys


def _governor(known: Known, rows: Integers) -> Bools:
    above = known.governors[rows][:, None]
    keys: Bools = (known.words == above) & (above >= 0)
    return keys


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
    every = np.stack([relation.targets(known, rows) for relation in RELATIONS])
    plain = ~known.sink
    for number, relation in enumerate(RELATIONS):
        if not relation.sink:
            every[number] &= plain
    return every


@dataclass(frozen=True)
class Condition:
    """What a query can be."""

    name: str  # a short one; in words, see :mod:`attnviz.features.profile.words`.
    holds: Callable[[Known], Bools]  # of the tokens of a text: bool [S]


def _arc(*arcs: str) -> Callable[[Known], Bools]:
    """Queries whose words depend on others by arcs of some names."""

    def holds(known: Known) -> Bools:
        return np.isin(known.arcs, arcs)

    return holds


def _early(known: Known) -> Bools:
    early: Bools = np.arange(len(known.words)) < EARLY
    return early


def _followed(known: Known) -> Bools:
    """The token before is punctuation."""
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


Floats = NDArray[np.float64]

RULES = 4  # rules of a leaf at most
DEEPEST = 3  # divisions above a leaf at most
LEAST = 24  # rows that a side of a division has at least, and rows on which a rule is chosen
PRICE = 8.0  # bits that a rule or a division has to save beyond its name and its share
LEAST_SHARE = 0.02  # of all rows, in which a rule holds at least
LEAST_PRECISION = 0.3
"""Of the rows that are left to a rule, in which it holds at least: what the least of a role's
evidence is (docs/roles.md). What holds more seldom is a leaning, and every random head has some."""


@dataclass(frozen=True)
class Leaf:
    """Rules for some rows, in their order; none where nothing is known."""

    rules: tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """Rows of two kinds."""

    condition: int  # its place in :data:`~.relations.CONDITIONS`.
    holds: Tree  # the tree of the rows for which it holds; ``otherwise`` of the others
    otherwise: Tree


Tree = Leaf | Division


@dataclass(frozen=True, eq=False)
class Rows:
    """What rules are found on."""

    hits: Bools  # bool [N, R], whether the strongest key is a target
    chance: Floats  # [N, R], the share of the allowed keys that are targets
    conditions: Bools  # bool [N, C]

    def __len__(self) -> int:
        return len(self.hits)

    def of(self, some: Bools) -> Rows:
        """Some of the rows."""
        return Rows(self.hits[some], self.chance[some], self.conditions[some])


def saved(hits: Bools, chance: Floats) -> float:
    """Bits that a rule saves over some rows, [N] each; see above."""
    n = len(hits)
    if not n:
        return 0.0
    p = hits.mean()
    told = -np.log2(chance[hits].clip(1e-9)).sum()
    return float(told - n * _entropy(float(p)))


def _entropy(p: float) -> float:
    if p <= 0 or p >= 1:
        return 0.0
    return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def listed(rows: Rows, least: int) -> tuple[tuple[int, ...], float]:
    """The rules of a leaf, and the bits that they save."""
    chosen: list[int] = []
    total, left = 0.0, np.ones(len(rows), np.bool_)
    while len(chosen) < RULES and left.sum() >= LEAST:
        price = PRICE + np.log2(rows.hits.shape[1]) + 0.5 * np.log2(left.sum())
        gains = []
        for relation in range(rows.hits.shape[1]):
            hits = rows.hits[left, relation]
            often = hits.sum() >= max(least, LEAST_PRECISION * len(hits))
            enough = relation not in chosen and often
            gains.append(saved(hits, rows.chance[left, relation]) if enough else -np.inf)
        best = int(np.argmax(gains))
        if gains[best] <= price:
            break
        chosen.append(best)
        total += gains[best] - price
        left &= ~rows.hits[:, best]
    return tuple(chosen), total


def grown(rows: Rows, *, deepest: int = DEEPEST, all_rows: int | None = None) -> Tree:
    """The tree that saves the most bits, as far as one division after the other finds it."""
    least = max(LEAST // 2, round(LEAST_SHARE * (all_rows or len(rows))))
    return _grown(rows, deepest, least)[0]


def _grown(rows: Rows, deepest: int, least: int) -> tuple[Tree, float]:
    rules, bits = listed(rows, least)
    best: tuple[Tree, float] = (Leaf(rules), bits)
    if deepest == 0 or len(rows) < 2 * LEAST:
        return best
    price = PRICE + np.log2(rows.conditions.shape[1])
    gains = []
    for number in range(rows.conditions.shape[1]):
        holds = rows.conditions[:, number]
        if min(holds.sum(), (~holds).sum()) < LEAST:
            continue
        sides = [listed(rows.of(side), least)[1] for side in (holds, ~holds)]
        gains.append((sum(sides) - price, -number))
    if not gains or max(gains)[0] <= bits + PRICE:
        return best
    number = -max(gains)[1]
    holds = rows.conditions[:, number]
    first, first_bits = _grown(rows.of(holds), deepest - 1, least)
    second, second_bits = _grown(rows.of(~holds), deepest - 1, least)
    return Division(number, first, second), first_bits + second_bits - price


@dataclass(frozen=True, eq=False)
class Reached:
    """A leaf and the rows that reach it."""

    path: tuple[tuple[int, bool], ...]  # conditions on the way, each with whether it holds
    rows: Bools  # bool [N]
    # its rules, each with the rows [N] that it decides and those in which it holds
    rules: tuple[tuple[int, Bools, Bools], ...]


def reached(tree: Tree, rows: Rows) -> list[Reached]:
    """What becomes of rows in a tree, leaf by leaf."""
    return _reached(tree, rows, np.ones(len(rows), np.bool_), ())


def _reached(
    tree: Tree, rows: Rows, some: Bools, path: tuple[tuple[int, bool], ...]
) -> list[Reached]:
    if isinstance(tree, Division):
        holds = rows.conditions[:, tree.condition]
        return [
            *_reached(tree.holds, rows, some & holds, (*path, (tree.condition, True))),
            *_reached(tree.otherwise, rows, some & ~holds, (*path, (tree.condition, False))),
        ]
    decided, left = [], some.copy()
    for rule in tree.rules:
        decided.append((rule, left.copy(), left & rows.hits[:, rule]))
        left &= ~rows.hits[:, rule]
    return [Reached(path, some, tuple(decided))]


Path = tuple[tuple[int, bool], ...]  # conditions on the way to a leaf, each with whether it holds


def pruned(tree: Tree, kept: Collection[tuple[Path, int]], path: Path = ()) -> Tree:
    """Leave out rules of leaves, and divisions that then have no rule on either side."""
    if isinstance(tree, Leaf):
        return Leaf(tuple(rule for rule in tree.rules if (path, rule) in kept))
    sides = [
        pruned(side, kept, (*path, (tree.condition, holds)))
        for side, holds in ((tree.holds, True), (tree.otherwise, False))
    ]
    return Leaf(()) if sides == [Leaf(()), Leaf(())] else Division(tree.condition, *sides)


def unpacked(bits: NDArray[np.int64], count: int) -> Bools:
    """[N] with a bit for each of so many -> bool [N, count]."""
    flags: Bools = (bits[:, None] >> np.arange(count)) & 1 > 0
    return flags


def behaviours_of(leaves: Sequence[Reached]) -> dict[int, Bools]:
    """The rows in which each relation's rule holds, over all leaves."""
    rows: dict[int, Bools] = {}
    for leaf in leaves:
        for relation, _, holds in leaf.rules:
            rows[relation] = rows.get(relation, np.zeros_like(holds)) | holds
    return rows
