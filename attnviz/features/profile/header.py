"""What a state file says of itself, by types; and whether its arrays belong to it.

Nothing is allocated for what a header claims before the arrays of the file have that size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SiteKind
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import PrefixMatching, UserDefined
from attnviz.corpus.texts import InvalidRecord
from attnviz.features.profile.sampled.saved_rows import RowsHeader
from attnviz.features.profile.state import Run, State
from attnviz.features.profile.work import ProfileSettings

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Key = Annotated[int, msgspec.Meta(ge=0)]
"""A hash of 64 bits."""
_Shown = tuple[Key, Count, str, str, Count, list[tuple[SiteKind, Count, str]]]


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """All of a state but its arrays; see ``saved.write``."""

    schema: str
    model: dict[str, Any]
    info: SourceInfo
    layout: dict[SiteKind, list[Count]]
    settings: ProfileSettings
    version: str
    seed: Count
    simultaneous: bool
    grouped: bool
    matching: PrefixMatching | None
    runs: list[Run]
    bad: list[InvalidRecord]
    bad_count: Count
    open: tuple[str, Key] | None
    texts: Count
    windows: Count
    tokens: Count
    empty: Count
    sink_texts: Count
    sink_squares: Count
    strings: list[str]
    shown: list[_Shown]
    alike: list[tuple[Key, dict[SiteKind, Count]]]
    whole: bool = False
    user_defined: tuple[UserDefined, ...] = ()
    rows: RowsHeader | None = None


def read(header: Any, arrays: Mapping[str, NDArray[Any]]) -> Header:
    """The header, if its layout is that of the arrays."""
    fields: Header = msgspec.convert(header, Header)
    heads = sum(sum(counts) for counts in fields.layout.values())
    layers = sum(map(len, fields.layout.values()))
    for name, rows in (("counted", heads), ("sinks", heads), ("flow.tenths", heads + layers)):
        if arrays[name].shape[:1] != (rows,):
            raise ValueError(f"{name} is not of {heads} heads in {layers} layers")
    matching = fields.matching
    if matching is not None and not len(matching.means) == len(matching.halves) == heads:
        raise ValueError(f"prefix matching is not of {heads} heads")
    return fields


def check(state: State) -> None:
    """Refuse a state that nobody could have saved, of which something would fail later."""
    tally, layout = state.tally, state.about.layout
    heads, rows = len(layout), len(layout) + len(layout.sites)
    shape = (heads, state.sums.b.shape[1])
    arrays: dict[str, tuple[NDArray[Any], tuple[int, ...], str]] = {
        "counted": (tally.counted, (heads,), "int64"),
        "flow.weights": (tally.flow.weights, (len(tally.flow.strings), rows), "int64"),
    }
    if state.open is not None:
        arrays["open.a"] = (state.open.a, shape, "float64")
        arrays["open.b"] = (state.open.b, shape, "int64")
    for number, text in enumerate(tally.alike):
        if set(text.sums) != set(layout.kinds):
            raise ValueError("heads are compared of other layers than there are")
        for kind, pairs in text.sums.items():
            n = sum(layout.heads[kind])
            arrays[f"alike.{number}.{kind}"] = (pairs, (n * (n - 1) // 2,), "float32")
    for name, (array, wanted, dtype) in arrays.items():
        if array.shape != wanted or array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {dtype} {wanted}")
    flow, sums = tally.flow, state.sums
    counts: tuple[NDArray[Any], ...] = (
        tally.counted,
        tally.sinks,
        flow.weights,
        flow.tenths,
        flow.kinds,
        flow.distances,
    )
    counts += (sums.b, sums.count, state.spread.counts)
    if any((array < 0).any() for array in counts):
        raise ValueError("a number of things is below 0")
    examples = tally.examples
    kinds = [head.site.kind for head in layout]
    for at in np.argwhere(examples.ranks >= 0).tolist():
        key, row = int(examples.texts[*at]), int(examples.rows[*at])
        if key not in examples.shown or (kinds[at[2]], row) not in examples.shown[key].tokens:
            raise ValueError("an example is of a text that is not there")
