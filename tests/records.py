"""Random results of any kind, from the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from attnviz.core.heads import Head, Layout

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(), bool: st.booleans(), str: st.text(max_size=8), Any: st.text(max_size=8),
    int: st.integers(0, 10**9), float: st.floats(-1, 1, allow_nan=False),
}  # fmt: skip


def record(kind: Any, layout: Layout, **given: Any) -> st.SearchStrategy[Any]:
    """Values of a record, whose heads are of a layout, but for the fields that are given."""
    own = {"layout": st.just(layout), **given}
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind) if field.init and field.compare]
    return st.builds(
        kind, **{name: own[name] if name in own else value(hints[name], layout) for name in names}
    )


def value(kind: Any, layout: Layout) -> st.SearchStrategy[Any]:
    """Values of a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Head:
        return st.sampled_from(tuple(layout))
    if origin is Annotated:
        return value(parts[0], layout)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (Union, UnionType):
        return st.one_of([value(part, layout) for part in parts])
    if origin is tuple and parts[1:] == (...,):
        return st.lists(value(parts[0], layout), max_size=3).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(*(value(part, layout) for part in parts), max_size=2)
    return record(kind, layout) if is_dataclass(kind) else _PLAIN[kind]
