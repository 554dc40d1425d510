"""What a native model adds to its residual stream, and the derivatives of queries and keys to that.

Every normalization's σ is held, so that each step back is a matrix; see
:mod:`attnviz.models.traced`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.models.native.network import Network, Norm
from attnviz.models.traced import StreamPart, TracedPass


@dataclass(frozen=True, eq=False)
class _Step:
    """What was done to the stream: a part added, or the whole normalized."""

    part: int  # the number of the leaf that was added; of a normalization, that of its β
    norm: Norm | None = None  # the normalization
    entered: Array | None = None  # [1, T, D], what was normalized


@dataclass
class NativePass(TracedPass):
    """A pass whose steps are known; see :func:`traced`."""

    leaves: list[StreamPart] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)  # of the stream, in order
    # by layer, how many of the steps come before it reads, with its own normalization
    before: dict[Site, tuple[_Step, ...]] = field(default_factory=dict)
    # by layer, the numbers of the leaves that make queries, keys and values
    projections: dict[Site, tuple[int, ...]] = field(default_factory=dict)

    def keep(self, leaf: StreamPart) -> int:
        """The number of one more leaf."""
        self.leaves.append(leaf)
        return len(self.leaves) - 1

    def normalized(self, norm: Norm, x: Array) -> tuple[_Step, Array]:
        """The step, with a leaf for β, and what it gives."""
        beta = arrays.of(x).xp.broadcast_to(norm.bias, x.shape)
        return _Step(self.keep(StreamPart("added", beta)), norm, x), norm(x)

    def derivatives(self, target: Array, towards: Array) -> Sequence[Array | None]:
        """See :class:`~attnviz.models.traced.TracedPass`."""
        reached: list[Array | None] = [None] * len(self.leaves)
        for site, terms in self.terms.items():
            for side, vectors in enumerate((terms.query, terms.key)):
                if vectors is target:
                    leaf, toward = self._projected(site, side, towards)
                    reached[leaf] = toward
                    return reached
            if self.leaves[self.projections[site][0]].read is target:
                for part, toward in _back(self.before[site], towards):
                    reached[part] = toward
                return reached
        raise ValueError("derivatives are of a layer's queries or keys, or of what it reads")

    def _projected(self, site: Site, side: int, towards: Array) -> tuple[int, Array]:
        """The leaf that makes queries (side 0) or keys (1), and the derivatives to it.

        ``towards`` [m, 1, H, T, d].
        """
        leaves = self.projections[site]
        leaf = leaves[side if len(leaves) > 1 else 0]
        count, _, _, tokens, _ = towards.shape
        flat = towards.swapaxes(2, 3).reshape(count, 1, tokens, -1)
        if len(leaves) > 1:
            return leaf, flat
        width, on = flat.shape[-1], arrays.of(flat)
        whole = on.zeros((*flat.shape[:3], self.leaves[leaf].width), flat.dtype, flat)
        whole[..., side * width : (side + 1) * width] = flat
        return leaf, whole


def _back(steps: Sequence[_Step], toward: Array) -> Iterator[tuple[int, Array]]:
    """Every leaf of the steps, the last first, with the derivatives to it."""
    for step in reversed(steps):
        yield step.part, toward
        if step.norm is not None and step.entered is not None:
            xp, x = arrays.of(toward).xp, step.entered
            centred = x - x.mean(-1)[..., None]
            deviation = xp.sqrt(xp.square(centred).mean(-1) + step.norm.eps)
            toward = toward * (step.norm.weight / deviation[..., None])
            toward = toward - toward.mean(-1)[..., None]


def fill(
    passed: NativePass,
    network: Network,
    embedded: Sequence[tuple[Array, Array]],
    mlps: Sequence[Array],
) -> None:
    """Give a pass of one text its leaves and steps.

    ``embedded``: the tables, and what each added at the beginning, [1, T, D] or [T, D]; ``mlps``
    [1, T, D] by layer, what the feed-forward parts added.
    """
    family, steps = network.config.family, passed.steps
    x = embedded[0][1]
    on = arrays.of(x)
    for number, (table, taken) in enumerate(embedded):
        rows = taken.reshape(x.shape)  # of positions the same for every text
        steps.append(_Step(passed.keep(StreamPart("table", rows, table=table))))
        x = x + rows if number else x
    if not family.pre_norm:
        step, x = passed.normalized(network.norm, x)
        steps.append(step)
    for number, layer in enumerate(network.layers):
        site = Site(family.kind, number)
        own: tuple[_Step, ...] = ()
        h = x
        if family.pre_norm:
            step, h = passed.normalized(layer.norm_1, x)
            own = (step,)
        passed.before[site] = (*steps, *own)
        passed.projections[site] = tuple(
            passed.keep(StreamPart("product", affine(h), None, h, affine.weight, affine.bias))
            for affine in layer.project
        )
        z = passed.outputs[site].reshape(1, h.shape[1], -1)
        wrote = layer.out(on.cast(z, layer.out.weight.dtype))  # half the precision it is kept in
        out = StreamPart("product", wrote, None, z, layer.out.weight, layer.out.bias)
        steps.append(_Step(passed.keep(out)))
        x = x + wrote
        if not family.pre_norm:
            step, x = passed.normalized(layer.norm_1, x)
            steps.append(step)
        steps.append(_Step(passed.keep(StreamPart("product", mlps[number]))))
        x = x + on.cast(mlps[number], x.dtype)
        if not family.pre_norm:
            step, x = passed.normalized(layer.norm_2, x)
            steps.append(step)
