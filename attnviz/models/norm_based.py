"""A model whose maps are what its heads write, in place of where they look.

:func:`norm_based` gives a source whose observers see norms of weighted values where they would see
weights, block by block as these: ‖α f(x)‖ of every head, or ‖Σ α f(x) + x‖ of every layer, with its
layer normalization or without (:mod:`attnviz.attention.contributions`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from attnviz.attention.contributions import (
    Writes,
    grams,
    head_norms,
    layer_norms,
    passed_norms,
    value_norms,
)
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import Quantity, check_attends, check_scored, quantity_named
from attnviz.core.source import PLAIN, ForwardRequest, Observer, Output, Rows, Source
from attnviz.errors import ModelError, UsageError


class OtherMaps(ABC):
    """A source with other maps; everything else is the model's own."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run the model; see :class:`~attnviz.core.source.Source`."""
        if not observers:
            return self._source.forward(batch, (), request)
        return self.watched(batch, observers, request)

    @abstractmethod
    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model, and tell the observers of the maps that take the place of weights."""


def norm_based(
    source: Source, quantity: str, beside: Sequence[Observer] = (), *, shares: bool
) -> Source:
    """Return the model with norms of what its heads or layers write in its maps."""
    spec = quantity_named(quantity)
    _check(source, quantity, spec)
    return cast("Source", _NormBased(source, spec, beside, shares=shares))


def _check(source: Source, quantity: str, spec: Quantity) -> None:
    """Refuse a quantity that cannot be computed of every layer."""
    name = source.info.model
    for site in source.layout.sites:
        if not source.layout.heads[site.kind][site.layer]:
            continue
        reason = source.output(site).reason
        around = source.sublayer(site) if spec.residual and not reason else None
        if around is not None and around.order is None:
            reason = around.reason
        if reason:
            raise ModelError(
                "{quantity} cannot be told of {} layer {} of {}: {}",
                site.kind, site.layer, name, reason, quantity=quantity,
            )  # fmt: skip
        if spec.norm and around is not None and around.order == "pre":
            raise UsageError(
                "{} normalizes before attention, which f(x) already includes, and not after it",
                name,
                remedy="use {quantity}",
                quantity="norm-residual",
            )


class _NormBased(OtherMaps):
    """A source with other maps; everything else is the model's own."""

    def __init__(
        self, source: Source, spec: Quantity, beside: Sequence[Observer], *, shares: bool
    ) -> None:
        super().__init__(source)
        self._spec, self._beside, self._shares = spec, beside, shares

    @property
    def layout(self) -> Layout:
        """The model's heads, or its layers."""
        layout = self._source.layout
        if not self._spec.layers:
            return layout
        heads = {kind: tuple(int(n > 0) for n in layout.heads[kind]) for kind in layout.kinds}
        return Layout(heads, whole=True, mixers=layout.mixers)

    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model; see :class:`~attnviz.models.norm_based.OtherMaps`."""
        weighing = NormObserver(self._source, self._spec, observers, shares=self._shares)
        request = replace(request, residuals=request.residuals or self._spec.residual)
        return self._source.forward(batch, [weighing, *self._beside], request)


class NormObserver:
    """Watches weights, and shows others what is written."""

    def __init__(
        self, source: Source, spec: Quantity, observers: Sequence[Observer], *, shares: bool
    ) -> None:
        self._source, self._spec, self._shares = source, spec, shares
        self._observers = observers
        self._columns = _Columns()

    def observe(self, rows: Rows) -> None:
        """Turn one block into the quantity and hand it on."""
        projection, xp = self._source.output(rows.site), arrays.of(rows.weights).xp
        if self._spec.layers:
            around = self._source.sublayer(rows.site)
            norm = around.norm if self._spec.norm else None
            writes = Writes.of(rows, projection, residual=True, norm=norm)
            shape = writes.norm
            if writes.passes is not None:
                weights, logits = passed_norms(writes)[:, None], None
            else:
                products = self._columns.of(rows, lambda v: grams(v, writes.matrix, shape), writes)
                weights, logits = layer_norms(writes, products)[:, None], None
        elif rows.passes is not None:
            weights, logits = head_norms(Writes.of(rows, projection)), None
        else:
            writes = Writes.of(rows, projection)
            norms = self._columns.of(
                rows, lambda v: value_norms(v, writes.matrix).swapaxes(1, 2), writes
            )
            norms = norms.swapaxes(1, 2)[:, :, None]  # [B, H, 1, s]
            weights, logits = writes.weights * norms, rows.logits
            if logits is not None:
                logits = logits + xp.log(norms.clip(xp.finfo(norms.dtype).tiny))
        if self._shares:
            total = weights.sum(-1)[..., None]
            weights /= xp.where(total > 0, total, 1)
        result = replace(
            rows, weights=weights, logits=logits if self._shares else None, sink=False,
            allowed=_joined(rows.allowed) if self._spec.layers else rows.allowed,
        )  # fmt: skip
        for observer in self._observers:
            observer.observe(result)


def _joined(allowed: Array | None) -> Array | None:
    """Return the keys that any head of a layer may attend to."""
    if allowed is None or allowed.ndim < 3:
        return allowed
    return allowed.any(-3)[..., None, :, :]


class _Columns:
    """Something about every key of a layer, computed once, as the blocks come to the keys."""

    def __init__(self) -> None:
        self._site: object = None
        self._first = 0
        self._computed: Array | None = None

    def of(self, rows: Rows, compute: Callable[[Array], Array], writes: Writes) -> Array:
        """Return the block's part, [B, s, ...].

        ``compute``: from values [B, G, n, d_v] to [B, n, ...].
        """
        keys = writes.values.shape[2]
        computed = self._computed if rows.site == self._site else None
        stop = -1 if computed is None else self._first + computed.shape[1]
        begins = rows.site != self._site or rows.start == 0
        if computed is None or begins or stop < rows.key_start or rows.key_start < self._first:
            self._site, self._first = rows.site, rows.key_start
            computed = compute(writes.values)
        elif stop < rows.key_start + keys:
            added = compute(writes.values[:, :, stop - rows.key_start :])
            computed = arrays.of(added).xp.concatenate([computed, added], 1)
        self._computed = computed
        first = rows.key_start - self._first
        return computed[:, first : first + keys]


def with_quantity(
    source: Source, quantity: str, *, shares: bool, beside: Sequence[Observer] = ()
) -> Source:
    """Return the model with another quantity in its maps."""
    spec = quantity_named(quantity)
    if quantity == "weights":
        check_attends(source.info.model, source.layout)
        return source
    if spec.ranks and shares:
        check_scored(quantity)
    if spec.signed:
        maps_of = getattr(source, "states" if spec.states else "indexed", None)
        if maps_of is None:
            layers = "linear attention and state-space layers"
            raise ModelError(
                "{quantity} is of {}, and {} has none",
                layers if spec.states else "sparse attention, whose indexers choose keys",
                source.info.model, quantity=quantity,
            )  # fmt: skip
        return cast("Source", maps_of(shares=shares) if spec.states else maps_of())
    check_attends(source.info.model, source.layout)
    return norm_based(source, quantity, beside, shares=shares)
