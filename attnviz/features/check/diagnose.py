"""Which bug an attention module has, told from a trace of one call.

Every softmax that stands between two products of tensors that move with tokens is attention. Which
token each row and key is of, is told by moving one token of the input at a time; which numbers meet
in a product, by the places that views give them. So heads may be laid out in any way: what must hold
is that a map has the tokens of one item as its queries and as its keys, that softmax runs over the
axis that the values are summed over, that the scale is 1/√d, that what is masked has no weight, and
that a token's output is made of that token's rows. A bug is named only where one of these is broken
and the module gives another output once it is mended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from attnviz.features.check.result import Bug
from attnviz.features.check.trace import (
    ELEMENTWISE,
    PRODUCTS,
    VIEWS,
    Change,
    Node,
    Recorded,
    is_opaque,
    moved_places,
)

_SOFTMAX = {"_softmax", "_safe_softmax", "softmax"}
_DROPOUT = {"native_dropout", "bernoulli", "bernoulli_", "rand_like", "_fused_dropout"}
TWICE = "softmax is taken of its weights once more"
_FAINT = -20.0
"""A mask must lower a score by more than that; e^-20 is 2e-9."""
_ZERO = 1e-12
"""Weights below that count as none."""


@dataclass(eq=False)
class Attention:
    """One softmax between two products.

    Attributes:
        softmax: its node.
        scores: what it is taken of.
        dim: its axis.
        product: gives the raw scores.
        score_places: of each score its place in the product, -1 for none (a sink).
        applied: the product of weights and values.
        weights: the weights as they meet values: the node, and the argument they are.
        weight_places: of each such number its place in the softmax.
        factor: what stands between projections and scores; None where it is no plain number.
        biased: whether something that moves with parameters is added to scores.
    """

    call: Recorded
    softmax: Node
    scores: Node
    dim: int
    product: Node
    score_places: Tensor
    applied: Node
    weights: Node
    side: int
    weight_places: Tensor
    factor: float | None
    biased: bool
    projections: tuple[Node | None, Node | None]

    def operands(self, product: Node) -> tuple[int, int]:
        """The numbers of the two factors among the arguments of a product."""
        return (1, 2) if product.name in {"addmm", "baddbmm"} else (0, 1)

    @cached_property
    def tokens_of_left(self) -> Tensor:
        """Which tokens each row of the left factor of scores is of, bool [tokens, N, M]."""
        left, _ = self.operands(self.product)
        return _any_of(self.call, self.product, left, -1)

    @cached_property
    def tokens_of_right(self) -> Tensor:
        """Which tokens each column of the right factor of scores is of, bool [tokens, N, R]."""
        _, right = self.operands(self.product)
        return _any_of(self.call, self.product, right, -2)

    @property
    def width(self) -> int:
        """The numbers that a query and a key have in common, d."""
        left, _ = self.operands(self.product)
        return int(self.product.args[left].shape[-1])

    @cached_property
    def met(self) -> Tensor:
        """The weights as they meet values, [N, queries, keys]."""
        return _as_batch(self._laid(self.applied.args[self.operands(self.applied)[self.side]]))

    @cached_property
    def met_places(self) -> Tensor:
        """Their places in the softmax, [N, queries, keys]."""
        return _as_batch(self._laid(self.weight_places))

    def _laid(self, factor: Tensor) -> Tensor:
        return factor if self.side == 0 else factor.transpose(-1, -2)

    @cached_property
    def tokens(self) -> tuple[Tensor, Tensor]:
        """The token of each row and of each key of :attr:`met`, as [N, queries], [N, keys].

        -1 where there is not one alone, -2 where there is none (a sink, a bias).
        """
        left, right = _single(self.tokens_of_left), _single(self.tokens_of_right)
        columns = self.product.value.shape[-1]
        product = self.score_places.reshape(-1)[self.met_places.clamp_min(0)]
        product = product.masked_fill(self.met_places < 0, -1)
        rows = left.reshape(-1)[(product // columns).clamp_min(0)]
        batch = product // (columns * self.product.value.shape[-2])
        keys = right.reshape(-1)[(batch * columns + product % columns).clamp_min(0)]
        if self.keys_are_left:
            rows, keys = keys, rows
        return rows.masked_fill(product < 0, -2), keys.masked_fill(product < 0, -2)

    @cached_property
    def keys_are_left(self) -> bool:
        """Whether keys are the left factor of the scores: what varies along the summed axis."""
        columns = self.product.value.shape[-1]
        product = self.score_places.reshape(-1)[self.met_places.clamp_min(0)]
        line = product[0, 0]
        line = line[line >= 0]
        return bool(len(line) > 1 and (line[0] % columns) == (line[1] % columns))

    @property
    def summed_axes(self) -> set[int]:
        """The axes of the softmax's result that vary along the sum over values."""
        shape = self.softmax.value.shape
        line = self.met_places[0, 0]
        at = torch.stack(torch.unravel_index(line.clamp_min(0), shape))[:, line >= 0]
        return {axis for axis in range(len(shape)) if len(set(at[axis].tolist())) > 1}

    @cached_property
    def value_tokens(self) -> Tensor:
        """The token of each row of values, [N, keys]."""
        places = self.operands(self.applied)
        factor = places[1 - self.side]
        touched = _any_of(self.call, self.applied, factor, -1 if self.side == 0 else -2)
        return _single(touched)


def _as_batch(factor: Tensor) -> Tensor:
    return factor if factor.ndim == 3 else factor[None]


def _any_of(call: Recorded, product: Node, argument: int, axis: int) -> Tensor:
    """Which tokens the vectors of a factor move with, bool [tokens, N, n]."""
    moves = call.touched_argument(product, argument).any(axis)
    return moves if moves.ndim == 3 else moves[:, None]


def _single(touched: Tensor) -> Tensor:
    """The one token of each vector; -1 where it is not one, -2 where it is none."""
    count = touched.sum(0)
    first = touched.to(torch.int64).argmax(0)
    return torch.where(count == 1, first, torch.where(count == 0, -2, -1))


def find_attention(call: Recorded) -> tuple[list[Attention], list[str]]:
    """Every attention of a call, and what of its softmaxes is none or could not be followed."""
    found, others = [], []
    for softmax, scores, dim in _softmaxes(call):
        behind = _scores_of(call, scores)
        ahead = _values_of(call, softmax)
        if isinstance(behind, str) or isinstance(ahead, str):
            why = behind if isinstance(behind, str) else ahead
            shape = list(softmax.value.shape)
            others.append(f"softmax over axis {dim} of {shape}: {why}")
            continue
        product, places, factor, biased, projections = behind
        applied, weights, side, weight_places = ahead
        found.append(
            Attention(call, softmax, scores, dim % softmax.value.ndim, product, places, applied,
                      weights, side, weight_places, factor, biased, projections)
        )  # fmt: skip
    return found, others


def _softmaxes(call: Recorded) -> Iterator[tuple[Node, Node, int]]:
    """Every softmax with what it is taken of and its axis, written out or not."""
    for node in call.nodes:
        if node.name in _SOFTMAX and (0, 0) in node.sources:
            yield node, node.sources[0, 0], int(node.args[1])
        elif node.name == "div" and (0, 0) in node.sources and (1, 0) in node.sources:
            above, below = node.sources[0, 0], node.sources[1, 0]
            while below.name in VIEWS | {"add", "clamp_min"} and (0, 0) in below.sources:
                below = below.sources[0, 0]
            written = above.name == "exp" or (above.name in VIEWS)
            if written and below.name == "sum" and below.sources.get((0, 0)) is above:
                axes = below.args[1] if len(below.args) > 1 else None
                source = above.sources.get((0, 0))
                if source is not None and source.name == "sub" and (0, 0) in source.sources:
                    source = source.sources[0, 0]  # without the row's largest taken away
                if isinstance(axes, list | tuple) and len(axes) == 1 and source is not None:
                    yield node, source, int(axes[0])


def _scores_of(
    call: Recorded, scores: Node
) -> str | tuple[Node, Tensor, float | None, bool, tuple[Node | None, Node | None]]:
    """The product that scores come from, their places in it, and the factor between."""
    chain: list[tuple[Node, tuple[int, int]]] = []
    node, factor, opaque, biased = scores, 1.0, False, False
    while node.name not in PRODUCTS:
        step = _moving_source(call, node)
        if step is None:
            return "its scores are no product of two tensors of tokens"
        if node.name in {"add", "add_", "sub", "sub_"} and _learned(call, node, step):
            biased = True
        if node.name in {"tanh", "clamp"}:
            opaque = True
        scalar = _factor_of(node, step)
        if scalar is None:
            opaque = True
        else:
            factor *= scalar
        chain.append((node, step))
        node = node.sources[step]
    left, right = (1, 2) if node.name in {"addmm", "baddbmm"} else (0, 1)
    if node.name == "baddbmm":
        factor *= float(node.kwargs.get("alpha", 1))
    sides = [node.sources.get((place, 0)) for place in (left, right)]
    if any(side is None or not call.moves_inputs(side) for side in sides):
        return "its scores are no product of two tensors of tokens"
    projections: list[Node | None] = []
    for side in sides:
        found, scalar, plain = _back_to_projection(call, side)
        projections.append(found)
        factor *= scalar
        opaque = opaque or not plain
    places = torch.arange(node.value.numel()).reshape(node.value.shape)
    for step_node, step in reversed(chain):
        places = moved_places(step_node, places, step)
    return node, places, None if opaque else factor, biased, (projections[0], projections[1])


def _moving_source(call: Recorded, node: Node) -> tuple[int, int] | None:
    """The argument of an operation that moves with tokens, where it is one alone."""
    if node.name not in VIEWS | ELEMENTWISE | {"cat", "stack"}:
        return None
    moving = [at for at, source in node.sources.items() if call.moves_inputs(source)]
    if node.name in {"where"} and moving:
        return moving[0]
    if len({id(node.sources[at]) for at in moving}) > 1:
        shaped = [at for at in moving if node.sources[at].value.shape == node.value.shape]
        if node.name == "sub" and shaped:  # softmax written out takes the row's maximum away
            return shaped[0]
        return None
    return moving[0] if moving else None


def _learned(call: Recorded, node: Node, step: tuple[int, int]) -> bool:
    """Whether what is added to scores is of parameters."""
    others = [source for at, source in node.sources.items() if at != step]
    return any(other.learned for other in others) or (not others and node.learned)


def _factor_of(node: Node, step: tuple[int, int]) -> float | None:
    """What an operation multiplies with, a number; None where it is none."""
    if is_opaque(node.name):
        return None
    if node.name not in {"mul", "mul_", "div", "div_"}:
        return 1.0
    other = node.args[1 - step[0]] if step[0] in (0, 1) else 1.0
    if isinstance(other, Tensor):
        if other.is_complex():  # a rotation
            return 1.0
        if other.numel() != 1:
            distinct = other.unique()
            if len(distinct) != 1:
                return 1.0 if bool(((distinct == 0) | (distinct == 1)).all()) else None
        other = float(other.reshape(-1)[0])
    value = float(other)
    if node.name.startswith("div"):
        return 1 / value if step[0] == 0 else None
    return value


def _back_to_projection(call: Recorded, node: Node) -> tuple[Node | None, float, bool]:
    """The projection that a factor of scores comes from, and what it was multiplied with."""
    factor, plain = 1.0, True
    for _ in range(200):
        if node.name in PRODUCTS:
            return node, factor, plain
        moving = [at for at, source in node.sources.items() if call.moves_inputs(source)]
        if not moving:
            return None, factor, plain
        if (
            len(moving) > 1
            or is_opaque(node.name)
            or node.name not in VIEWS | ELEMENTWISE | {"cat"}
        ):
            rotated = node.name in {"add", "sub", "cat", "stack", "mul", "add_", "sub_"}
            plain = plain and rotated and node.name != "mul"
            node = node.sources[moving[0]]
            continue
        scalar = _factor_of(node, moving[0])
        if scalar is not None:
            factor *= scalar
        elif not _rotates(node, moving[0]):
            plain = False
        node = node.sources[moving[0]]
    return None, factor, False


def _rotates(node: Node, step: tuple[int, int]) -> bool:
    """Whether an elementwise factor is of sines or cosines: none is larger than 1, some are less."""
    other = node.args[1 - step[0]] if step[0] in (0, 1) and len(node.args) > 1 else None
    return isinstance(other, Tensor) and bool((other.abs() <= 1 + 1e-6).all() and other.numel() > 1)


def _is_rotated(call: Recorded, node: Node | None) -> bool:
    """Whether numbers are turned by sines and cosines on their way from the projection."""
    turned, seen = False, 0
    while node is not None and node.name not in PRODUCTS and seen < 200:
        seen += 1
        moving = [at for at, source in node.sources.items() if call.moves_inputs(source)]
        if node.name == "mul" and len(node.args) > 1:
            for other in node.args[:2]:
                if isinstance(other, Tensor) and other.is_complex() and other.numel() > 1:
                    turned = True
                elif isinstance(other, Tensor) and other.numel() > 1 and len(moving) == 1:
                    small = other.abs() < 1 - 1e-9
                    turned |= bool(_rotates(node, moving[0]) and (small & (other != 0)).any())
        node = node.sources[moving[0]] if moving else None
    return turned


def _values_of(call: Recorded, softmax: Node) -> str | tuple[Node, Node, int, Tensor]:
    """The product that weights meet values in, and the places of weights in their factor."""
    places = {id(softmax): torch.arange(softmax.value.numel()).reshape(softmax.value.shape)}
    known = {id(softmax): softmax}
    for node in call.nodes[softmax.number + 1 :]:
        taken = [at for at, source in node.sources.items() if id(source) in known]
        if not taken:
            continue
        source = node.sources[taken[0]]
        if node.name in _SOFTMAX:
            return TWICE
        if node.name in PRODUCTS:
            operands = (1, 2) if node.name in {"addmm", "baddbmm"} else (0, 1)
            if taken[0][0] not in operands:
                continue
            side = operands.index(taken[0][0])
            other = node.sources.get((operands[1 - side], 0))
            if other is None or not call.moves_inputs(other):
                return "its weights are mixed with a learned matrix before they meet values"
            if id(other) in known:
                return "its weights meet weights"
            return node, source, side, places[id(source)]
        if node.name in VIEWS | ELEMENTWISE | {"cat"} and node.value.dtype.is_floating_point:
            try:
                places[id(node)] = moved_places(node, places[id(source)], taken[0])
            except (RuntimeError, IndexError, TypeError):
                return "its weights are moved in a way that is not followed"
            known[id(node)] = node
        elif node.name == "div" and places[id(source)].shape == node.value.shape:
            places[id(node)], known[id(node)] = places[id(source)], node
    return "its weights meet no values in a product"


@dataclass(eq=False)
class Diagnosis:
    """What is wrong with the attention of one call, and what is not known.

    Attributes:
        bugs: by name.
        changes: what mends each, by its name.
        notes: what is unusual and right.
        failed: tests that fail without a name for it.
    """

    bugs: list[Bug] = field(default_factory=list)
    changes: dict[str, dict[int, Change]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    maps: list[tuple[Tensor, Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """What was asked of the module, as far as it is known.

    Attributes:
        heads: how many heads it is to have; None for any.
        causal: whether a query must not see later tokens; None where nothing says.
        masked: bool [T, S], True for what a mask that was handed in allows; None for none.
        cross: whether keys are of another input.
    """

    heads: int | None = None
    causal: bool | None = None
    masked: Tensor | None = None
    cross: bool = False


class Doctor:
    """Looks at one call.

    Args:
        call: as it was traced.
        expected: what was asked for.
    """

    def __init__(self, call: Recorded, expected: Expected) -> None:
        self.call, self.expected = call, expected
        self.found = Diagnosis()
        self.tokens = call.tokens
        self.attentions, self.others = find_attention(call)

    def look(self) -> Diagnosis:
        """Everything that is wrong."""
        if any(node.name in _DROPOUT for node in self.call.nodes):
            self._bug("dropout", "weights A", "dropout runs in eval mode",
                      "F.dropout(p) drops always; use nn.Dropout, or training=self.training")  # fmt: skip
            return self.found
        if any(other.endswith(TWICE) for other in self.others):
            self._bug("softmax twice", "weights A", "softmax is taken of weights, which flattens them",
                      "softmax once, of the masked scores")  # fmt: skip
            return self.found
        for attention in self.attentions:
            self._look_at(attention)
        if self.attentions and not self.found.bugs:
            self._merge()
        if self.attentions and not self.found.bugs:
            self._batches()
        return self.found

    def _bug(
        self, name: str, step: str, what: str, change: str, mend: dict[int, Change] | None = None
    ) -> None:
        if any(bug.name == name for bug in self.found.bugs):
            if mend:
                self.found.changes[name].update(mend)
            return
        self.found.bugs.append(Bug(name=name, step=step, what=what, change=change))
        self.found.changes[name] = dict(mend or {})

    def _look_at(self, attention: Attention) -> None:
        softmax = attention.softmax
        summed = attention.summed_axes
        if attention.dim not in summed:
            axis = next(iter(summed), softmax.value.ndim - 1)
            self._bug(
                "axis", "weights A",
                f"softmax runs over axis {attention.dim}, and values are summed over axis {axis}",
                f"softmax(dim={axis - softmax.value.ndim}): over the keys, so that each row sums to 1",
                {softmax.number: lambda _, a=attention, x=axis: a.scores.value.softmax(x)},
            )  # fmt: skip
            return
        if self._layout(attention):
            return
        self._scale(attention)
        self._mask(attention)
        self._after(attention)
        self._shared(attention)
        self._rotary(attention)

    def _rotary(self, attention: Attention) -> None:
        """Whether positions are rotated into the wrong ones of queries, keys and values."""
        left, right = attention.operands(attention.product)
        values = attention.operands(attention.applied)[1 - attention.side]
        q, k, v = (
            _is_rotated(self.call, node.sources.get((place, 0)))
            for node, place in ((attention.product, left), (attention.product, right),
                                (attention.applied, values))
        )  # fmt: skip
        if v and (q or k):
            self._bug("rotary", "V", "values are rotated by their positions",
                      "rotate queries and keys alone: their product then tells of distances")  # fmt: skip
        elif q != k:
            side = "queries" if q else "keys"
            self._bug("rotary", "Q, K, V", f"{side} alone are rotated by their positions",
                      "rotate queries and keys alike: their product then tells of distances")  # fmt: skip

    # which tokens meet

    def _layout(self, attention: Attention) -> bool:
        """Whether the axes of heads, tokens and batch are confused; says so."""
        sides = {
            "Q": (
                attention.tokens_of_right if attention.keys_are_left else attention.tokens_of_left
            ),
            "K": (
                attention.tokens_of_left if attention.keys_are_left else attention.tokens_of_right
            ),
        }
        mixed = [name for name, touched in sides.items() if bool((touched.sum(0) > 1).any())]
        rows, keys = attention.tokens
        values = attention.value_tokens
        if mixed and self._mixed_before(attention):
            self.found.failed.append(
                "queries or keys are of several tokens before they meet (a layer or a convolution "
                "stands before): check the attention by itself"
            )
            return True
        if mixed:
            if mixed == ["K"]:
                self._bug(
                    "transpose", "scores",
                    "the keys that meet a query are made of several tokens: K is reshaped where it "
                    "is to be transposed",
                    "K.transpose(-1, -2); a view of [.., T, d] as [.., d, T] keeps no token whole",
                )  # fmt: skip
            else:
                self._bug(
                    "view", "Q, K, V",
                    f"vectors of {' and '.join(mixed)} hold numbers of several tokens",
                    "view to [B, T, H, d], then transpose(1, 2): a view mixes tokens with heads",
                )  # fmt: skip
            return True
        if bool((values == -1).any()) and self._mixed_before(attention):
            self.found.failed.append(
                "values are of several tokens before they are read: check the attention by itself"
            )
            return True
        if bool((values == -1).any()):
            self._bug(
                "view", "Q, K, V", "vectors of V hold numbers of several tokens",
                "view V to [B, T, H, d], then transpose(1, 2), as Q and K",
            )  # fmt: skip
            return True
        named = [name for name, tokens in (("Q", rows), ("K", keys)) if self._wrong(tokens, name)]
        if named or self._wrong(values[:, None], "V"):
            return self._confused(rows, keys, values, named)
        real = keys[:, 0] >= 0
        if values.shape == keys[:, 0].shape and bool(
            (values != keys[:, 0])[real & (values >= 0)].any()
        ):
            self._bug(
                "values", "head outputs",
                "weights meet the values of other tokens than those whose keys they were taken of",
                "lay V out as K: view to [B, T, H, d], then transpose(1, 2)",
            )  # fmt: skip
            return True
        return False

    def _mixed_before(self, attention: Attention) -> bool:
        """Whether a vector is of several tokens already where it leaves its projection."""
        values = attention.operands(attention.applied)[1 - attention.side]
        factors = [(attention.product, place) for place in attention.operands(attention.product)]
        for node, place in [*factors, (attention.applied, values)]:
            source = node.sources.get((place, 0))
            if source is None:
                continue
            projection, *_ = _back_to_projection(self.call, source)
            if projection is None:
                return True
            rows = self.call.touched(projection).any(-1).sum(0)
            if bool((rows > 1).any()):
                return True
        return False

    def _items(self, tokens: Tensor) -> Tensor:
        at = torch.tensor([item for _, item, _ in self.tokens])
        return torch.where(tokens >= 0, at[tokens.clamp_min(0)], -1)

    def _positions(self, tokens: Tensor) -> Tensor:
        at = torch.tensor([position for *_, position in self.tokens])
        return torch.where(tokens >= 0, at[tokens.clamp_min(0)], -1)

    def _wrong(self, tokens: Tensor, name: str) -> bool:
        """Whether a map has not each token of one item equally often; [N, queries, keys]."""
        for one in tokens:
            line = one[:, 0] if name == "Q" else one[0]
            line = line[line >= 0]
            if not len(line):
                continue
            items = {self.tokens[t][:2] for t in line.tolist()}
            counts = torch.bincount(line)
            counts = counts[counts > 0]
            number = self.tokens[int(line[0])][0]
            length = self.call.inputs[number].shape[1]
            if len(items) > 1 or len(counts) != length or len(set(counts.tolist())) > 1:
                return True
        return False

    def _confused(self, rows: Tensor, keys: Tensor, values: Tensor, named: list[str]) -> bool:
        items = self._items(keys[0, 0])
        positions = self._positions(keys[0, 0])
        several = len(set(items.tolist())) > 1
        if several and len(set(positions.tolist())) == 1:
            self._bug(
                "batch_first", "X",
                "tokens attend to the same position of the other items of the batch",
                "the module takes [T, B, D]: build it with batch_first=True, or transpose(0, 1) "
                "before and after",
            )  # fmt: skip
        elif several:
            self._bug(
                "view", "Q, K, V", "a map has keys of several items of the batch",
                "view to [B, T, H, d], then transpose(1, 2); only then merge B and H",
            )  # fmt: skip
        elif len(set(keys[0, 0].tolist())) == 1:
            self._bug(
                "heads", "Q, K, V",
                "the heads of one token attend to each other, and no token to another",
                "transpose(1, 2) before the product: [B, H, T, d], so that scores are [B, H, T, S]",
            )  # fmt: skip
        else:
            sides = named + (["V"] if self._wrong(values[:, None], "V") else [])
            self._bug(
                "view", "Q, K, V",
                f"a map has some tokens several times and others never, by {' and '.join(sides)}",
                "view to [B, T, H, d], then transpose(1, 2): a view straight to [B, H, T, d] has "
                "the right shape and cuts across tokens",
            )  # fmt: skip
        return True

    # scale, mask, weights

    def _scale(self, attention: Attention) -> None:
        width, factor = attention.width, attention.factor
        if factor is None:
            self.found.notes.append(
                "queries or keys are normalized or scaled by what is learned, so that the scale is "
                "not judged"
            )
            return
        right = 1 / math.sqrt(width)
        if math.isclose(factor, right, rel_tol=1e-5):
            return
        if attention.biased and math.isclose(factor, 1.0, rel_tol=1e-5):
            self.found.notes.append("scores are not scaled, and have a position bias, as T5's")
            return
        model = self._model_width()
        names = {
            1.0: "scores are not scaled",
            1 / width: f"scores are divided by d = {width}, not by its root",
            math.sqrt(width): f"scores are multiplied by √d = √{width}",
            float(width): f"scores are multiplied by d = {width}",
            1 / math.sqrt(model): f"scores are divided by √D = √{model}, not by √d = √{width}",
            1 / model: f"scores are divided by D = {model}",
            width**-0.25: "scores are divided by the fourth root of d: one of Q and K is scaled",
        }
        rows, keys = attention.met.shape[-2:]
        names |= {1 / math.sqrt(keys): f"scores are divided by √S = √{keys}, not by √d = √{width}"}
        if self.expected.heads:
            names |= {
                1 / math.sqrt(self.expected.heads): "scores are divided by √H, not by √d",
            }
        for wrong, what in names.items():
            if math.isclose(factor, wrong, rel_tol=1e-5):
                number = attention.product.number
                self._bug(
                    "scale", "scaled", what, f"divide scores by √{width} = {math.sqrt(width):.4g}",
                    {number: lambda value, by=right / factor: value * by},
                )  # fmt: skip
                return
        self.found.notes.append(f"scores are multiplied by {factor:.4g}; 1/√d would be {right:.4g}")

    def _model_width(self) -> int:
        return int(self.call.inputs[0].shape[-1])

    def _pairs(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of query and key, and whether the pair is of two tokens, [N, T, S]."""
        rows, keys = attention.tokens
        return self._positions(rows), self._positions(keys), (rows >= 0) & (keys >= 0)

    def _allowed(self, attention: Attention) -> Tensor | None:
        """What may be attended to, bool [N, T, S]; None where nothing says."""
        rows, keys, real = self._pairs(attention)
        if self.expected.masked is not None:
            mask = self.expected.masked
            if mask.ndim == 3:  # of every item
                items = self._items(attention.tokens[1])
                return mask[items.clamp_min(0), rows.clamp_min(0), keys.clamp_min(0)] | ~real
            return mask[rows.clamp_min(0), keys.clamp_min(0)] | ~real
        if self.expected.causal:
            return (keys <= rows) | ~real
        return None

    def _mask(self, attention: Attention) -> None:
        rows, keys, real = self._pairs(attention)
        weights = attention.softmax.value.reshape(-1)[attention.met_places.clamp_min(0)]
        seen = (weights > _ZERO) & real
        scores = attention.scores.value.reshape(-1)[attention.met_places.clamp_min(0)]
        touched = self.call.touched(attention.scores).any(0).reshape(-1)
        fixed = ~touched[attention.met_places.clamp_min(0)] & real  # scores that no token moves
        allowed = self._allowed(attention)
        wide = rows.max() > 0 and bool((rows != keys).any())
        if not wide:
            return
        empty = weights.isnan().any(-1)
        if bool(empty.any()):
            strict = bool((fixed | ~scores.isfinite())[real & (keys >= rows)].all())
            if strict and bool(touched.any()):
                self._off_by_one(attention, rows, keys, "its own token is masked too, so that the "
                                 "first row has no key and becomes NaN")  # fmt: skip
            else:
                self._bug(
                    "no key", "masked",
                    f"{int(empty[0].sum())} rows of a map have no key left, and softmax gives NaN",
                    "leave every row a key, or set such rows to 0 behind softmax",
                )  # fmt: skip
            return
        faint = fixed & seen & (scores > _FAINT)
        blocked = ~seen & real
        if bool(faint.any()) and not bool(faint.all()):
            value = float(scores[faint][0])
            later = keys > rows
            if bool((faint == (later & real)).all()) or bool((faint <= later).all()):
                self._bug(
                    "fill", "masked",
                    f"masked scores are filled with {value:.4g}, and e^{value:.3g} is no small "
                    "weight: later tokens are attended to",
                    "fill with -inf (or -1e9) before softmax",
                    self._masked_right(attention),
                )  # fmt: skip
            elif bool(
                (faint == (keys < rows) & real).all() or (faint == (keys <= rows) & real).all()
            ):
                self._bug(
                    "inverted", "masked", "the mask falls on earlier tokens, and with a weak fill",
                    "mask keys that come later, and fill with -inf", self._masked_right(attention),
                )  # fmt: skip
            else:
                self._bug(
                    "fill", "masked",
                    f"masked scores are filled with {value:.4g}, which leaves them a weight",
                    "fill with -inf (or -1e9) before softmax",
                )  # fmt: skip
            return
        if allowed is None:
            self._hinted(attention, rows, keys, seen, real)
            return
        later = keys > rows
        if self.expected.causal and bool((blocked == ((keys >= rows) & real)).all()):
            return
        leaks = seen & ~allowed & real
        if not bool(leaks.any()):
            lost = ~seen & allowed & real
            own = lost & (keys == rows)
            if self.expected.causal and bool(own.any()) and bool((lost <= (keys == rows)).all()):
                self._off_by_one(attention, rows, keys, "a token does not see itself")
            return
        if self._masked_after(attention, leaks):
            return
        if not self.expected.causal:
            if not self._by_head(attention, seen, real):
                self.found.failed.append("a mask that is handed in does not block what it names")
            return
        if bool((leaks <= (keys == rows + 1)).all()):
            self._off_by_one(attention, rows, keys, "each token sees the next one")
        elif bool((seen == ((keys >= rows) & real)).all() or (seen == (later & real)).all()):
            self._bug(
                "inverted", "masked", "a token sees itself and later ones: the mask is inverted",
                "mask what comes later (triu with diagonal=1), and keep the lower triangle",
                self._masked_right(attention),
            )  # fmt: skip
        elif bool(seen[real].all()):
            self._bug(
                "no mask", "masked", "later tokens are attended to: no mask reaches the scores",
                "fill the scores of later keys with -inf before softmax",
                self._masked_right(attention),
            )  # fmt: skip
        elif self._by_head(attention, seen, real):
            pass
        else:
            self.found.failed.append("later tokens are attended to by some rows")

    def _by_head(self, attention: Attention, seen: Tensor, real: Tensor) -> bool:
        """Whether a mask falls on some maps alone, as one that broadcasts over the wrong axis."""
        whole = seen.masked_fill(~real, True).flatten(1).all(1)
        if bool(whole.any()) and not bool(whole.all()):
            self._bug(
                "mask axis", "masked",
                f"{int(whole.sum())} of {len(whole)} maps are not masked: the mask is laid over "
                "another axis",
                "give the mask the shape [T, S], or [B, 1, T, S], so that it is the same for all heads",
                self._masked_right(attention),
            )  # fmt: skip
            return True
        return False

    def _off_by_one(self, attention: Attention, rows: Tensor, keys: Tensor, what: str) -> None:
        self._bug(
            "off by one", "masked", f"the causal mask is off by one: {what}",
            "block keys j > i: torch.triu(ones, diagonal=1), or keep torch.tril(ones)",
            self._masked_right(attention),
        )  # fmt: skip

    def _masked_right(self, attention: Attention) -> dict[int, Change]:
        """The softmax with the raw scores masked as they should be."""
        rows, keys, real = self._pairs(attention)
        wrong = torch.zeros(attention.softmax.value.numel(), dtype=torch.bool)
        where = attention.met_places.clamp_min(0)
        wrong[where[(keys > rows) & real]] = True
        raw = attention.product.value.reshape(-1)[attention.score_places.clamp_min(0)]
        scale = 1 / math.sqrt(attention.width)
        factor = attention.factor if attention.factor is not None else scale
        sides = self._side_factor(attention)
        scores = raw * (factor / sides)
        masked = scores.masked_fill(wrong.reshape(scores.shape), -torch.inf)
        return {attention.softmax.number: lambda _: masked.softmax(attention.dim)}

    def _side_factor(self, attention: Attention) -> float:
        """What of the scale lies in Q and K already, before their product."""
        total = 1.0
        left, right = attention.operands(attention.product)
        for place in (left, right):
            source = attention.product.sources.get((place, 0))
            if source is not None:
                total *= _back_to_projection(self.call, source)[1]
        return total

    def _hinted(
        self, attention: Attention, rows: Tensor, keys: Tensor, seen: Tensor, real: Tensor
    ) -> None:
        """Without a word on masks: what a partial triangle says."""
        later = (keys > rows) & real
        if not bool(seen[later].any()) or bool(seen[real].all()):
            if bool((~seen[(keys == rows) & real]).all()) and bool((~seen[later]).all()):
                self._off_by_one(attention, rows, keys, "a token does not see itself")
            return
        if bool((seen & later <= (keys == rows + 1)).all()) and not bool(seen[later].all()):
            self._off_by_one(attention, rows, keys, "each token sees the next one")
        elif bool((~seen[(keys < rows) & real]).all()):
            self._bug(
                "inverted", "masked", "a token sees itself and later ones: the mask is inverted",
                "mask what comes later (triu with diagonal=1), and keep the lower triangle",
                self._masked_right(attention),
            )  # fmt: skip
        else:
            self._by_head(attention, seen, real)

    def _masked_after(self, attention: Attention, leaks: Tensor) -> bool:
        """Whether what leaks through softmax is taken away behind it; :meth:`_after` says so."""
        return not bool((attention.met.abs() > _ZERO)[leaks].any())

    def _after(self, attention: Attention) -> None:
        """Whether weights are changed between softmax and values."""
        known = attention.met_places >= 0
        weights = attention.softmax.value.reshape(-1)[attention.met_places.clamp_min(0)]
        met = attention.met
        if met.shape != weights.shape or bool(weights.isnan().any()):
            return
        apart = ((met - weights).abs() > 1e-9) & known
        if not bool(apart.any()):
            return
        sums = met.sum(-1)
        gone = (met.abs() <= _ZERO) & (weights > _ZERO)
        if bool(gone.any()) and bool((apart <= gone).all()):
            low = float(sums.min())
            rows, keys, _ = self._pairs(attention)
            mend = self._masked_right(attention) if bool((gone <= (keys > rows)).all()) else {}
            self._bug(
                "mask after softmax", "masked",
                f"weights are set to 0 after softmax: rows sum to {low:.2f} and more, not to 1",
                "fill scores with -inf before softmax", mend,
            )  # fmt: skip
        elif bool(gone.any()) and bool(((sums - 1).abs() < 1e-6).all()):
            self.found.notes.append("weights are masked after softmax and brought back to sum 1")
        elif not bool(((sums - 1).abs() < 1e-6).all()):
            number = attention.weights.number
            self._bug(
                "weights changed", "weights A",
                f"weights are changed after softmax: rows sum to {float(sums.min()):.3g} to "
                f"{float(sums.max()):.3g}",
                "multiply V by what softmax gives",
                {} if attention.weights is attention.softmax else {
                    number: lambda value, a=attention: a.softmax.value.reshape(-1)[
                        a.weight_places.clamp_min(0)].reshape(value.shape)},
            )  # fmt: skip
        else:
            self.found.notes.append("weights are changed after softmax, and still sum to 1")

    def _shared(self, attention: Attention) -> None:
        """Whether queries and keys are the same numbers."""
        left, right = attention.operands(attention.product)
        a, b = attention.product.args[left], attention.product.args[right].transpose(-1, -2)
        if a.shape != b.shape or self.expected.cross or a.shape[-2] < 2:
            return
        ratio = a / b
        finite = ratio[ratio.isfinite()]
        if finite.numel() and bool(((finite - finite[0]).abs() < 1e-9).all()):
            self._bug(
                "one matrix", "K", "queries and keys are the same numbers: one matrix makes both",
                "give Q and K a matrix each; scores are symmetric otherwise",
            )  # fmt: skip

    # what becomes of head outputs

    def _merge(self) -> None:
        reached: list[Tensor] = []
        for attention in self.attentions:
            value = attention.applied.value
            laid = value if attention.side == 0 else value.transpose(-1, -2)
            rows = (
                _as_batch(attention.tokens[0][..., 0])
                if attention.tokens[0].ndim < 3
                else (attention.tokens[0].amax(-1))
            )
            for item, position in self._wanted():
                token = next(
                    (n for n, t in enumerate(self.tokens) if t[1:] == (item, position)), None
                )
                places = (rows == token)[..., None].expand(_as_batch(laid).shape)
                if not bool(places.any()):
                    continue
                places = places.reshape(laid.shape)
                marked = places if attention.side == 0 else places.transpose(-1, -2)
                moved = self.call.moved(attention.applied, marked)
                at = {(int(b), int(t)) for b, t in moved.any(-1).nonzero().tolist()}
                if at - {(item, position)} or not at:
                    self._merged_wrong(at, item, position)
                    return
            reached += self._channels(attention, rows, laid)
        if reached and len(reached) > 1 and self._apart(reached):
            self._bug(
                "no W_O", "Y",
                "each head moves only its own part of the output: nothing mixes the heads",
                "end with W_O: Y = Z W_O, a D × D matrix over all heads",
            )  # fmt: skip

    def _wanted(self) -> list[tuple[int, int]]:
        last = self.call.inputs[0].shape[1] - 1
        return [(0, 1), (1, last), (0, 3)]

    def _merged_wrong(self, at: set[tuple[int, int]], item: int, position: int) -> None:
        if not at:
            self._bug("unused", "Z", "what heads read never reaches the output",
                      "return what the heads give, joined and multiplied by W_O")  # fmt: skip
            return
        others = sorted(t for _, t in at if (_, t) != (item, position))
        self._bug(
            "merge", "Z concat",
            f"the heads' output for token {position} ends up at "
            f"{'tokens ' + ', '.join(map(str, others[:4])) if others else 'another item'}",
            "transpose(1, 2) back to [B, T, H, d], then contiguous().view(B, T, D): without it the "
            "concat glues different tokens together",
        )  # fmt: skip

    def _channels(self, attention: Attention, rows: Tensor, laid: Tensor) -> Iterator[Tensor]:
        """Which channels of one token's output each head moves, bool [D] each."""
        token = next(n for n, t in enumerate(self.tokens) if t[1:] == (0, 1))
        batched = _as_batch(laid)
        for number, line in enumerate(rows):
            for row in (line == token).nonzero().flatten().tolist():
                places = torch.zeros(batched.shape, dtype=torch.bool)
                places[number, row] = True
                places = places.reshape(laid.shape)
                marked = places if attention.side == 0 else places.transpose(-1, -2)
                yield self.call.moved(attention.applied, marked)[0, 1]

    @staticmethod
    def _apart(reached: Sequence[Tensor]) -> bool:
        """Whether no channel is moved by two heads."""
        return bool((torch.stack(list(reached)).sum(0) <= 1).all())

    def _batches(self) -> None:
        touched = self.call.output_touched()
        for number, (_, item, position) in enumerate(self.tokens):
            others = touched[number].any(-1).any(-1)
            others[item] = False
            if bool(others.any()):
                self.found.failed.append("an item's output moves with another item of the batch")
                return
        if self.expected.causal and self.expected.masked is None:
            for number, (_, item, position) in enumerate(self.tokens):
                if bool(touched[number][item, :position].any()):
                    self.found.failed.append("an earlier token's output moves with a later token")
                    return
