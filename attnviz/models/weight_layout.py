"""What the axes of weights count: batch, heads, queries and keys, told by where they come from.

Every axis of a tensor is a sequence of factors (:class:`Axis`), the slowest first; of scores,
:class:`Pair` says which factors came from one operand alone, which from the other, and which they
share. :mod:`.axes` follows them from call to call. Of those that are shared, one that was split off
from what their product contracts, or that a matrix made, is a head; one of the inputs is the
batch. Where that is missing or contradicts itself, nothing is taken for granted: the caller may say
what the axes are.

Letters: b batch, h heads, q queries, k keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from torch import Tensor

Role = Literal["data", "features", "heads", "parameters", "constant", "unknown"]


class Axis:
    """A factor of an axis; views split it, once for all tensors that have it."""

    __slots__ = (
        "home", "is_head", "kin", "parent", "parts", "role", "root", "size", "source", "twin",
    )  # fmt: skip

    def __init__(self, size: int, role: Role, like: Axis | None = None) -> None:
        self.size, self.role = size, role  # above 1, and what it counts, as far as is known
        # the factor that it is a part of, since the last product; home: products not counted
        self.root: Axis = like.root if like else self
        self.home: Axis = like.home if like else self
        # the homes of what stands side by side along it, in their order
        self.kin: tuple[Axis, ...] = like.kin if like else (self,)
        self.source: Axis = self  # the factor that it is a copy of
        self.parts: tuple[Axis, ...] = ()
        self.parent: Axis | None = None
        # the home of another tensor's axis that it was added to, place by place
        self.twin: Axis | None = None
        self.is_head = False  # whether it was joined with features after a product, as heads are

    def split(self, first: int) -> tuple[Axis, ...]:
        """Split it in two, the slower of them of a given size."""
        self.parts = (Axis(first, self.role, self), Axis(self.size // first, self.role, self))
        for part in self.parts:
            part.parent = self
        return self.parts

    def copy(self) -> Axis:
        """Return the same factor, told apart from it in a product."""
        copied = Axis(self.size, self.role)
        copied.home, copied.source, copied.kin = self.home, self.source, self.kin
        return copied


Factors = tuple[Axis, ...]
_ONE = Axis(1, "data")
PARTLY = Axis(1, "unknown")
"""Kin of what was written into a part of a tensor, whose other places may be anything."""


def kin_of(factors: Iterable[Axis]) -> Factors:
    """Return the homes of what stands side by side along axes; of a single place :data:`_ONE`."""
    homes: list[Axis] = []
    for kin in [home for axis in leaves(factors) for home in axis.kin] or [_ONE]:
        home = kin
        while home.twin is not None:
            home = home.twin
        if home is _ONE or home not in homes:
            homes.append(home)
    return tuple(homes)


def leaves(factors: Iterable[Axis]) -> Factors:
    """Return what factors are split into."""
    result: list[Axis] = []
    for axis in factors:
        result += leaves(axis.parts) if axis.parts else [axis]
    return tuple(result)


@dataclass(frozen=True, eq=False)
class Pair:
    """Which factors of scores came from which operand."""

    # roots of the factors that one operand alone has, and of those of the other
    sides: tuple[frozenset[Axis], frozenset[Axis]]
    shared: tuple[tuple[Factors, Factors], ...]  # of axes that both have, the factors of either
    contracted: frozenset[Axis]  # homes of the factors that were summed over
    raw: bool  # whether these are an axis of something that no matrix made
    learned: tuple[bool, bool]  # of each operand whether it was made of parameters alone
    summed: Factors = ()  # the factors that were summed over, as both operands had them
    function: str = ""  # what bounded the scores where it was no softmax: ``sigmoid``


@dataclass(frozen=True, eq=False)
class Info:
    """What is known of a tensor."""

    axes: tuple[Factors, ...]  # the factors of each axis
    # ``matrix`` for parameters as they are, ``tokens`` for what was made of parameters alone, and
    # empty for what depends on inputs
    fixed: str = ""
    pair: Pair | None = None  # of scores
    trail: Any = None  # what follows a softmax, see :mod:`.softmax_watch`
    power: Tensor | None = None  # scores, where it is their exponentials
    total: int = 0  # the exponentials, where it is their sum
    calls: tuple[Any, ...] = ()  # the attention that it is the output of
    lost: str = ""  # the function through which scores could not be followed, of what came of it
    sinks: int = 0  # how many last places of scores are parameters and no keys


Letter = Literal["b", "h", "q", "k"]
Form = tuple[tuple[tuple[int, Letter], ...], ...]
"""Of each axis the sizes of its factors, the slowest first, and what they count."""


class Unread(Exception):
    """Attention whose axes cannot be told; its text says what is missing."""

    def __init__(self, reason: str, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing  # whether the caller may say what they are


def form_of(info: Info, softmax: int) -> Form:
    """Return what the axes of weights count."""
    pair = info.pair
    if pair is None and info.lost:
        raise Unread(f"its scores could not be followed through {info.lost}", missing=True)
    if pair is None:
        raise Unread("its scores are no product of two tensors that are indexed by tokens")
    keys = _keys(info, softmax, pair)
    queries = 1 - keys
    axes = [leaves(factors) for factors in info.axes]
    asking = [x for group in axes for x in group if x.root in pair.sides[queries]]
    looked = [x for x in axes[softmax] if x.root in pair.sides[keys]]
    _check_keys(looked, asking, pair, keys)
    learned = all(axis.role == "parameters" for axis in asking)
    copied = _copied_heads(pair)
    homes = {axis.home for axis in (*asking, *looked) if not _is_head(axis, pair)}
    letters: list[list[tuple[Axis, Letter]]] = []
    for factors in axes:
        letters.append([])
        for axis in factors:
            if axis.root in pair.sides[keys]:
                letter: Letter = "k"
            elif axis.root in pair.sides[queries]:
                separate = _is_head(axis, pair) or (axis.role == "parameters" and not learned)
                letter = "h" if separate else "q"
            elif axis.root in copied or (
                _is_head(axis, pair) or (_is_shared_head(axis, pair) and axis.home not in homes)
            ):
                letter = "h"
            else:
                letter = "b"
            letters[-1].append((axis, letter))
    if asking and not any(letter == "q" for group in letters for _, letter in group):
        raise Unread("its queries are features or heads, not tokens")
    _check_order(letters, pair)
    return tuple(tuple((axis.size, letter) for axis, letter in group) for group in letters)


def keys_of(info: Info, softmax: int) -> Literal["own", "earlier", "later", "other", ""]:
    """Tell whose tokens the keys are, by where their axis and that of the queries come from.

    ``own`` of those of the queries; ``earlier`` for those after others, as of a cache or a prefix;
    ``later`` for those before learned ones; ``other`` of another sequence; empty for not known.
    """
    pair = info.pair
    if pair is None or pair.raw:
        return ""
    tokens = tokens_of(info, softmax)
    if any(axis.role in ("unknown", "constant") for factors in tokens for axis in factors):
        return ""
    asking, looked = map(kin_of, tokens)
    if not {PARTLY} & {*asking, *looked}:
        if looked == asking:
            return "own"
        if looked[-len(asking) :] == asking:
            return "earlier"
        behind = looked[len(asking) :]
        if looked[: len(asking)] == asking and all(home.role == "parameters" for home in behind):
            return "later"
    shared = {*asking} & {*looked} - {PARTLY}
    return "" if shared or not all(tokens) else "other"


def tokens_of(info: Info, softmax: int) -> tuple[Factors, Factors]:
    """Find the factors of weights that count queries, and those that count keys."""
    pair = info.pair
    if pair is None:
        return (), ()
    side = _keys(info, softmax, pair)
    axes = [axis for factors in info.axes for axis in leaves(factors)]
    queries, keys = (
        tuple(axis for axis in axes if axis.root in pair.sides[n] and not _is_head(axis, pair))
        for n in (1 - side, side)
    )
    return queries, keys


def batch_of(info: Info, softmax: int) -> tuple[tuple[int, bool], ...]:
    """Find the factors of the batch, the slowest first: sizes, and whether they are tokens' parts.

    An axis of tokens that is split before they attend, as into windows of a picture or blocks of a
    text, leaves a part beside the items of the batch.
    """
    pair = info.pair
    if pair is None:
        return ()
    homes = {axis.home for group in tokens_of(info, softmax) for axis in group}
    sides = pair.sides[0] | pair.sides[1] | _copied_heads(pair)
    return tuple(
        (axis.size, axis.home in homes)
        for factors in info.axes
        for axis in leaves(factors)
        if axis.root not in sides
        and not _is_head(axis, pair)
        and (axis.home in homes or not _is_shared_head(axis, pair))
    )


def has_learned_queries(info: Info, softmax: int) -> bool:
    """Whether queries were made of parameters alone, as those of objects or latents are."""
    pair = info.pair
    return pair is not None and pair.learned[1 - _keys(info, softmax, pair)]


def _keys(info: Info, softmax: int, pair: Pair) -> int:
    """Which operand the softmax chooses from."""
    roots = {axis.root for axis in leaves(info.axes[softmax])}
    if not roots:  # a single key
        return 1 if not pair.sides[1] or pair.sides[0] else 0
    for side in (1, 0):
        if roots <= pair.sides[side] and not _outside(info, softmax, pair.sides[side]):
            return side
    raise Unread("its softmax does not go over the tokens of one operand of its scores")


def _outside(info: Info, softmax: int, side: frozenset[Axis]) -> bool:
    """Whether tokens of an operand stand on another axis too, heads not counted."""
    remaining = [f for n, f in enumerate(info.axes) if n != softmax]
    parts = leaves(axis for factors in remaining for axis in factors)
    return any(axis.root in side and axis.role not in ("features", "heads") for axis in parts)


def _check_keys(looked: Sequence[Axis], asking: Sequence[Axis], pair: Pair, keys: int) -> None:
    heads = [axis for axis in looked if _is_head(axis, pair)]
    if looked and len(heads) == len(looked):
        raise Unread("its keys are features or heads (an axis that a matrix made), not tokens")
    if heads:
        raise Unread("its keys mix tokens and features, as a view without a transpose does")
    table = bool(looked) and all(axis.role == "parameters" for axis in looked)
    shared = kin_of(axis for axis in asking if not _is_head(axis, pair)) == kin_of(looked)
    if table and pair.learned[keys] and not shared:
        raise Unread("its keys are parameters, not tokens")
    if any(axis.role == "unknown" for axis in looked) and pair.raw:
        raise Unread("its keys could not be followed")


def _is_head(axis: Axis, pair: Pair) -> bool:
    return axis.role in ("features", "heads") or axis.home in pair.contracted


def _is_shared_head(axis: Axis, pair: Pair) -> bool:
    return _is_head(axis, pair) or axis.role == "parameters" or axis.is_head


def _copied_heads(pair: Pair) -> set[Axis]:
    """Roots of copies of keys for several heads, or of queries: the other operand has heads there.

    Copies for the items of a batch stand beside data.
    """
    return {
        axis.root
        for shared in pair.shared
        for mine, theirs in (shared, shared[::-1])
        for axis in leaves(mine)
        if axis.role == "constant" and all(_is_shared_head(x, pair) for x in leaves(theirs))
    }


def _is_open(axis: Axis) -> bool:
    """Whether nothing tells what a factor is, not even that the one beside it is a head."""
    siblings = leaves(axis.parent.parts) if axis.parent else ()
    return axis.role == "unknown" and not any(x.is_head for x in siblings)


def _check_order(letters: Sequence[Sequence[tuple[Axis, Letter]]], pair: Pair) -> None:
    """Raise Unread where two operands contradict each other, or nothing tells heads apart."""
    for first, second in pair.shared:
        orders = []
        for factors in (first, second):
            heads = [axis.size for axis in leaves(factors) if _is_head(axis, pair)]
            order = "".join("h" if _is_head(a, pair) else "b" for a in leaves(factors))
            if heads and "b" in order:
                orders.append(order.replace("hh", "h").replace("bb", "b"))
        if len(set(orders)) > 1:
            raise Unread("queries and keys put heads and batch in different orders", missing=True)
    if not any(letter == "h" for row in letters for _, letter in row):
        batches = sum(any(letter == "b" for _, letter in row) for row in letters)
        missing = any(_is_open(axis) for row in letters for axis, letter in row if letter == "b")
        if missing or (pair.raw and batches > 1):
            raise Unread("nothing tells heads from the batch", missing=True)


def hinted(
    shape: Sequence[int], softmax: int, layout: str | None, batch: int | None, order: str | None
) -> Form | None:
    """Give what the caller says that axes of weights count; None where it says nothing of these."""
    if layout is not None and len(layout) == len(shape):
        if layout[softmax] != "k":
            raise Unread(f"layout={layout!r} puts keys elsewhere than its softmax, axis {softmax}")
        named: Any = layout
        return tuple(((size, letter),) for size, letter in zip(shape, named, strict=True))
    if batch is None or len(shape) != 3:
        return None
    heads, remainder = divmod(shape[0], batch)
    if remainder:
        raise Unread(f"batch={batch} does not divide its axis of {shape[0]}")
    if heads > 1 and order is None:
        raise Unread(f"batch={batch} leaves {heads} heads; order='bh' or 'hb' is missing")
    pairs: dict[str, tuple[int, Letter]] = {"b": (batch, "b"), "h": (heads, "h")}
    leading = tuple(pairs[letter] for letter in order or "bh")
    rest_: tuple[Letter, Letter] = ("q", "k") if softmax == 2 else ("k", "q")
    return (leading, ((shape[1], rest_[0]),), ((shape[2], rest_[1]),))


def arranged(x: Tensor, form: Form | None) -> Tensor:
    """Return a tensor of a form as [B, H, T, S], of which None already is."""
    if form is None:
        return x
    sizes = [size for group in form for size, _ in group]
    letters = [letter for group in form for _, letter in group]
    order = [n for letter in "bhqk" for n, mark in enumerate(letters) if mark == letter]
    shape = [prod(s for s, mark in zip(sizes, letters, strict=True) if mark == w) for w in "bhqk"]
    return x.reshape(sizes).permute(order).reshape(shape)


def head_factors(info: Info, form: Form) -> Factors:
    """Give factors of weights that count heads, as a form says; its other sizes may be others."""
    heads: list[Axis] = []
    for factors, group in zip(info.axes, form, strict=True):
        parts = leaves(factors)
        if len(parts) == 1 and len(group) == 2:
            first = group[0][0] if group[0][1] == "h" else parts[0].size // group[1][0]
            parts = parts[0].split(first)
        counted = prod(axis.size for axis in parts) == prod(s for s, w in group if w == "h")
        if all(letter == "h" for _, letter in group) and counted:
            heads += parts
        elif any(letter == "h" for _, letter in group):
            if len(parts) != len(group):
                raise Unread("its axes are others than those that told heads apart")
            heads += [axis for axis, (_, letter) in zip(parts, group, strict=True) if letter == "h"]
    return tuple(heads)


def spread_gates(gates: Tensor, heads: Factors, axes: Sequence[Factors]) -> Tensor:
    """Gates of each head, [H], in the place of heads among axes; 1 long where no heads are."""
    parts = [leaves(factors) for factors in axes]
    order = [heads.index(axis) for group in parts for axis in group if axis in heads]
    if sorted(order) != list(range(len(heads))) or prod(a.size for a in heads) != len(gates):
        raise Unread("its heads are not where its values meet them")
    gates = gates.reshape([axis.size for axis in heads]).permute(order)
    inner, full, outer = list[int](), list[int](), list[int]()
    for group in parts:
        gated = any(axis in heads for axis in group)
        inner += [axis.size if axis in heads else 1 for axis in group]
        full += [axis.size if gated else 1 for axis in group]
        outer.append(prod(axis.size for axis in group) if gated else 1)
    return gates.reshape(inner).expand(full).reshape(outer)


@dataclass(frozen=True, slots=True)
class Layer:
    """Heads that attend together in a pass."""

    path: str  # the module that they stand in, by its name in the whole: ``blocks.3.attn``.
    weights: Tensor  # [B, H, T, S]
    allowed: Tensor  # bool [B, H, T, S]
    crosses: bool  # whether keys came from another sequence than queries
    extra: tuple[str, ...]  # texts of the last keys, which are none of that sequence
    earlier: int  # how many keys stand before the first query's own, as of a cache or a prefix
    # where the axes of queries and of keys come from; empty where that is not known
    tokens: tuple[Factors, Factors]
    learned: bool  # whether queries were made of parameters alone
    notes: tuple[str, ...]  # what a reader must know
    # the number of each call in the pass, and its form; several where each has one head
    calls: Mapping[int, Form | None]
    gated: bool  # whether its heads can be multiplied by gates
    # the factors of B, the slowest first, and which of them are windows of the tokens
    batch: tuple[tuple[int, bool], ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether fewer tokens ask than there are keys of the same sequence."""
        asking, looked = self.tokens
        few = self.weights.shape[2] < self.weights.shape[3]
        return few and not self.earlier and bool({*asking} & {*looked} - {PARTLY})

    @property
    def windows(self) -> int:
        """Into how many windows the tokens of an item are split before they attend."""
        if prod(size for size, _ in self.batch) != len(self.weights):
            return 1
        return prod(size for size, inside in self.batch if inside)

    @property
    def size(self) -> tuple[int, int, int]:
        """Queries, those of a prefix among them, keys, and windows."""
        return self.weights.shape[2] + self.earlier, self.weights.shape[3], self.windows

    def window(self, item: int) -> tuple[int, int]:
        """Return the window that an item of B is, and the input that it is a window of."""
        places, steps = [0, 0], [1, 1]
        for size, inside in reversed(self.batch):
            item, index = divmod(item, size)
            places[inside] += index * steps[inside]
            steps[inside] *= size
        return places[True], places[False]
