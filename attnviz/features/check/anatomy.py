"""Where attention is in a traced call: softmaxes between two products, and what meets there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.features.check.trace import (
    ELEMENTWISE,
    NORMS,
    PRODUCTS,
    VIEWS,
    Node,
    Recorded,
    factors,
    moved_places,
)

_SOFTMAX = {"_softmax", "_safe_softmax", "softmax"}
TWICE = "softmax is taken of its weights once more"


class Factor(NamedTuple):
    """What enters a product."""

    product: Node
    slot: int  # its number among the product's arguments
    turned: bool  # whether its vectors, of a token each, are columns

    @property
    def tensor(self) -> Tensor:
        """The factor as it was."""
        argument: Tensor = self.product.args[self.slot]
        return argument

    @property
    def source(self) -> Node | None:
        """The node that gave it."""
        return self.product.sources.get((self.slot, 0))

    def touched(self, call: Recorded) -> Tensor:
        """Which tokens its vectors move with, bool [tokens, N, n]."""
        moves = call.touched_argument(self.product, self.slot).any(-2 if self.turned else -1)
        return moves if moves.ndim == 3 else moves[:, None]


@dataclass(eq=False)
class Attention:
    """One softmax between two products."""

    call: Recorded
    softmax: Node  # its node
    scores: Node  # what it is taken of
    dim: int  # its axis
    product: Node  # gives the raw scores
    score_places: Tensor  # of each score its place in the product, -1 for none (a sink)
    applied: Node  # the product of weights and values
    weights: Node  # the weights as they meet values: the node, and the argument they are
    side: int
    weight_places: Tensor  # of each such number its place in the softmax
    # what stands between projections and scores; None where it is no plain number
    factor: float | None
    biased: bool  # whether something that moves with parameters is added to scores
    projections: tuple[Node | None, Node | None]

    @property
    def sides(self) -> tuple[Factor, Factor]:
        """The left and the right factor of scores."""
        left, right = factors(self.product)
        return Factor(self.product, left, turned=False), Factor(self.product, right, turned=True)

    @property
    def queries(self) -> Factor:
        """The factor of scores that queries are."""
        return self.sides[self.keys_are_left]

    @property
    def keys(self) -> Factor:
        """The factor of scores that keys are."""
        return self.sides[not self.keys_are_left]

    @property
    def values(self) -> Factor:
        """What weights are multiplied with."""
        return Factor(self.applied, factors(self.applied)[1 - self.side], turned=self.side == 1)

    @cached_property
    def tokens_of_sides(self) -> tuple[Tensor, Tensor]:
        """Which tokens the vectors of each side are of, bool [tokens, N, n]."""
        left, right = self.sides
        return left.touched(self.call), right.touched(self.call)

    @property
    def width(self) -> int:
        """The numbers that a query and a key have in common, d."""
        return int(self.sides[0].tensor.shape[-1])

    @cached_property
    def met(self) -> Tensor:
        """The weights as they meet values, [N, queries, keys]."""
        return as_batch(self.laid(self.applied.args[factors(self.applied)[self.side]]))

    @cached_property
    def met_places(self) -> Tensor:
        """Their places in the softmax, [N, queries, keys]."""
        return as_batch(self.laid(self.weight_places))

    def laid(self, factor: Tensor) -> Tensor:
        """Turn what has its rows where weights have theirs to rows first, and back."""
        return factor if self.side == 0 else factor.transpose(-1, -2)

    @cached_property
    def tokens(self) -> tuple[Tensor, Tensor]:
        """The token of each row and of each key of :attr:`met`, as [N, queries], [N, keys].

        -1 where there is not one alone, -2 where there is none (a sink, a bias).
        """
        left, right = map(_single, self.tokens_of_sides)
        columns, product = self.product.value.shape[-1], self._product_places
        rows = left.reshape(-1)[(product // columns).clamp_min(0)]
        batch = product // (columns * self.product.value.shape[-2])
        keys = right.reshape(-1)[(batch * columns + product % columns).clamp_min(0)]
        if self.keys_are_left:
            rows, keys = keys, rows
        return rows.masked_fill(product < 0, -2), keys.masked_fill(product < 0, -2)

    def places(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Find the item and the position of some tokens; -1 where there is none."""
        _, items, positions = torch.tensor(self.call.tokens).T
        present, number = tokens >= 0, tokens.clamp_min(0)
        return torch.where(present, items[number], -1), torch.where(present, positions[number], -1)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of query and key, and whether the pair is of two tokens, [N, T, S]."""
        rows, keys = self.tokens
        return self.places(rows)[1], self.places(keys)[1], (rows >= 0) & (keys >= 0)

    @cached_property
    def keys_are_left(self) -> bool:
        """Whether keys are the left factor of the scores: what varies along the summed axis."""
        columns, line = self.product.value.shape[-1], self._product_places[0, 0]
        line = line[line >= 0]
        return bool(len(line) > 1 and (line[0] % columns) == (line[1] % columns))

    @cached_property
    def _product_places(self) -> Tensor:
        """Places of :attr:`met` in the product of queries and keys, -1 where they have none."""
        places = self.score_places.reshape(-1)[self.met_places.clamp_min(0)]
        return places.masked_fill(self.met_places < 0, -1)

    @property
    def summed_axes(self) -> set[int]:
        """The axes of the softmax's result that vary along the sum over values."""
        line = self.met_places[0, 0]
        indices = np.unravel_index(line[line >= 0].numpy(), self.softmax.value.shape)
        return {axis for axis, along in enumerate(indices) if len(set(along.tolist())) > 1}

    @cached_property
    def value_tokens(self) -> Tensor:
        """The token of each row of values, [N, keys]."""
        return _single(self.values.touched(self.call))


def as_batch(factor: Tensor) -> Tensor:
    """Return a factor of a product as a batch of matrices, [N, n, m]."""
    return factor if factor.ndim == 3 else factor[None]


def _single(touched: Tensor) -> Tensor:
    """Return the one token of each vector; -1 where it is not one, -2 where it is none."""
    count = touched.sum(0)
    first = touched.to(torch.int64).argmax(0)
    return torch.where(count == 1, first, torch.where(count == 0, -2, -1))


def find_attention(call: Recorded) -> tuple[list[Attention], list[str]]:
    """Every attention of a call, and what of its softmaxes is none or could not be followed."""
    attentions, rejected = [], []
    for softmax, scores, dim in find_softmaxes(call.nodes):
        behind = _scores_of(call, scores)
        ahead = _values_of(call, softmax)
        if isinstance(behind, str) or isinstance(ahead, str):
            reason = behind if isinstance(behind, str) else ahead
            shape = list(softmax.value.shape)
            rejected.append(f"softmax over axis {dim} of {shape}: {reason}")
            continue
        product, places, factor, biased, projections = behind
        applied, weights, side, weight_places = ahead
        attentions.append(
            Attention(call, softmax, scores, dim % softmax.value.ndim, product, places, applied,
                      weights, side, weight_places, factor, biased, projections)
        )  # fmt: skip
    return attentions, rejected


def find_softmaxes(nodes: Sequence[Node]) -> Iterator[tuple[Node, Node, int]]:
    """Every softmax with what it is taken of and its axis, written out or not."""
    for node in nodes:
        if node.name in _SOFTMAX and (0, 0) in node.sources:
            yield node, _unshifted(node.sources[0, 0]), int(node.args[1])
        elif node.name == "exp" and (0, 0) in node.sources:
            log = node.sources[0, 0]
            if log.name == "_log_softmax" and (0, 0) in log.sources:
                yield node, _unshifted(log.sources[0, 0]), int(log.args[1])
            elif log.name == "sub" and (total := log.sources.get((1, 0))) is not None:
                source = log.sources.get((0, 0))
                axes = total.args[1] if total.name == "logsumexp" else None
                if source is not None and total.sources.get((0, 0)) is source and axes:
                    yield node, source, int(axes[0] if isinstance(axes, list | tuple) else axes)
        elif node.name == "div" and (0, 0) in node.sources and (1, 0) in node.sources:
            above, below = node.sources[0, 0], node.sources[1, 0]
            while below.name in VIEWS | {"add", "clamp_min"} and (0, 0) in below.sources:
                below = below.sources[0, 0]
            explicit = above.name == "exp" or (above.name in VIEWS)
            if explicit and below.name == "sum" and below.sources.get((0, 0)) is above:
                axes = below.args[1] if len(below.args) > 1 else None
                source = above.sources.get((0, 0))
                if isinstance(axes, list | tuple) and len(axes) == 1 and source is not None:
                    yield node, _unshifted(source), int(axes[0])


def _unshifted(scores: Node) -> Node:
    """Scores before each row's largest was taken away, which softmax does not see."""
    if scores.name not in {"sub", "sub_"} or (0, 0) not in scores.sources:
        return scores
    shift = scores.sources.get((1, 0))
    while shift is not None and shift.name in VIEWS:
        shift = shift.sources.get((0, 0))
    of_rows = shift is not None and shift.name in {"amax", "max", "logsumexp"}
    return scores.sources[0, 0] if of_rows else scores


def _scores_of(
    call: Recorded, scores: Node
) -> str | tuple[Node, Tensor, float | None, bool, tuple[Node | None, Node | None]]:
    """Return the product that scores come from, their places in it, and the factor between."""
    chain: list[tuple[Node, tuple[int, int]]] = []
    node, factor, opaque, biased = scores, 1.0, False, False
    while node.name not in PRODUCTS:
        step = _moving_source(call, node)
        if step is None:
            return "its scores are no product of two tensors of tokens"
        if node.name in {"add", "add_", "sub", "sub_"} and _learned(node, step):
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
    left, right = factors(node)
    if node.name == "baddbmm":
        factor *= float(node.kwargs.get("alpha", 1))
    sides = [node.sources[slot, 0] for slot in (left, right) if (slot, 0) in node.sources]
    if len(sides) < 2 or not all(map(call.moves_inputs, sides)):
        return "its scores are no product of two tensors of tokens"
    projections: list[Node | None] = []
    for side in sides:
        projection, scalar, plain = back_to_projection(call, side)
        projections.append(projection)
        factor *= scalar
        opaque = opaque or not plain
    places = torch.arange(node.value.numel()).reshape(node.value.shape)
    for step_node, step in reversed(chain):
        places = moved_places(step_node, places, step)
    return node, places, None if opaque else factor, biased, (projections[0], projections[1])


def _moving_source(call: Recorded, node: Node) -> tuple[int, int] | None:
    """Return the argument of an operation that moves with tokens, where it is one alone."""
    if node.name not in VIEWS | ELEMENTWISE | {"cat", "stack"}:
        return None
    moving = call.moving(node)
    if node.name in {"where"} and moving:
        return moving[0]
    if len({id(node.sources[slot]) for slot in moving}) > 1:
        shaped = [slot for slot in moving if node.sources[slot].value.shape == node.value.shape]
        if node.name == "sub" and shaped:  # softmax written out takes the row's maximum away
            return shaped[0]
        return None
    return moving[0] if moving else None


def _learned(node: Node, step: tuple[int, int]) -> bool:
    """Whether what is added to scores is of parameters."""
    operands = [source for slot, source in node.sources.items() if slot != step]
    return any(operand.learned for operand in operands) or (not operands and node.learned)


def _factor_of(node: Node, step: tuple[int, int]) -> float | None:
    """Return what an operation multiplies with, a number; None where it is none."""
    if node.name in NORMS:
        return None
    if node.name not in {"mul", "mul_", "div", "div_"}:
        return 1.0
    operand = node.args[1 - step[0]] if step[0] in (0, 1) else 1.0
    if isinstance(operand, Tensor):
        if operand.is_complex():  # a rotation
            return 1.0
        if operand.numel() != 1:
            distinct = torch.unique(operand)
            if len(distinct) != 1:
                return 1.0 if bool(((distinct == 0) | (distinct == 1)).all()) else None
        operand = float(operand.reshape(-1)[0])
    value = float(operand)
    if node.name.startswith("div"):
        return 1 / value if step[0] == 0 else None
    return value


def back_to_projection(call: Recorded, node: Node) -> tuple[Node | None, float, bool]:
    """Return the projection that a factor of scores comes from, and what it was multiplied with."""
    factor, plain = 1.0, True
    for _ in range(200):
        if node.name in PRODUCTS:
            return node, factor, plain
        moving = call.moving(node)
        if not moving:
            return None, factor, plain
        if len(moving) > 1 or node.name in NORMS or node.name not in VIEWS | ELEMENTWISE | {"cat"}:
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
    """Whether an elementwise factor may be of sines or cosines: none is larger than 1."""
    value = node.args[1 - step[0]] if step[0] in (0, 1) and len(node.args) > 1 else None
    return isinstance(value, Tensor) and bool((value.abs() <= 1 + 1e-6).all() and value.numel() > 1)


def is_rotated(call: Recorded, node: Node | None) -> bool:
    """Whether numbers are turned by sines and cosines on their way from the projection."""
    rotated = False
    while node is not None and node.name not in PRODUCTS:
        moving = call.moving(node)
        if node.name == "mul" and len(node.args) > 1:
            for operand in node.args[:2]:
                if isinstance(operand, Tensor) and operand.is_complex() and operand.numel() > 1:
                    rotated = True
                elif isinstance(operand, Tensor) and operand.numel() > 1 and len(moving) == 1:
                    small = operand.abs() < 1 - 1e-9
                    rotated |= bool(_rotates(node, moving[0]) and (small & (operand != 0)).any())
        node = node.sources[moving[0]] if moving else None
    return rotated


def _values_of(call: Recorded, softmax: Node) -> str | tuple[Node, Node, int, Tensor]:
    """Return the product that weights meet values in, and the places of weights in their factor."""
    places = {id(softmax): torch.arange(softmax.value.numel()).reshape(softmax.value.shape)}
    tracked = {id(softmax): softmax}
    for node in call.nodes[softmax.number + 1 :]:
        inputs = [slot for slot, source in node.sources.items() if id(source) in tracked]
        if not inputs:
            continue
        source = node.sources[inputs[0]]
        if node.name in _SOFTMAX:
            return TWICE
        if node.name in PRODUCTS:
            operands = factors(node)
            if inputs[0][0] not in operands:
                continue
            side = operands.index(inputs[0][0])
            factor = node.sources.get((operands[1 - side], 0))
            if factor is None or not call.moves_inputs(factor):
                return "its weights are mixed with a learned matrix before they meet values"
            if id(factor) in tracked:
                return "its weights meet weights"
            return node, source, side, places[id(source)]
        if node.name in VIEWS | ELEMENTWISE | {"cat"} and node.value.dtype.is_floating_point:
            try:
                places[id(node)] = moved_places(node, places[id(source)], inputs[0])
            except (RuntimeError, IndexError, TypeError):
                return "its weights are moved in a way that is not followed"
            tracked[id(node)] = node
        elif node.name == "div" and places[id(source)].shape == node.value.shape:
            places[id(node)], tracked[id(node)] = places[id(source)], node
    return "its weights meet no values in a product"
