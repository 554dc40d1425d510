"""How JSON holds what records are made of: heads by their names, arrays as lists of lists.

By msgspec, from the types of the fields; those with ``compare=False`` stay out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache, partial
from inspect import cleandoc
from typing import Any, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from attnviz.core.heads import Head, Layout
from attnviz.core.lengths import check_lengths

R = TypeVar("R")

_MOST_HEADS = 1 << 20
"""Of a model whose result is read: a grid of more would be drawn for ever."""


def written(record: Any) -> dict[str, Any]:
    """Return the fields of a record as dictionaries, lists, strings, finite numbers and None."""
    encode = partial(plain, layout=getattr(record, "layout", None))
    parts = {
        f.name: msgspec.to_builtins(getattr(record, f.name), enc_hook=encode, str_keys=True)
        for f in fields(record)
        if f.compare
    }
    # tuples become lists, and what is not finite is no JSON
    return json.loads(json.dumps(parts, allow_nan=False))


def read(cls: type[R], document: Any) -> R:
    """Return the record of a class that :func:`written` was given; ValueError for anything else."""
    kind: Any = cls
    of_model = any(f.name == "layout" for f in fields(kind))
    layout = msgspec.convert(document, _OfModel)["layout"] if of_model else None
    if layout is not None and sum(map(sum, layout.heads.values())) > _MOST_HEADS:
        raise ValueError(f"its layout has more than {_MOST_HEADS:,} heads")
    parts = msgspec.convert(document, _written_as(kind), dec_hook=_reader(layout))
    values = {f.name: getattr(parts, f.name) for f in fields(kind) if f.compare}
    for key in _by_head(kind):
        if layout is not None and values[key] is not None:
            values[key] = _with_heads(values[key], layout, key)
    record = cls(**values)
    check_lengths(record)
    return record


def described(cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of a class, and by name those of the classes that it has inside."""
    _, parts = msgspec.json.schema_components(
        [_written_as(cls)], schema_hook=_schema_of, ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        if "description" in part:  # a docstring
            part["description"] = cleandoc(part["description"])
    return parts.pop(cls.__name__), parts


def plain(value: Any, layout: Layout | None = None) -> Any:
    """Give what msgspec does not know: heads by their names, and messages as Python words them."""
    if isinstance(value, Head):
        return value.qualified if layout is None else layout.name(value)
    if isinstance(value, str):  # a message, or a version that compares
        return str(value)
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, as short as comes back equal
        short = str(value.dtype) == "float32"
        return (value.astype("U").astype("f8") if short else value).tolist()
    raise TypeError(f"{type(value).__name__} cannot be written")


@cache
def _written_as(cls: Any) -> Any:
    """Return the class with the fields that are written, and names for heads that are keys."""
    hints = get_type_hints(cls)
    listed = []
    for f in fields(cls):
        if f.compare:
            kind = hints[f.name]
            if f.name in _by_head(cls):
                kind = _with_names(kind)
            default = field(default=f.default, default_factory=f.default_factory) if (
                f.default is not MISSING or f.default_factory is not MISSING
            ) else field()  # fmt: skip
            listed.append((f.name, kind, default))
    record: type = make_dataclass(cls.__name__, listed, kw_only=True, frozen=True)
    record.__doc__ = cls.__doc__
    return record


@cache
def _by_head(cls: Any) -> tuple[str, ...]:
    """Return the fields that are mappings from heads."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if f.compare and _keyed(hints[f.name]))


def _keyed(kind: Any) -> bool:
    if get_origin(kind) is Mapping or getattr(get_origin(kind), "__name__", "") == "Mapping":
        return get_args(kind)[0] is Head
    return any(_keyed(argument) for argument in get_args(kind))


def _with_names(kind: Any) -> Any:
    """Return the type with names in place of heads as keys."""
    if get_args(kind) and get_args(kind)[0] is Head:
        return Mapping[str, get_args(kind)[1]]  # type: ignore[misc]
    return Mapping[str, get_args(get_args(kind)[0])[1]] | None  # type: ignore[misc]


class _OfModel(TypedDict):
    """What is read first: names of heads mean nothing without it."""

    layout: Layout


def _with_heads(by_name: Mapping[str, Any], layout: Layout, field: str) -> dict[Head, Any]:
    """Return a mapping from names with heads in their place; ValueError for a name of none."""
    try:
        return {layout.head(name): value for name, value in by_name.items()}
    except ValueError as error:
        raise ValueError(f"{error} - at `key` in `$.{field}`") from None


def _reader(layout: Layout | None) -> Any:
    """Return what turns JSON into what msgspec does not know."""

    def read(kind: type, value: Any) -> Any:
        if get_origin(kind) is not None:
            return _array(kind, value)
        if kind is not Head:
            raise ValueError(f"no {kind.__name__} can be read from JSON")
        if not isinstance(value, str):
            raise ValueError(f"Expected the name of a head, got `{type(value).__name__}`")
        if layout is None:
            raise ValueError(f"{value[:40]!r} is a head of no layout")
        return layout.head(value)

    return read


def _array(kind: Any, value: Any) -> Any:
    """Return a matrix of NumPy's, ``NDArray[np.float32]``; ValueError for what is none."""
    import numpy as np

    dtype, array = np.dtype(get_args(get_args(kind)[1])[0]), np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in ("b" if dtype.kind == "b" else "iuf"):
        raise ValueError(f"{str(value)[:40]} is not a matrix of {dtype}")
    return array.astype(dtype)


def _schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of what msgspec does not know."""
    if kind is Head:
        return {"type": "string"}
    row = {"type": "array", "items": {"type": ["number", "boolean"]}}
    return {"type": "array", "items": row}
