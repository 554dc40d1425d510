"""What was found in another tool's format, on its way to a capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.models import arrays

Layers = Mapping[int, Any]
"""An array for each layer that was recorded, by its number."""

UNNAMED = "The tokens are not recorded, so positions are shown as numbers."


@dataclass(frozen=True)
class Imported:
    """Attention in another tool's format.

    Attributes:
        format: what it is, in words: ``a TransformerLens cache``.
        layers: [heads, queries, keys] or a batch of that, by kind of layer and number; None for a
            single stack that does not say of which kind it is.
        tokens: of the queries; None where they are not recorded.
        source_tokens: of the keys of cross-attention.
        notes: sentences that the reader must not miss.
        complete: whether all queries are there; else rows may be empty.
    """

    format: str
    layers: Mapping[SiteKind | None, Layers]
    tokens: Tokens | None = None
    source_tokens: Tokens | None = None
    notes: tuple[str, ...] = ()

    def items(self) -> int:
        """How many items the batch has; 1 where it is none."""
        first = next(iter(next(iter(self.layers.values())).values()))
        return len(first) if first.ndim == 4 else 1

    def capture(
        self,
        name: str = "",
        *,
        tokens: Tokens | None = None,
        source_tokens: Tokens | None = None,
        item: int | None = None,
        kind: str | None = None,
        sinks: bool = False,
    ) -> Capture:
        """Check and believe it.

        Args:
            name: of its file.
            tokens: in place of its own, or where it has none; ``source_tokens`` likewise.
            source_tokens: see there.
            item: which item of a batch.
            kind: of layers that do not say it.
            sinks: rows may sum to less than 1.

        Raises:
            InputError: maps that do not fit the tokens or are no distributions; UsageError: an
                item that is not there.
        """
        own, other, notes = tokens or self.tokens, source_tokens or self.source_tokens, self.notes
        sizes = {k: next(iter(maps.values())).shape[-2:] for k, maps in self.layers.items()}
        if own is None:
            first = next((k for k in ("decoder", "cross", None, "encoder") if k in sizes), None)
            own, notes = _numbers(sizes[first][0]), (*notes, UNNAMED)
        if other is None and "cross" in sizes:
            other, notes = _numbers(sizes["cross"][1]), tuple(dict.fromkeys((*notes, UNNAMED)))
        given: Any
        listed = {k: [maps[n] for n in sorted(maps)] for k, maps in self.layers.items()}
        single = len(listed) == 1
        if single:
            ((said, given),) = listed.items()
            kind = said or kind
        else:
            given = {_name(k): maps for k, maps in listed.items()}
        made = arrays.from_arrays(
            given, own, other, item=item, kind=kind if single else None, sinks=sinks,
            model=f"{self.format} ({name})" if name else self.format,
        )  # fmt: skip
        inputs = replace(made.inputs, notes=(*made.inputs.notes, *notes))
        return self._numbered(replace(made, inputs=inputs))

    def _numbered(self, made: Capture) -> Capture:
        """The same under the layers' own numbers; a layer that was not recorded has no heads."""
        heads: dict[SiteKind, tuple[int, ...]] = {}
        renamed: dict[Site, Site] = {}
        for kind, counts in made.layout.heads.items():
            own = sorted(self.layers.get(kind) or self.layers[None])
            listed = [0] * (own[-1] + 1)
            for place, number in enumerate(own):
                listed[number] = counts[place]
                renamed[Site(kind, place)] = Site(kind, number)
            heads[kind] = tuple(listed)
        return replace(
            made,
            layout=Layout(heads),
            maps={renamed[site]: maps for site, maps in made.maps.items()},
            reach={renamed[site]: reach for site, reach in made.reach.items()},
        )


def _numbers(count: int) -> Tokens:
    return Tokens(tuple(str(number) for number in range(count)))


def _name(kind: SiteKind | None) -> str:
    """What a model's output calls the layers of a kind."""
    if kind is None:
        raise InputError(
            "some layers say whether they are an encoder's or a decoder's and others do not; give "
            "those of one kind"
        )
    return next(name for name, known in arrays.NAMES.items() if known == kind)
