"""Attention maps of one input. Notation: H query heads, T query length, S key length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.key_mask import KeyMask
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.reasons import HeadTerms


@dataclass(frozen=True, eq=False)
class Capture:
    """Attention maps of one input, and where they came from.

    ``maps`` holds [H, T, S] float arrays by site, for the layers that were asked for; ``quantity``
    says of what, a name of :data:`attnviz.core.quantities.QUANTITIES`;
    ``empty_rows`` counts query rows that had no key to attend to (all zero); ``reach`` says which
    keys each query may attend to, for layers where that is known and not read off the weights;
    ``terms`` what the weights of some heads are made of, for those that were asked for;
    ``kept`` the heads of a layer, by index, where ``maps`` holds only some of them, in its order.
    """

    source: SourceInfo
    layout: Layout
    inputs: Inputs
    maps: Mapping[Site, NDArray[np.floating[Any]]]
    empty_rows: int = 0
    reach: Mapping[Site, KeyMask] = field(default_factory=dict)
    quantity: str = "weights"
    terms: Mapping[Head, HeadTerms] = field(default_factory=dict)
    kept: Mapping[Site, tuple[int, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = "" if self.quantity == "weights" else f", {self.quantity}"
        return f"<Capture {described(self.source, self.inputs, self.layout)}{what}>"

    def __getitem__(self, head: Head) -> NDArray[np.floating[Any]]:
        """The [T, S] map of one head."""
        return self.maps[head.site][self.place(head)]  # type: ignore[no-any-return]

    def indices(self, site: Site) -> Sequence[int]:
        """Which heads of a layer are held, in the order of its maps."""
        return self.kept.get(site) or range(len(self.maps[site]))

    def place(self, head: Head) -> int:
        """Where a head's map stands among those of its layer; ValueError where it is not held."""
        return self.indices(head.site).index(head.index)

    def holds(self, head: Head) -> bool:
        """Whether a head's map is held."""
        return head.site in self.maps and head.index in self.indices(head.site)

    def finite(self) -> Capture:
        """The same, rows that are NaN since no key is left to them all zero, as they are drawn."""
        import numpy as np

        if all(np.isfinite(maps).all() for maps in self.maps.values()):
            return self
        maps: dict[Site, NDArray[np.floating[Any]]] = {}
        empty = self.empty_rows
        for site, layer in self.maps.items():
            reach = self.reach.get(site)
            lost = np.isnan(layer)
            if reach is None:
                lost &= False
            else:
                lost &= ~np.asarray(reach.allowed(*layer.shape[1:]).any(-1))[..., None]
            maps[site] = np.where(lost, 0, layer)
            empty += int(lost.any((0, 2)).sum())
        return replace(self, maps=maps, empty_rows=empty)

    def sides(self, head: Head) -> Sides:
        """The tokens on the two axes of a head's map."""
        return self.inputs.sides[head.site.kind]


def described(source: SourceInfo, inputs: Inputs, layout: Layout) -> str:
    """Model, backend, tokens and layers, for the repr of what was made of them."""
    lengths = " + ".join(
        str(len(side.queries))
        if side.queries is side.keys
        else f"{len(side.queries)}×{len(side.keys)}"
        for side in inputs.sides.values()
    )
    layers = " + ".join(str(layout.layers(kind)) for kind in layout.kinds)
    sizes = f"{lengths} token{'s' * (lengths != '1')}, {layers} layer{'s' * (layers != '1')}"
    return f"{source.model}, {source.backend} backend, {sizes}"
