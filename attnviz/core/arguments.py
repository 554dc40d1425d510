"""Values against annotations: what is wanted and what was given, in one line.

:mod:`attnviz.core.interface` checks what public functions are called with, and records that users
make themselves call :func:`check_fields`. Annotations that only say how a value is used (protocols,
``Any``) are not checked here.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from attnviz.errors import Setting, UsageError

_NAMES: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    type(None): "None",
    Mapping: "a mapping",
    Callable: "a function",
}
_LARGEST = 1 << 64  # whole numbers are smaller than this; seeds go up to there
_LONGEST = 40  # characters of a wrong value that are repeated


def check_fields(record: Any) -> None:
    """Refuse a dataclass with a field of another type than its annotation names."""
    types = hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        if value is not field.default or field.default is MISSING:
            check(field.name, value, types[field.name])


_HINTS: dict[Any, dict[str, Any]] = {}


def hints(record: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields; its module imports what they name."""
    if record not in _HINTS:
        _HINTS[record] = get_type_hints(record, include_extras=True)
    return _HINTS[record]


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of an annotation's type; neither NaN nor a huge whole number is of any."""
    if hint is int is type(value):  # of long lists, in a tenth of the time
        return -_LARGEST <= value < _LARGEST
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, kind) for kind in inside)
    if origin is Literal:
        return any(value is w or (type(value) is type(w) and value == w) for w in inside)
    if origin is Annotated:
        return fits(value, inside[0])
    if origin is not None:
        return _fits_generic(value, origin, inside)
    if hint is bool:
        return isinstance(value, bool) or type(value) is getattr(
            sys.modules.get("numpy"), "bool_", None
        )
    if hint in (int, float):
        number = isinstance(value, Integral if hint is int else Real)
        if not number or isinstance(value, bool):
            return False
        integral = isinstance(value, Integral)
        return -_LARGEST <= value < _LARGEST if integral else not math.isnan(value)  # type: ignore[operator, arg-type]
    if hint is None:
        return value is None
    if hint is Any or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    return isinstance(value, hint)


def _fits_generic(value: object, origin: Any, inside: tuple[Any, ...]) -> bool:
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, inside[0]) and fits(item, inside[1]) for key, item in value.items()
        )
    listed = origin is tuple and inside[-1:] == (...,)
    if not isinstance(value, Sequence if listed else origin):  # a list will do for a tuple
        return False
    if not issubclass(origin, Iterable):
        return True
    if isinstance(value, str | bytes):
        return False
    if not inside or not isinstance(value, Sequence):
        return True  # what can be read once is left to whoever reads it
    if origin is tuple and not listed:
        return len(value) == len(inside) and all(map(fits, value, inside))
    return all(fits(item, inside[0]) for item in value)


def check(name: str, value: object, hint: Any) -> None:
    """Refuse one argument."""
    if not fits(value, hint):
        raise UsageError("{} takes {}, not {}", Setting(name), _words(hint), _shown(value))


def _words(hint: Any) -> str:
    """Return what an annotation takes, for people: ``a string, a path or None``."""
    listed = list(dict.fromkeys(_alternatives(hint)))
    return " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def _alternatives(hint: Any) -> list[str]:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        several = [kind for kind in inside if _is_several(kind)]
        single = [kind for kind in inside if kind not in several and kind is not type(None)]
        named = [words for kind in single for words in _alternatives(kind)]
        for kind in several:
            included = set(_alternatives(get_args(kind)[0])) <= set(named)
            named += ["several of these"] if included else _alternatives(kind)
        choices = any(get_origin(kind) is Literal for kind in single)
        return named + ["None"] * (type(None) in inside and not choices)
    if origin is Literal:
        return list(map(repr, inside))
    if origin is Annotated:
        return _alternatives(inside[0])
    if _is_several(hint):
        return [f"several, each {_words(inside[0])}"]
    if isinstance(origin, type):
        hint = origin
    if hint in _NAMES:
        return [_NAMES[hint]]
    name = getattr(hint, "__name__", str(hint))
    return [f"a{'n' * (name[0] in 'AEIOU')} {name}"]


def _is_several(hint: Any) -> bool:
    origin = get_origin(hint)
    listed = isinstance(origin, type) and issubclass(origin, Iterable)
    return listed and not issubclass(origin, Mapping) and bool(get_args(hint))


def _shown(value: object) -> str:
    """Return a plain value as it stands, if it is short; of others the type."""
    plain = value is None or isinstance(value, bool | float | str)
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "one of more than 64 bits"
    plain |= isinstance(value, int)
    plain |= isinstance(value, list | tuple | set | dict) and not value
    text = repr(value) if plain else type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
