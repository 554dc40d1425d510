"""What attnviz finds, as values that know their JSON both ways.

A :class:`Record` is a frozen dataclass under the name and version of a schema. What is compared is
what is written: fields with ``compare=False`` (arrays, results laid beside this one) stay out of
files, and everything else comes back equal. Reading, its errors and the JSON Schemas all follow
from the types, by msgspec. A head is written as its name, so whatever is known by head is a mapping
from heads or a record with a head in it, never a place in a list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from functools import cache
from inspect import cleandoc
from typing import Any, ClassVar, Self, TypedDict, get_args, get_origin, get_type_hints

from attnviz.core.heads import Head, Layout
from attnviz.core.lengths import check_lengths
from attnviz.core.made import Made, called_by
from attnviz.errors import InputError

SCHEMAS = "https://json-schema.org/draft/2020-12/schema"

_MADE = {
    "description": "What made the file: in saved ones, and not in what is printed.",
    "type": "object",
    "properties": {field.name: {"type": "string"} for field in fields(Made)},
}


@dataclass(frozen=True)
class Record:
    """Something found, under the name and version of its schema.

    Attributes:
        schema: such as ``attnviz.ablate/1``; the number steps where the shape changes.
        command: which makes it anew.
        indent: spaces of its JSON text; None for one line, where most of it are arrays.
    """

    schema: ClassVar[str]
    command: ClassVar[str]
    indent: ClassVar[int | None] = 2

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: dictionaries, lists, strings, finite numbers and None."""
        import msgspec

        written = {
            f.name: msgspec.to_builtins(
                getattr(self, f.name), enc_hook=self._written, str_keys=True
            )
            for f in fields(self)
            if f.compare
        }
        # tuples become lists, and what is not finite is no JSON
        plain: dict[str, Any] = json.loads(json.dumps(written, allow_nan=False))
        return {"schema": self.schema, **plain}

    @property
    def made(self) -> Made:
        """What makes files of it now: model, version, command and day."""
        return Made.now(command=called_by(self))

    def to_json(self, made: Made | None = None) -> str:
        """The same as text; numbers to their last digit.

        Args:
            made: what made the file that it goes to; it stands in front, and reading leaves it out.
        """
        document = self.to_dict()
        if made is not None:
            document = {"schema": self.schema, "made": made.to_dict(), **document}
        text = json.dumps(document, ensure_ascii=False, indent=self.indent)
        # half a character, of a file name that is no UTF-8, is escaped as JSON does it
        return text.encode("utf-8", "backslashreplace").decode()

    @classmethod
    def from_dict(cls, document: Any, name: str = "the document") -> Self:
        """The record that :meth:`to_dict` wrote, equal to it.

        Args:
            document: of one file.
            name: of it, for messages.

        Raises:
            InputError: another schema or version, or a part that is missing, of another type or of
                another length (:mod:`attnviz.core.lengths`); the message says which.
        """
        import msgspec

        check_schema(cls, document, name)
        kind: Any = cls
        try:
            of_model = any(f.name == "layout" for f in fields(cls))
            known = msgspec.convert(document, _OfModel)["layout"] if of_model else None
            written = msgspec.convert(document, _written_as(kind), dec_hook=_reader(known))
            values = {f.name: getattr(written, f.name) for f in fields(cls) if f.compare}
            for key in _by_head(kind):
                if known is not None and values[key] is not None:
                    values[key] = _with_heads(values[key], known, key)
            record = cls(**values)
            check_lengths(record)
            return record
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise InputError(
                f"{name} is damaged: {_said(error)}; make it again with attnviz {cls.command}"
            ) from None

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "the document") -> Self:
        """The record that :meth:`to_json` wrote; InputError as for :meth:`from_dict`."""
        return cls.from_dict(parsed(text, name), name)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Of its JSON, from the types."""
        import msgspec

        kind: Any = cls
        _, parts = msgspec.json.schema_components(
            [_written_as(kind)], schema_hook=_described, ref_template="#/$defs/{name}"
        )
        for part in parts.values():
            if "description" in part:  # a docstring
                part["description"] = cleandoc(part["description"])
        own: dict[str, Any] = parts.pop(cls.__name__)
        own["properties"] = {"schema": {"const": cls.schema}, "made": _MADE, **own["properties"]}
        own["required"] = ["schema", *own.get("required", ())]
        schema = {"$schema": SCHEMAS, "$id": cls.schema, **own, "$defs": parts}
        plain: dict[str, Any] = json.loads(json.dumps(schema))  # defaults that are tuples
        return plain

    def _written(self, value: Any) -> Any:
        """What msgspec does not know: heads by their names, and messages as Python words them."""
        if isinstance(value, Head):
            layout = getattr(self, "layout", None)
            return value.qualified if layout is None else layout.name(value)
        if isinstance(value, str):  # a message, or a version that compares
            return str(value)
        if hasattr(value, "tolist"):  # NumPy's numbers and arrays, as short as comes back equal
            short = str(value.dtype) == "float32"
            return (value.astype("U").astype("f8") if short else value).tolist()
        raise TypeError(f"{type(value).__name__} cannot be written")


def parsed(text: str | bytes, name: str) -> Any:
    """A text as JSON; InputError where it is none."""
    try:
        return json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not readable JSON: {_said(error)}; check the file") from None


def _not_json(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _said(error: Exception) -> str:
    """What an error says, on one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return " ".join(str(error).split())[:200]


def check_schema(cls: type[Record], document: Any, name: str) -> None:
    """InputError for a document of another kind, or of another version of this one."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == cls.schema:
        return
    if not isinstance(schema, str) or not schema.startswith("attnviz."):
        raise InputError(
            f"{name} is not an attnviz result; give a JSON file that an attnviz command "
            "wrote")  # fmt: skip
    kind, _, _ = schema.partition("/")
    own, _, current = cls.schema.partition("/")
    holds = f"{name} is {' '.join(schema.split())[:40]}"
    if kind == own:
        raise InputError(
            f"{holds}, and this attnviz reads version {current}; make it again "
            f"with attnviz {cls.command}"
        )
    raise InputError(f"{holds}, not {cls.schema}")


@cache
def _written_as(cls: Any) -> Any:
    """The class with the fields that are written, and names for heads that are keys."""
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
    made: type = make_dataclass(cls.__name__, listed, kw_only=True, frozen=True)
    made.__doc__ = cls.__doc__
    return made


@cache
def _by_head(cls: Any) -> tuple[str, ...]:
    """The fields that are mappings from heads."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if f.compare and _keyed(hints[f.name]))


def _keyed(kind: Any) -> bool:
    if get_origin(kind) is Mapping or getattr(get_origin(kind), "__name__", "") == "Mapping":
        return get_args(kind)[0] is Head
    return any(_keyed(argument) for argument in get_args(kind))


def _with_names(kind: Any) -> Any:
    """The type with names in place of heads as keys."""
    if get_args(kind) and get_args(kind)[0] is Head:
        return Mapping[str, get_args(kind)[1]]  # type: ignore[misc]
    return Mapping[str, get_args(get_args(kind)[0])[1]] | None  # type: ignore[misc]


class _OfModel(TypedDict):
    """What is read first: names of heads mean nothing without it."""

    layout: Layout


def _with_heads(by_name: Mapping[str, Any], layout: Layout, field: str) -> dict[Head, Any]:
    """A mapping from names with heads in their place; ValueError for a name of none."""
    try:
        return {layout.head(name): value for name, value in by_name.items()}
    except ValueError as error:
        raise ValueError(f"{error} - at `key` in `$.{field}`") from None


def _reader(layout: Layout | None) -> Any:
    """Turns what JSON holds into what msgspec does not know."""

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
    """A matrix of NumPy's, ``NDArray[np.float32]``; ValueError for what is none."""
    import numpy as np

    dtype, array = np.dtype(get_args(get_args(kind)[1])[0]), np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in ("b" if dtype.kind == "b" else "iuf"):
        raise ValueError(f"{str(value)[:40]} is not a matrix of {dtype}")
    return array.astype(dtype)


def _described(kind: type) -> dict[str, Any]:
    """The JSON Schema of what msgspec does not know."""
    if kind is Head:
        return {"type": "string"}
    row = {"type": "array", "items": {"type": ["number", "boolean"]}}
    return {"type": "array", "items": row}
