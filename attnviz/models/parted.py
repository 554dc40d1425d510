"""Queries or keys of a head as sums over what was written to the residual stream.

What :mod:`attnviz.models.followed` has listened to is differentiated: a query is Σ_a J_a a over the
variables a, with J_a = ∂q/∂a and every normalization's σ held. Of the matrix that makes queries and
keys, and of every W_O, the product is taken apart by hand, so that a head's part is J z_h W_O^h.

Notation: P positions that are asked about, d width of a query, N origins, D width of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.core.heads import Head, Site
from attnviz.core.origins import ORIGIN_KINDS, Origin
from attnviz.errors import ModelError
from attnviz.models.followed import FollowedPass, Leaf

_FEW_ROWS = 8
"""A table of embeddings with fewer rows than that is of segments."""

_SAME, _SAME_LOW = 1e-5, 2e-2
"""Largest difference of two tensors, relative to the largest number, that counts as none."""

_BYTES = 1 << 28
"""Of derivatives that are held at once."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Queries or keys at some positions, by origin.

    Attributes:
        origins: N, in the order in which they write.
        values: [N, P, d] in float64.
        places: the positions.
        derivatives: of the heads' layers, [d, P, D], to what W_O gave.
    """

    origins: tuple[Origin, ...]
    values: Tensor
    places: tuple[int, ...]
    derivatives: dict[Site, Tensor]


class Anatomist:
    """Knows which variable of a pass is what, and takes queries and keys apart.

    Args:
        passed: a pass that was listened to.
        vocabulary: number of token ids.
    """

    def __init__(self, passed: FollowedPass, vocabulary: int | None) -> None:
        self._passed, self._vocabulary = passed, vocabulary
        self._sites: dict[int, Site] = {}  # of leaves that W_O gave
        for site, z in passed.outputs.items():
            found = self._projection(z)
            if found is not None:
                self._sites[found] = site
        self._order = sorted(passed.outputs, key=lambda site: _number(self._sites, site))
        self._widths = {leaf.width for n, leaf in enumerate(passed.leaves) if n in self._sites}

    def query(self, head: Head, places: Sequence[int]) -> Parts:
        """A head's queries at some positions."""
        return self._parts(self._passed.terms[head.site].query, head.index, places)

    def key(self, head: Head, places: Sequence[int]) -> Parts:
        """A head's keys at some positions."""
        terms = self._passed.terms[head.site]
        index = head.index * terms.key.shape[1] // terms.query.shape[1]
        return self._parts(terms.key, index, places)

    def by_token(self, parts: Parts, head: Head, place: int) -> tuple[Tensor, Tensor]:
        """What an earlier head adds to a query or key through every token that it reads.

        Args:
            parts: queries or keys.
            head: the earlier head.
            place: one of the positions of ``parts``.

        Returns:
            The earlier head's weights on the tokens, [S], and what it adds through each, [S, d].
        """
        number = next(n for n, site in self._sites.items() if site == head.site)
        weight = self._slices(self._passed.leaves[number], head.site)[head.index]  # [d_v, D]
        n = parts.places.index(place)
        seen = self._passed.weights[head.site][head.index, place].double()
        values = self._passed.values[head.site][head.index].double()
        toward = weight.double() @ parts.derivatives[head.site][:, n].t()  # [d_v, d]
        return seen, seen[:, None] * (values @ toward)

    def _projection(self, z: Tensor) -> int | None:
        """The number of the leaf that the layer's W_O gave."""
        flat = z.flatten(1)
        for number, leaf in enumerate(self._passed.leaves):
            if leaf.read is None or number in self._sites:
                continue
            read = leaf.read.detach()
            fits = read.shape[-1] == flat.shape[1] and read.numel() == flat.numel()
            if fits and _close(read.reshape(flat.shape), flat):
                return number
        return None

    def _parts(self, target: Tensor, index: int, places: Sequence[int]) -> Parts:
        """Of [B, heads, T, d], of one text, one head's vectors at some positions."""
        wanted = torch.tensor(list(places), device=target.device)
        found: dict[Origin, Tensor] = {}
        held: dict[Site, list[Tensor]] = {}
        width, length = target.shape[-1], target.shape[2]
        size = target.element_size() * length * max(self._widths | {1})
        step = max(_BYTES // (4 * size), 1)
        for first in range(0, width, step):
            dims = torch.arange(first, min(first + step, width), device=target.device)
            grads = target.new_zeros(len(dims), *target.shape)
            grads[torch.arange(len(dims))[:, None], 0, index, wanted, dims[:, None]] = 1.0
            for number, toward in self._reached(target, grads, wanted, projected=True):
                if number in self._sites:
                    held.setdefault(self._sites[number], []).append(toward)
                for origin, part in self._pieces(number, toward, wanted):
                    whole = found.setdefault(origin, part.new_zeros(len(places), width))
                    whole[:, first : first + len(dims)] += part
        order = sorted(found, key=self._place)
        return Parts(
            tuple(order),
            torch.stack([found[one] for one in order]),
            tuple(places),
            {site: torch.cat(parts) for site, parts in held.items()},
        )

    def _reached(
        self, target: Tensor, grads: Tensor, wanted: Tensor, *, projected: bool
    ) -> Iterator[tuple[int, Tensor]]:
        """Which leaves a tensor depends on, and how.

        Args:
            target: any tensor of the pass.
            grads: [m, ...], m derivatives to it.
            wanted: [P], the only positions at which they are not 0.
            projected: whether what is reached first comes from the matrix that makes queries.

        Yields:
            Number of the leaf and [m, P, width], float64.
        """
        leaves = self._passed.leaves
        for number, toward in enumerate(_derivatives(target, leaves, grads)):
            if toward is None:
                continue
            leaf = leaves[number]
            flat = toward.reshape(len(toward), -1, leaf.width)
            if flat.shape[1] <= int(wanted.max()):
                raise ModelError(
                    "what the model adds to its residual stream is not one vector a token, so that "
                    "its scores cannot be split by source"
                )
            flat = flat[:, wanted]
            inside = projected or leaf.width not in self._widths
            if leaf.kind != "product" or not inside or number in self._sites:
                yield number, flat.double()
                continue
            if leaf.bias is not None:
                yield -1 - number, flat.double()
            assert leaf.read is not None
            assert leaf.weight is not None
            back = flat.new_zeros(len(flat), leaf.read.shape.numel() // leaf.weight.shape[1],
                                  leaf.weight.shape[1], dtype=leaf.weight.dtype)  # fmt: skip
            back[:, wanted] = flat.to(leaf.weight.dtype) @ leaf.weight
            before = back.view(len(flat), *leaf.read.shape)
            yield from self._reached(leaf.read, before, wanted, projected=False)

    def _pieces(
        self, number: int, toward: Tensor, wanted: Tensor
    ) -> Iterator[tuple[Origin, Tensor]]:
        """What a leaf adds, by origin, [P, m]; a negative number stands for a product's bias."""
        if number < 0:
            bias = self._passed.leaves[-1 - number].bias
            assert bias is not None
            yield Origin("bias"), torch.einsum("mpc,c->pm", toward, bias.double())
            return
        leaf, site = self._passed.leaves[number], self._sites.get(number)
        if site is None:
            part = torch.einsum("mpc,pc->pm", toward, leaf.rows()[wanted])
            yield self._origin(number), part
            return
        z = self._passed.outputs[site][wanted].double()  # [P, H, d_v]
        weight = self._slices(leaf, site).double()
        written = torch.einsum("phv,hvc->phc", z, weight)
        parts = torch.einsum("mpc,phc->hpm", toward, written)
        for head, part in enumerate(parts):
            yield Origin("head", head=Head(site, head)), part
        if leaf.bias is not None:
            yield Origin("bias"), torch.einsum("mpc,c->pm", toward, leaf.bias.double())

    def _slices(self, leaf: Leaf, site: Site) -> Tensor:
        """W_O by head, [H, d_v, D]."""
        assert leaf.weight is not None
        heads = self._passed.outputs[site].shape[1]
        return leaf.weight.t().reshape(heads, -1, leaf.width)

    def _origin(self, number: int) -> Origin:
        """What a leaf is that no W_O gave."""
        leaf = self._passed.leaves[number]
        if leaf.kind == "table":
            assert leaf.table is not None
            rows = len(leaf.table)
            if self._vocabulary is not None and rows >= self._vocabulary:
                return Origin("token")
            return Origin("segment" if rows < _FEW_ROWS else "position")
        if leaf.kind == "added":
            rows_ = leaf.rows()
            same = bool((rows_ == rows_[:1]).all())
            return Origin("bias" if same else "position")
        before = [n for n in self._sites if n < number]
        return Origin("mlp", layer=self._sites[max(before)]) if before else Origin("embedding")

    def _place(self, origin: Origin) -> tuple[int, int, int, int]:
        """Where an origin stands among the others: as they write, biases last."""
        site = origin.layer if origin.head is None else origin.head.site
        kind = ORIGIN_KINDS.index(origin.kind)
        if site is None:
            return (1 if origin.kind == "bias" else -1, 0, kind, 0)
        number = 0 if origin.head is None else origin.head.index
        return (0, self._order.index(site), kind, number)


def _number(sites: dict[int, Site], site: Site) -> int:
    return next((number for number, one in sites.items() if one == site), 1 << 30)


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same up to rounding."""
    tolerance = _SAME_LOW if a.dtype in (torch.float16, torch.bfloat16) else _SAME
    a, b = a.float(), b.float()
    return bool((a - b).abs().max() <= tolerance * b.abs().max().clamp_min(1e-30))


def _derivatives(target: Tensor, leaves: Sequence[Leaf], grads: Tensor) -> Sequence[Tensor | None]:
    if not target.requires_grad or not leaves:
        return [None] * len(leaves)
    values = [leaf.value for leaf in leaves]
    with torch.enable_grad():
        return torch.autograd.grad(
            target, values, grads, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
