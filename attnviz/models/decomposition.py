"""Queries or keys of a head as sums over what was written to the residual stream.

What :mod:`attnviz.models.tracing` has listened to is differentiated: a query is Σ_a J_a a over the
variables a, with J_a = ∂q/∂a and every normalization's σ held. Of the matrix that makes queries and
keys, and of every W_O, the product is taken apart by hand, so that a head's part is J z_h W_O^h.
The pass that is taken apart is the first in which they add up: one whose every matrix product is a
variable, else, where layers add what is no such product (experts behind a router, a state), one
with the parts of layers held whole.

Notation: P positions that are asked about, d width of a query, N origins, D width of the stream.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import Writes, mixing_ratios, transformed
from attnviz.core import arrays
from attnviz.core.arrays import Array, fetched, to_numpy
from attnviz.core.capture import blocked_by
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import Quantity
from attnviz.core.reasons import ORIGIN_KINDS, HeadOrigins, HeadTerms, Origin
from attnviz.core.scores import Mixing
from attnviz.core.source import Rows, Source, Terms
from attnviz.core.threads import one_blas_thread
from attnviz.errors import ModelError
from attnviz.models.traced import StreamPart, TracedPass


class QKRecorder:
    """Watches one text go by, and keeps what the weights of some heads are made of."""

    def __init__(self, source: Source, inputs: Inputs, heads: Collection[Head]) -> None:
        self._source, self._inputs, self._heads = source, inputs, heads
        self._terms: dict[Head, HeadTerms] = {}

    def observe(self, rows: Rows) -> None:
        """Take what the first block of a layer has, which is that of the whole layer."""
        if rows.start or rows.terms is None:
            return
        for head in self._heads:
            if head.site == rows.site:
                self._terms[head] = self._opened(head, rows, rows.terms)

    def result(self) -> Mapping[Head, HeadTerms]:
        """Return what was kept of every head."""
        missing = [head for head in self._heads if head not in self._terms]
        if missing:
            raise ModelError(
                "the queries and keys of {} of {} cannot be had: its scores are more than one "
                "product of these, a scale and a bias by position",
                missing[0].qualified, self._source.info.model, remedy="leave out {why}", why=...,
            )  # fmt: skip
        readings = {head: self._source.reading(head.site) for head in self._heads}
        return {
            head: replace(self._terms[head], turned=r.turned if r.query is not None else None)
            for head, r in readings.items()
        }

    def _opened(self, head: Head, rows: Rows, terms: Terms) -> HeadTerms:
        sides = self._inputs.sides[head.site.kind]
        length, keys = len(sides.queries), len(sides.keys)
        group = head.index * terms.key.shape[1] // terms.query.shape[1]
        bias = _bias(terms, head.index, length, keys)
        lib = arrays.of(rows.weights)
        value = lib.cast(terms.value[:1, :, :keys], rows.weights.dtype)
        projection = self._source.output(head.site).converted(value)
        fixed = projection.weight is not None and not projection.held  # else another by query
        if not fixed or projection.weight is None:
            vectors = value[:, group]  # [1, S, d_v]
        else:
            vectors = transformed(value, projection.weight, head.index)
        norms = lib.xp.linalg.norm(vectors[0], None, -1)  # [S]
        if rows.gate is not None:
            share = rows.gate.share
            norms = norms * abs((share if share.ndim == 1 else share[0])[head.index])
        return HeadTerms(
            _array(terms.query[0, head.index, :length]),
            _array(terms.key[0, group, :keys]),
            terms.scale,
            _array(norms),
            fixed,
            terms.softcap,
            bias,
            None if terms.sinks is None else float(terms.sinks[head.index]),
        )


def _bias(terms: Terms, head: int, queries: int, keys: int) -> NDArray[np.floating] | None:
    """Give what is added to a head's scores, [T, S], 0 where that blocks; None for nothing."""
    total = np.zeros((queries, keys))
    for bias in terms.biases:
        xp = arrays.of(bias).xp
        full = xp.broadcast_to(bias, (*terms.query.shape[:3], terms.key.shape[2]))
        blocked = arrays.to_numpy(blocked_by(full[0, head, :queries, :keys]))
        total += np.where(blocked, 0.0, _array(full[0, head, :queries, :keys]))
    return total if total.any() else None


def _array(x: Array) -> NDArray[np.floating]:
    """Return a copy in float32, or float64 where it is that."""
    return arrays.to_numpy(arrays.of(x).copied(_exact(x)))


_FEW_ROWS = 8  # a table of embeddings with fewer rows than that is of segments

_SAME, _SAME_LOW = 1e-5, 2e-2
"""Largest difference of two tensors, relative to the largest number, that counts as none."""

_BYTES = 1 << 28  # of derivatives that are held at once


@dataclass(frozen=True, eq=False)
class Parts:
    """Queries or keys at some positions, by origin."""

    origins: tuple[Origin, ...]  # N, in the order in which they write
    values: Array  # [N, P, d] in float64
    places: tuple[int, ...]  # the positions
    derivatives: dict[Site, Array]  # of the heads' layers, [d, P, D], to what W_O gave


class Decomposition:
    """Knows which variable of a pass is what, and takes queries and keys apart."""

    def __init__(self, passed: TracedPass, source: Source) -> None:
        self._passed, self._source = passed, source
        self._sites: dict[int, Site] = {}  # of leaves that W_O gave
        for site, z in passed.outputs.items():
            leaf = self._projection(z)
            if leaf is not None:
                self._sites[leaf] = site
        sites = self._sites | {
            number: leaf.origin.layer
            for number, leaf in reversed([*enumerate(passed.leaves)])
            if leaf.origin is not None and leaf.origin.layer is not None
        }
        layers = dict.fromkeys([*passed.outputs, *sites.values()])
        self._order = sorted(layers, key=lambda site: _number(sites, site))
        self._widths = {leaf.width for n, leaf in enumerate(passed.leaves) if n in self._sites}

    def query(self, head: Head, positions: Sequence[int]) -> Parts:
        """Return a head's queries at some positions; ModelError where they cannot be followed."""
        return self._parts(self._checked(head).query, head.index, positions)

    def key(self, head: Head, positions: Sequence[int]) -> Parts:
        """Return a head's keys at some positions; ModelError where they cannot be followed."""
        terms = self._checked(head)
        index = head.index * terms.key.shape[1] // terms.query.shape[1]
        return self._parts(terms.key, index, positions)

    def written_before(self, head: Head) -> Sequence[Head]:
        """Return the heads of the layers that ran before a head's."""
        passed = list(self._passed.outputs)
        earlier = passed[: passed.index(head.site)] if head.site in passed else []
        return [
            Head(site, n) for site in earlier for n in range(self._passed.outputs[site].shape[1])
        ]

    def by_token(self, parts: Parts, head: Head, position: int) -> tuple[Array, Array]:
        """Return what an earlier head adds to a query or key through every token that it reads.

        Returns the earlier head's weights on the tokens, [S], and what it adds through each, [S,
        d].
        """
        number = next(n for n, site in self._sites.items() if site == head.site)
        weight = self._slices(self._passed.leaves[number], head.site)[head.index]  # [d_v, D]
        n = parts.places.index(position)
        weights = arrays.exact(self._passed.weights[head.site][head.index, position])
        values = arrays.exact(self._passed.values[head.site][head.index])
        if head.site in self._passed.passes:
            values = values * arrays.exact(self._passed.passes[head.site][position, head.index])
        derivatives = arrays.exact(parts.derivatives[head.site][:, n])
        toward = arrays.exact(weight) @ derivatives.T  # [d_v, d]
        return weights, weights[:, None] * (values @ toward)

    def _checked(self, head: Head) -> Terms:
        """Give a layer's terms; ModelError where a layer before hides what its heads write."""
        traced, passed = set(self._sites.values()), list(self._passed.outputs)
        if head.site not in self._passed.terms:
            raise ModelError(
                f"the queries and keys of {head.qualified} of {self._source.info.model} cannot be "
                "had: its scores are more than one product of these, a scale and a bias by position"
            )
        for site in passed[: passed.index(head.site)]:
            if site not in traced:
                raise ModelError(
                    f"what the heads of {site.kind} layer {site.layer} of "
                    f"{self._source.info.model} write cannot be told: no linear layer takes their "
                    "outputs as they are, nor can an ablated head be split"
                )
        return self._passed.terms[head.site]

    def _projection(self, z: Array) -> int | None:
        """Return the number of the leaf that the layer's W_O gave."""
        flat = z.reshape(len(z), -1)
        for number, leaf in enumerate(self._passed.leaves):
            if leaf.read is None or number in self._sites:
                continue
            read = arrays.of(leaf.read).detached(leaf.read)
            same_size = math.prod(read.shape) == math.prod(flat.shape)
            fits = read.shape[-1] == flat.shape[1] and same_size
            if fits and _close(read.reshape(flat.shape), flat):
                return number
        return None

    @one_blas_thread()
    def _parts(self, target: Array, index: int, positions: Sequence[int]) -> Parts:
        """Of [B, heads, T, d], of one text, one head's vectors at some positions."""
        rows, lib = list(positions), arrays.of(target)
        parts: dict[Origin, list[Array]] = {}
        held: dict[Site, list[Array]] = {}
        width, length = target.shape[-1], target.shape[2]
        size = target.itemsize * length * max(self._widths | {1})
        step = max(_BYTES // (4 * size), 1)
        for first in range(0, width, step):
            dims = range(first, min(first + step, width))
            grads = lib.zeros((len(dims), *target.shape), target.dtype, target)
            ones = np.eye(len(dims))[:, None]
            grads[:, 0, index, rows, first : dims.stop] = lib.asarray(ones, target.dtype, target)
            sums: dict[Origin, Array] = {}
            towards: dict[Site, Array] = {}
            for toward, leaves in self._reached(target, grads, rows, length, projected=True):
                for site in [self._sites[number] for number in leaves if number in self._sites]:
                    # latent attention reads a layer by two ways
                    towards[site] = towards[site] + toward if site in towards else toward
                for origin, part in self._pieces(toward, leaves, rows, length):
                    sums[origin] = sums[origin] + part if origin in sums else part
            for site, toward in towards.items():
                held.setdefault(site, []).append(toward)
            for origin, part in sums.items():
                parts.setdefault(origin, []).append(arrays.exact(part))
        order = sorted(parts, key=self._place)
        if not order:
            raise ModelError(
                f"{self._source.info.model} has nothing before this layer: no embedding of tokens, "
                "no heads and no MLP, so that there is nothing to split"
            )
        return Parts(
            tuple(order),
            lib.xp.stack([arrays.joined(parts[origin], 1) for origin in order]),
            tuple(positions),
            {site: arrays.joined(parts, 0) for site, parts in held.items()},
        )

    def _reached(
        self, target: Array, grads: Array, positions: list[int], tokens: int, *, projected: bool
    ) -> Iterator[tuple[Array, list[int]]]:
        """Which leaves a tensor depends on, and how.

        ``positions`` [P], the only positions at which they are not 0; yields: derivatives [m, P,
        width], and the numbers of the leaves whose they are; of a product that is taken apart
        further, -1 less its number for its bias.
        """
        leaves = self._passed.leaves
        alike: dict[tuple[int, tuple[int, ...]], tuple[Array, list[int]]] = {}
        lib = arrays.of(target)
        for number, toward in enumerate(self._passed.derivatives(target, grads)):
            if toward is None:
                continue
            leaf = leaves[number]
            key = (lib.address(toward), tuple(leaf.value.shape))
            if key not in alike:
                flat = leaf.by_token(toward, tokens)
                if flat is None:
                    raise ModelError(
                        f"what {self._source.info.model} adds to its residual stream is not one "
                        "vector a token, as that of experts computed in one product is not, so "
                        "that its scores cannot be split by source"
                    )
                alike[key] = (_exact(flat if len(positions) == tokens else flat[:, positions]), [])
            flat, numbers = alike[key]
            inside = projected or leaf.width not in self._widths
            if leaf.kind != "product" or not inside or number in self._sites:
                numbers.append(number)
                continue
            if leaf.bias is not None:
                numbers.append(-1 - number)
            assert leaf.read is not None
            assert leaf.weight is not None
            width = leaf.weight.shape[1]
            shape = (len(flat), math.prod(leaf.read.shape) // width, width)
            inner = lib.zeros(shape, leaf.weight.dtype, leaf.weight)
            largest = arrays.to_numpy(lib.xp.amax(abs(flat), (0, 1)))
            dims = np.flatnonzero(largest).tolist()  # one head's columns
            inner[:, positions] = lib.cast(flat[..., dims], leaf.weight.dtype) @ leaf.weight[dims]
            inner_grads = inner.reshape(len(flat), *leaf.read.shape)
            yield from self._reached(leaf.read, inner_grads, positions, tokens, projected=False)
        yield from (reached for reached in alike.values() if reached[1])

    def _pieces(
        self, toward: Array, leaves: Sequence[int], positions: list[int], tokens: int
    ) -> Iterator[tuple[Origin, Array]]:
        """Yield what leaves with the same derivatives add, by origin, [P, m]."""
        pairs = [row for number in leaves for row in self._written(number, positions, tokens)]
        rows = arrays.of(toward).xp.stack([row for _, row in pairs], 1)  # [P, n, width]
        parts = rows @ toward.swapaxes(0, 1).swapaxes(1, 2)  # [P, n, m]
        yield from ((origin, parts[:, n]) for n, (origin, _) in enumerate(pairs))

    def _written(
        self, number: int, positions: list[int], tokens: int
    ) -> Iterator[tuple[Origin, Array]]:
        """Yield the value of a leaf, by origin, [P, width]."""
        leaf = self._passed.leaves[max(number, -1 - number)]
        site, count = self._sites.get(number), len(positions)
        if number < 0:
            assert leaf.bias is not None
            yield Origin("bias"), _repeated(leaf.bias, count)
            return
        if site is None:
            rows = leaf.by_token(leaf.value, tokens)
            assert rows is not None
            rows = _exact(rows)
            yield self._origin(leaf, rows, number), rows[positions]
            return
        z = _exact(self._passed.outputs[site][positions])  # [P, H, d_v]
        heads = z.swapaxes(0, 1) @ _exact(self._slices(leaf, site))  # [H, P, D]
        for head, rows in enumerate(heads):
            yield Origin("head", head=Head(site, head)), rows
        if leaf.bias is not None:
            yield Origin("bias"), _repeated(leaf.bias, count)

    def _slices(self, leaf: StreamPart, site: Site) -> Array:
        """W_O by head, [H, d_v, D]."""
        assert leaf.weight is not None
        heads = self._passed.outputs[site].shape[1]
        return leaf.weight.T.reshape(heads, -1, leaf.width)

    def _origin(self, leaf: StreamPart, rows: Array, number: int) -> Origin:
        """Return what a leaf is that no W_O gave."""
        if leaf.origin is not None:
            return leaf.origin
        if leaf.table is not None:
            count = len(leaf.table)
            if count >= (self._source.vocab_size or count):
                return Origin("token")
            return Origin("segment" if count < _FEW_ROWS else "position")
        if leaf.kind == "added":
            constant = bool((rows == rows[:1]).all())
            return Origin("bias" if constant else "position")
        earlier = [n for n in self._sites if n < number]
        return Origin("mlp", layer=self._sites[max(earlier)]) if earlier else Origin("embedding")

    def _place(self, origin: Origin) -> tuple[int, int, int, int]:
        """Where an origin stands among the others: as they write, biases last."""
        site = origin.layer if origin.head is None else origin.head.site
        kind = ORIGIN_KINDS.index(origin.kind)
        if site is None:
            return (1 if origin.kind == "bias" else -1, 0, kind, 0)
        number = 0 if origin.head is None else origin.head.index
        return (0, self._order.index(site), kind, number)


def _number(sites: dict[int, Site], site: Site) -> int:
    return next((number for number, value in sites.items() if value == site), 1 << 30)


def _repeated(row: Array, count: int) -> Array:
    """[D] as [count, D]."""
    return arrays.of(row).xp.broadcast_to(_exact(row), (count, len(row)))


def _exact(x: Array) -> Array:
    """In float32, or float64 where it is that."""
    lib = arrays.of(x)
    return lib.detached(lib.cast(x, lib.float32) if lib.is_half(x) else x)


def _close(a: Array, b: Array) -> bool:
    """Whether two tensors are the same up to rounding."""
    tolerance = _SAME_LOW if arrays.of(a).is_half(a) else _SAME
    a, b = _exact(a), _exact(b)
    off, size = map(float, fetched([abs(a - b).max(), abs(b).max()]))
    return off <= tolerance * max(size, 1e-30)


class MixingObserver:
    """Adds up the mixing ratios of self-attention layers."""

    def __init__(self, source: Source, quantity: Quantity, batch: Sequence[Inputs]) -> None:
        self._source, self._quantity, self._batch = source, quantity, tuple(batch)
        self._sums: dict[Site, list[NDArray[Any]]] = {}

    @np.errstate(divide="ignore", invalid="ignore")  # rows at which nothing arrives
    def observe(self, rows: Rows) -> None:
        """Add one block of rows."""
        site = rows.site
        if site.kind == "cross":
            return
        norm = self._source.sublayer(site).norm if self._quantity.norm else None
        projection = self._source.output(site)
        writes = Writes.of(rows, projection, residual=self._quantity.residual, norm=norm)
        heads, layer = mixing_ratios(writes)
        looks = self._looks(rows, writes)
        present = self._counted(rows)[:, None]  # [B, 1, r]
        parts = [looks, looks.mean(1)[:, None], heads, layer[:, None]]
        ratios = np.concatenate(fetched(parts), 1)
        finite = present & np.isfinite(ratios)  # [B, 2 H + 2, r]
        total = np.where(finite, ratios, 0).sum((0, 2), dtype=np.float64)
        sums = [total, finite.sum((0, 2)), present.sum()]
        previous = self._sums.get(site, [np.zeros_like(part) for part in sums])
        self._sums[site] = [a + b for a, b in zip(previous, sums, strict=True)]

    def result(self) -> tuple[Mixing, ...]:
        """Return the means, in the order of the layers."""
        mixings = []
        for site, (sums, counts, rows) in self._sums.items():
            pairs = zip(sums.tolist(), counts.tolist(), strict=True)
            means = [total / count if count else None for total, count in pairs]
            heads = len(means) // 2 - 1
            weights, norms = means[:heads], means[heads + 1 : -1]
            mixing = Mixing(site, int(rows), tuple(weights), tuple(norms), means[heads], means[-1])
            mixings.append(mixing)
        return tuple(mixings)

    def _looks(self, rows: Rows, writes: Writes) -> Array:
        """[B, H, r], the share of each row's weight on other keys than its own."""
        total = rows.weights.sum(-1)
        lib = arrays.of(total)
        diagonal: Array = lib.xp.zeros_like(total)
        if writes.diagonal is not None:
            queries, columns = writes.diagonal
            positions = lib.arange(queries.start, queries.stop, lib.int64, columns)
            diagonal[:, :, queries] = rows.weights[:, :, positions, columns]
        return 1 - diagonal / total

    def _counted(self, rows: Rows) -> NDArray[np.bool_]:
        """Bool [B, r]: real queries with two keys or more to attend to."""
        lengths = np.array([len(item.sides[rows.site.kind].queries) for item in self._batch])
        stop = rows.start + rows.weights.shape[2]
        real: NDArray[np.bool_] = np.arange(rows.start, stop) < lengths[:, None]
        choices = to_numpy(rows.mask).sum(-1)
        several: NDArray[np.bool_] = choices.max(1) >= 2
        return real & several


_KEPT = 1e-3  # how far sums of sources may be from queries and keys that a page explains

MOST = 1 << 21
"""Numbers of all sources of one head that are kept; of longer texts none are."""


def follow(source: Source, inputs: Inputs, *, held: bool = False) -> TracedPass:
    """Run one text with its variables."""
    traced = None if held else getattr(source, "traced", None)
    passed: TracedPass | None = None if traced is None else traced(inputs)
    if passed is not None:
        return passed
    from attnviz.models.tracing import listened

    return listened(source, inputs, stream_parts(source) if held else ())


def stream_parts(source: Source) -> Sequence[Any]:
    """Return what can be held whole, see :class:`~attnviz.models.hooked.source.Hooked`."""
    return getattr(source, "stream_parts", ())


def decompositions(
    source: Source, inputs: Inputs, head: Head, passes: dict[bool, Decomposition] | None = None
) -> Iterator[Decomposition]:
    """Give the ways to take a head's queries and keys apart, the first that adds up is to be taken.

    First by every matrix product; then, where layers add what is no such product (experts behind
    a router, a state), with the parts of layers held whole. ``passes``: those of this text that
    other heads have asked for, by whether parts are held whole; gets those that are made.
    """
    check_layers(source, head)
    passes = {} if passes is None else passes
    ways = [False] * (not _mixed_before(source, head)) + [True] * bool(stream_parts(source))
    for held in ways:
        if held not in passes:
            passes[held] = Decomposition(follow(source, inputs, held=held), source)
        yield passes[held]


def _mixed_before(source: Source, head: Head) -> bool:
    """Whether a layer before a head's mixes tokens otherwise than by attention."""
    mixers = [origin.layer for origin, _ in stream_parts(source) if origin.kind == "mixer"]
    return not _attend_before(source, head) or any(
        layer is not None and layer.layer < head.layer for layer in mixers
    )


def _attend_before(source: Source, head: Head) -> bool:
    """Whether all layers before a head's have attention."""
    return all(source.layout.heads[head.site.kind][: head.layer])


def check_layers(source: Source, head: Head) -> None:
    """Refuse, before anything runs, a head behind layers without attention.

    What these carry from token to token (a state, a convolution) is no sum over tokens; listening
    to them takes minutes. They can be held whole where the residual stream adds up.
    """
    if not _attend_before(source, head) and not stream_parts(source):
        raise ModelError(
            f"what the queries and keys of {source.layout.name(head)} of {source.info.model} are "
            f"made of cannot be told: {source.no_sum}"
        )


def with_origins(
    source: Source, inputs: Inputs, terms: Mapping[Head, HeadTerms]
) -> dict[Head, HeadTerms]:
    """Heads' queries and keys with what they were made of, where that adds up to them."""
    explained: dict[Head, HeadTerms] = {}
    for held in (False, True):
        todo = [h for h in terms if h not in explained and (held or not _mixed_before(source, h))]
        if not todo or (held and not stream_parts(source)):
            continue
        with contextlib.suppress(ModelError):
            anatomist = Decomposition(follow(source, inputs, held=held), source)
            for head in todo:
                vectors = _with_origins(anatomist, head, terms[head])
                if vectors is not None:
                    explained[head] = vectors
    return dict(terms) | explained


def _with_origins(anatomist: Decomposition, head: Head, terms: HeadTerms) -> HeadTerms | None:
    """Get the same with origins, without where there are too many numbers; None for no such sum."""
    count = 4 + len(anatomist.written_before(head))
    if count * (terms.query.size + terms.key.size) > MOST:
        return terms
    try:
        query = anatomist.query(head, range(len(terms.query)))
        key = anatomist.key(head, range(len(terms.key)))
    except ModelError:
        return None
    parts = [arrays.to_numpy(query.values), arrays.to_numpy(key.values)]
    for vectors, part in zip((terms.query, terms.key), parts, strict=True):
        if np.abs(part.sum(0) - vectors).max() > _KEPT * max(1.0, float(np.abs(vectors).max())):
            return None
    return replace(terms, origins=HeadOrigins(query.origins, parts[0], key.origins, parts[1]))
