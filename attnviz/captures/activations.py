"""What a pass had inside its attention layers, kept to be put into another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attnviz.attention.donors import mixed, written
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.source import Kept, Rows


class Activations:
    """An observer of queries, keys, values, weights and heads' outputs, as donors take them.

    Attributes:
        values: by part and layer: q [B, H, T, d], k [B, G, S, d], v [B, G, S, d_v],
            pattern [B, H, T, S], z, gate and ``written`` [B, H, T, d_v], the last being z as W_O
            gets it; a gate of layers that have one. Of the pass itself, gradients and all, but for
            pattern, z and what is written, which are made of what observers see.
    """

    def __init__(self, parts: Collection[Kept], sites: Collection[Site]) -> None:
        self._parts, self._sites = frozenset(parts), frozenset(sites)
        self._blocks: dict[tuple[Kept, Site], list[Array]] = {}
        self._terms: dict[Kept, dict[Site, Array]] = {"q": {}, "k": {}, "v": {}}

    def observe(self, rows: Rows) -> None:
        """Keep a block."""
        if rows.site not in self._sites:
            return
        for part in self._parts & self._terms.keys():
            assert rows.terms is not None, "every backend that takes donors hands its terms out"
            own = {"q": rows.terms.query, "k": rows.terms.key, "v": rows.terms.value}
            self._terms[part][rows.site] = own[part]
        if self._parts & {"z", "written"}:
            z = mixed(rows)
            outputs: dict[Kept, Array] = {"z": z, "written": written(rows, z)}
            for part in self._parts & outputs.keys():
                self._blocks.setdefault((part, rows.site), []).append(outputs[part])
        if "gate" in self._parts and rows.opened is not None:
            gate = arrays.of(rows.opened).cast(rows.opened, rows.weights.dtype)
            self._blocks.setdefault(("gate", rows.site), []).append(gate)
        if "pattern" in self._parts:
            assert rows.terms is not None
            keys = rows.terms.key.shape[2]
            shape = (*rows.weights.shape[:3], keys)
            whole = arrays.of(rows.weights).zeros(shape, rows.weights.dtype, rows.weights)
            whole[..., rows.key_start : rows.key_start + rows.weights.shape[3]] = rows.weights
            self._blocks.setdefault(("pattern", rows.site), []).append(whole)

    @property
    def values(self) -> Mapping[Kept, Mapping[Site, Array]]:
        """See the class."""
        tensors: dict[Kept, dict[Site, Array]] = {
            part: {site: arrays.of(x).outside(x) for site, x in of.items()}
            for part, of in self._terms.items()
            if part in self._parts
        }  # what was made in inference mode cannot stand beside gradients
        for (part, site), blocks in self._blocks.items():
            tensors.setdefault(part, {})[site] = arrays.of(blocks[0]).xp.concatenate(blocks, 2)
        return tensors
