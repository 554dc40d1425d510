"""What rotary positions do to queries, keys and values, told from a call on equal tokens.

Where all tokens are equal, a number of a query that is not rotated is the same at every position,
and one that is turns as s(t) = a·cos(f·t + φ), so that s(t + 1) + s(t - 1) = 2·cos f · s(t): that
gives its frequency f, however pairs are laid out. A query and a key of the same position must meet
with the product that they have without rotation. A wrong base is named only where the module says
which base is meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.features.check.anatomy import Attention, back_to_projection, is_rotated
from attnviz.features.check.trace import Node, Recorded, factors

_BASES = ("rope_theta", "rope_base", "rotary_base", "rotary_emb_base", "rope_freq_base")
_OF_ROTARY = ("base", "theta")  # names of a base; the latter only in modules that are called rotary
_CHANGED = ("scaling", "ntk", "yarn", "interpol", "factor")
_EXACT = 1e-7


class RotaryBug(NamedTuple):
    """A name, the step, what is done and how to change it."""

    name: str
    step: str
    what: str
    change: str


def named_base(module: nn.Module) -> float | None:
    """The base of rotary positions that a module names; None for none, several, or scaled ones."""
    bases = set()
    for part in module.modules():
        rotary = any(word in type(part).__name__.lower() for word in ("rotary", "rope"))
        for holder in (part, getattr(part, "config", None), getattr(part, "args", None)):
            for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
                lower = name.lower()
                number = isinstance(value, int | float) and not isinstance(value, bool)
                plain = value is None or value is False or (number and value <= 1)  # of scores
                if any(word in lower for word in _CHANGED) and not plain:
                    return None
                if number and (lower in _BASES or (rotary and lower in _OF_ROTARY)):
                    bases.add(float(value))
    return bases.pop() if len(bases) == 1 else None


def find_rotary_bugs(
    call: Recorded, attention: Attention, base: float | None, *, cross: bool
) -> Iterator[RotaryBug]:
    """Find what is wrong with the rotation of queries, keys and values; nothing where none is."""
    left, right = factors(attention.product)
    if attention.keys_are_left:
        left, right = right, left
    values = factors(attention.applied)[1 - attention.side]
    nodes, _ = call.run(inputs=[i[:, :1].expand_as(i).clone() for i in call.inputs])
    speeds, turned = [], []
    for node, place in (
        (attention.product, left), (attention.product, right),
        (attention.applied, values),
    ):  # fmt: skip
        factor = nodes[node.number].args[place]
        first = place == factors(node)[0]
        laid = factor if first == (node is attention.product) else factor.transpose(-1, -2)
        found = _frequencies(laid if laid.ndim == 3 else laid[None])
        speeds.append(found)
        source = node.sources.get((place, 0))
        turned.append(is_rotated(call, source) if found is None else bool((found > 0).any()))
    q, k, v = turned
    fast, slow, _ = speeds
    if v and (q or k):
        yield RotaryBug("rotary", "V", "values are rotated by their positions",
                        "rotate queries and keys alone: scores then tell of distances")  # fmt: skip
    elif q != k:
        side = "queries" if q else "keys"
        yield RotaryBug("rotary", "Q, K, V", f"{side} alone are rotated by their positions",
                        "rotate queries and keys alike: scores then tell of distances")  # fmt: skip
    elif (
        q and not cross and len(call.inputs) == 1
        and fast is not None and slow is not None and fast.shape == slow.shape
    ):  # fmt: skip
        lag = _lag(nodes, attention, nodes[attention.product.number])
        yield from _of_pairs(fast, slow, lag, base)


def _of_pairs(fast: Tensor, slow: Tensor, lag: int, base: float | None) -> Iterator[RotaryBug]:
    """Compare what turns a query's numbers with what turns a key's."""
    if not torch.equal(fast > 0, slow > 0):
        where = ((fast > 0) != (slow > 0)).nonzero().flatten().tolist()
        yield RotaryBug(
            "split", "Q, K, V",
            f"numbers {where[0]} to {where[-1]} of a head are rotated in queries or in keys alone: "
            "the rotated part of the one meets the content of the other",
            "join both parts in the same order in Q and in K: [content; rotated position]",
        )  # fmt: skip
        return
    used = sorted({round(f, 6) for f in fast.tolist() if f > 0}, reverse=True)
    if not torch.allclose(fast, slow, rtol=1e-4, atol=1e-6):
        same = torch.allclose(fast.sort()[0], slow.sort()[0], rtol=1e-4, atol=1e-6)
        yield RotaryBug(
            "rotary" if same else "rotary base", "Q, K, V",
            "queries pair other numbers of a head than keys do (halves against neighbours)" if same
            else f"queries and keys turn at other speeds, {_listed(fast)} and {_listed(slow)}",
            "rotate queries and keys alike: scores then tell of distances",
        )  # fmt: skip
        return
    if lag:
        yield RotaryBug(
            "rotary offset", "Q, K, V",
            f"keys are rotated as if they stood {abs(lag)} "
            f"{'position' if abs(lag) == 1 else 'positions'} {'later' if lag > 0 else 'earlier'} "
            "than the queries of the same tokens",
            "give queries and keys of a token the same position",
        )  # fmt: skip
    pairs = int((fast > 0).sum()) // 2
    if base is None or len(used) < 2 or pairs < 2 or not math.isclose(used[0], 1, rel_tol=1e-5):
        return
    expected = base ** (-1 / pairs)
    geometric = all(
        math.isclose(f, used[1] ** i, rel_tol=1e-3) for i, f in enumerate(used) if f > 1e-3
    )
    if len(used) == pairs and geometric and not math.isclose(used[1], expected, rel_tol=1e-4):
        yield RotaryBug(
            "rotary base", "Q, K, V",
            f"positions turn by base {used[1] ** -pairs:,.4g}, and the module names {base:,.4g}",
            f"turn pair i by {base:,.4g}^(-2i/{2 * pairs}) radians a position",
        )  # fmt: skip


def _frequencies(part: Tensor) -> Tensor | None:
    """Tell radians a position of each number, [width], 0 where it stays; None if not rotated."""
    before, now, after = part[:, :-2], part[:, 1:-1], part[:, 2:]
    weight = (now**2).sum((0, 1))
    cosine = ((before + after) * now).sum((0, 1)) / (2 * weight).clamp_min(1e-300)
    residual = (before + after - 2 * cosine * now).abs().amax((0, 1))
    size = part.abs().amax((0, 1))
    if bool((residual > _EXACT * size).any()):
        return None
    moving = (part - part[:, :1]).abs().amax((0, 1)) > 1e-12 * size
    speeds: Tensor = torch.where(moving, cosine.clamp(-1, 1).arccos(), torch.zeros_like(cosine))
    return speeds


def _lag(nodes: list[Node], attention: Attention, product: Node) -> int:
    """Find by how much rotation shifts keys against queries; 0 also where that cannot be told."""
    call, width = attention.call, attention.width
    sides = [attention.product.sources.get((place, 0)) for place in factors(attention.product)]
    plain, scale = [], 1.0
    for side in sides:
        projection, factor, _ = back_to_projection(call, side) if side is not None else (None, 1, 0)
        if projection is None:
            return 0
        value = nodes[projection.number].value
        plain.append(value.reshape(-1, value.shape[-1])[0])
        scale *= factor
    left, right = (part.reshape(-1, width) if part.numel() % width == 0 else part for part in plain)
    maps = product.value if product.value.ndim == 3 else product.value[None]
    heads = len(maps) // call.inputs[0].shape[0]
    if left.ndim != 2 or right.ndim != 2 or heads % len(left) or heads % len(right):
        return 0
    left, right = (part.repeat_interleave(heads // len(part), 0) for part in (left, right))
    meant = scale * (left * right).sum(-1)
    tokens = maps.shape[-1]
    for lag in sorted(range(1 - tokens, tokens), key=abs):
        line = maps[:heads].diagonal(lag, -2, -1)
        if bool(((line - meant[:, None]).abs() < 1e-9 * (1 + meant.abs()[:, None])).all()):
            return lag if attention.keys_are_left else -lag
    return 0


def _listed(speeds: Tensor) -> str:
    several = sorted({round(f, 4) for f in speeds.tolist() if f > 0}, reverse=True)
    return ", ".join(f"{f:.4g}" for f in several[:3])
