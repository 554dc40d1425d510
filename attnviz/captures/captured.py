"""Captures as :func:`attnviz.capture` returns them: heads by their names, weights explained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.reasons import Reason
from attnviz.drawing.renderable import printed
from attnviz.drawing.tables import NamedMap, frame, polars_frame, which_head
from attnviz.errors import SelectionError, UsageError, encodable, install
from attnviz.scoring.observe import allowed_keys
from attnviz.scoring.select import select


@dataclass(frozen=True, eq=False)
class Asked:
    """What a capture was made of, so that what needs the model can run it again."""

    prompt: Prompt  # what ran
    model: ModelSettings  # on which model, and where
    without: str | None = None  # the heads that were ablated; None for none


@dataclass(frozen=True, eq=False, repr=False)
class Captured(Capture):
    """A capture as :func:`attnviz.capture` returns it; ``asked`` is None for recorded attention."""

    asked: Asked | None = field(default=None, kw_only=True)

    def __getitem__(self, head: Head | str) -> NDArray[np.floating]:
        """Return a head's [T, S] map, by its name such as ``"4.11"``; SelectionError for none."""
        return super().__getitem__(self._head(head))

    def _head(self, head: Head | str) -> Head:
        """Return a head that the capture holds."""
        if isinstance(head, str):
            heads = select(head, self.layout)
            if len(heads) != 1:
                raise SelectionError(f"{head!r} are {len(heads)} heads; name one, such as '4.11'")
            head = heads[0]
        if not isinstance(head, Head):
            raise UsageError("a head's name such as '4.11' is needed, not {!r}", head)
        if not self.holds(head):
            raise SelectionError(
                f"the capture does not hold {self.layout.name(head)}; capture it again with a "
                "selection that does"
            )
        return head

    def why(self, head: Head | str, query: int, key: int) -> Why:
        """Why a head's weight is what it is: query, key, their products, the row's softmax."""
        return Why(**vars(reason(self, self._head(head), query, key)))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The text of each position; of the decoder where there are two sequences."""
        return self.inputs.sides[self.layout.kinds[-1]].queries.texts

    @property
    def source_tokens(self) -> tuple[str, ...]:
        """The text of each position that is attended to; the encoder's where there are two."""
        return self.inputs.sides[self.layout.kinds[-1]].keys.texts

    def named_maps(self) -> list[NamedMap]:
        """Every map that is held, masked where a key is not allowed, to be written."""
        maps = []
        for head in filter(self.holds, self.layout):
            weights = np.ma.array(self[head], mask=~allowed_keys(self, head))
            maps.append(NamedMap(head, self.layout.name(head), weights, self.sides(head)))
        return maps

    def to_pandas(self) -> Any:
        """Return a tidy ``pandas.DataFrame``: a row for each head, query and key that it may see.

        Its columns are head, layer, index, query and key (positions from 0), query_token,
        key_token, and the weight under the name of what the maps are of.
        """
        return frame(self._tidy())

    def to_polars(self) -> Any:
        """Return the same as a ``polars.DataFrame``; UsageError where polars is not installed."""
        return polars_frame(self._tidy())

    def _tidy(self) -> dict[str, Any]:
        """Columns with a row for each weight."""
        parts: dict[str, list[Any]] = {}
        for head in self.layout:
            if not self.holds(head):
                continue
            weights, sides = self[head], self.sides(head)
            queries, keys = (
                np.array(list(map(encodable, tokens.texts)), object)
                for tokens in (sides.queries, sides.keys)
            )
            rows, columns = allowed_keys(self, head).nonzero()
            count = len(rows)
            values = {
                **{name: [value] * count for name, value in which_head(self.layout, head).items()},
                "query": rows,
                "key": columns,
                "query_token": queries[rows],
                "key_token": keys[columns],
                self.quantity.removesuffix("s"): weights[rows, columns],
            }
            for name, column in values.items():
                parts.setdefault(name, []).append(column)
        return {name: np.concatenate(columns) for name, columns in parts.items()}

    def to_xarray(self, kind: str | None = None) -> Any:
        """Return the maps as an ``xarray.DataArray`` with dimensions head, query and key."""
        try:
            import xarray
        except ImportError:
            raise UsageError(
                f"xarray is not installed; {install('attnviz[tables]')}, or use to_pandas()"
            ) from None
        kinds = list(dict.fromkeys(site.kind for site in self.maps))
        if kind not in kinds and (kind is not None or len(kinds) > 1):
            raise UsageError("{kind} takes one of {}", ", ".join(kinds), kind=kind or ...)
        heads = [h for h in self.layout if self.holds(h) and h.site.kind == (kind or kinds[0])]
        sides = self.sides(heads[0])
        return xarray.DataArray(
            np.stack([self[head] for head in heads]),
            dims=("head", "query", "key"),
            coords={
                "head": [self.layout.name(head) for head in heads],
                "query_token": ("query", list(sides.queries.texts)),
                "key_token": ("key", list(sides.keys.texts)),
            },
            name=self.quantity,
        )

    def _repr_html_(self) -> str:
        from attnviz.drawing import html

        facts = {"model": self.source.model, "backend": self.source.backend}
        facts |= {"exactness": self.source.exactness, "heads": str(len(self.layout))}
        return html.facts(facts | {"tokens": " ".join(self.tokens), "capture": repr(self)})


def captured(capture: Capture) -> Captured:
    """Return a capture with all that :class:`Captured` adds."""
    return Captured(**{name: getattr(capture, name) for name in capture.__dataclass_fields__})


def only(capture: Capture, heads: Collection[Head]) -> Capture:
    """Return the same capture with some of the heads that it holds."""
    maps, held = {}, {}
    for site in capture.maps:
        indices = [i for i in capture.indices(site) if Head(site, i) in heads]
        if not indices:
            continue
        places = [capture.place(Head(site, i)) for i in indices]
        maps[site] = capture.maps[site][places]
        if len(indices) < capture.layout.heads[site.kind][site.layer]:
            held[site] = tuple(indices)
    reach = {}
    for site, mask in capture.reach.items():
        reach[site] = mask
        if site in maps and mask.bits is not None and len(mask.bits) > 1:
            places = [capture.place(Head(site, i)) for i in held.get(site, capture.indices(site))]
            reach[site] = replace(mask, bits=mask.bits[places])
    return replace(capture, maps=maps, kept=held, reach=reach)


def capture_path(path: Path) -> None:
    """UsageError for a file that attention cannot be written to."""
    from attnviz.models.recorded.format import SUFFIXES

    files.check_suffix(path, (*SUFFIXES, ".csv", ".json"))


def notes(inputs: Inputs, empty_rows: int = 0) -> tuple[str, ...]:
    """Return what was cut or left out, and rows without a key."""
    lines = list(inputs.notes)
    if empty_rows:
        rows = "row has" if empty_rows == 1 else "rows have"
        lines.append(f"{empty_rows} query {rows} no key to attend to: their weights are all zero.")
    return tuple(lines)


def asked(why: str | None, visible: Collection[Head], layout: Layout) -> tuple[Head, ...]:
    """Return the heads whose queries and keys are to be kept."""
    if why is None:
        return ()
    if layout.whole:
        raise UsageError("{why} explains the weights of single heads, not of layers", why=why)
    chosen = select(why, layout)
    missing = [layout.name(head) for head in chosen if head not in visible]
    if missing:
        raise SelectionError(
            "{why} asks about {}, which {select} leaves out", missing[0], why=why, select=...
        )
    return chosen


def check_terms(capture: Capture, why: str | None) -> None:
    """UsageError where a capture does not hold the queries and keys that are wanted."""
    if why is not None:
        for head in select(why, capture.layout):
            if head not in capture.terms:
                raise unknown(capture, head)


def unknown(capture: Capture, head: Head) -> UsageError:
    """Return what to say of a head whose queries and keys a capture does not hold."""
    name = capture.layout.name(head)
    if capture.source.backend == "recorded":
        return UsageError(
            "the queries and keys of {} are not known: recorded attention has none; run the "
            "model itself",
            name,
        )
    return UsageError(
        "the queries and keys of {} were not kept; capture the text again with {why}",
        name,
        why=name,
    )


class Why(Reason):
    """One weight taken apart, as :meth:`~attnviz.captures.captured.Captured.why` returns it."""

    def to_records(self) -> list[dict[str, Any]]:
        """Return a row a dimension, the largest product first."""
        return Reason.to_records(self)

    def to_pandas(self) -> Any:
        """Return the same as a ``pandas.DataFrame``; UsageError where pandas is not installed."""
        return frame(self.to_records())

    def __str__(self) -> str:
        """Return the steps from query and key to the weight and what is written with it."""
        from attnviz.drawing import reasons

        return printed(*reasons.parts(self))

    def __repr__(self) -> str:
        return f"<Why {self.head}, {self.query} to {self.key}: {self.weight:.4f}>"


def reason(capture: Capture, head: Head, query: int, key: int) -> Reason:
    """One weight of a capture, taken apart."""
    if head not in capture.terms:
        raise unknown(capture, head)
    sides = capture.sides(head)
    queries, keys = sides.queries.texts, sides.keys.texts
    row, column = _position("query", query, queries), _position("key", key, keys)
    reach = capture.reach[head.site].allowed(len(queries), len(keys))
    allowed = reach[capture.place(head) if len(reach) > 1 else 0][row]
    weight = float(capture[head][row, column])
    name = capture.layout.name(head)
    few = capture.reach[head.site].unselected
    left_out = few is not None and bool(few[0, row, column])
    return Reason(name, row, column, queries, keys, capture.terms[head], allowed, weight, left_out)


def _position(axis: str, index: int, texts: Sequence[str]) -> int:
    """Return a position from 0 on."""
    if type(index) is not int or not -len(texts) <= index < len(texts):
        raise UsageError("a {} is a position from 0 to {}, not {!r}", axis, len(texts) - 1, index)
    return index % len(texts)
