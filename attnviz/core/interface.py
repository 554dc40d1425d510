"""Public functions: their parameters are declared by records of settings, and checked at the door.

A function takes whole records, and whoever calls it gives their fields by name::

    @interface
    def flow(text: Text, *, settings: FlowSettings, model: ModelSettings) -> Flow: ...

    flow("The cat sat", method="rollout", model="gpt2")

Who has such a record already, as commands do, hands it over by the parameter's name. Signature,
``Args:`` and checks follow from the declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature
from textwrap import fill
from typing import Any, TypeVar, get_type_hints

from attnviz.core.arguments import check, hints
from attnviz.core.provenance import call, of_call, running
from attnviz.core.settings import Declaration, Progress, declarations, records_of
from attnviz.errors import named_packages

R = TypeVar("R")

_TORCHS = ("device", "dtype")
"""Arguments that torch's own objects name as well as strings do; who loads a model checks them."""


def interface(function: Callable[..., R]) -> Callable[..., R]:
    """Return the same function with the fields of its records as keywords.

    Annotations are read when a function is defined, so its module imports what they name.

    Returns:
        A function that raises UsageError for an argument of another type than its annotation names,
        and for a keyword that has another name now; TypeError, as any function, for others that it
        does not know; PackageError for a package that it needs and that is not installed.
    """
    types = get_type_hints(function, include_extras=True)
    inner = inspect.signature(function)
    records = records_of(types)
    parameters: dict[str, Parameter] = {}
    for name, parameter in inner.parameters.items():
        for option in _fields(records[name]) if name in records else [parameter]:
            if name in records and option.name in inner.parameters and option.name not in records:
                continue  # given by its place
            if option.name in parameters:
                raise TypeError(f"{function.__name__} has two settings called {option.name}")
            annotation = types.get(option.name, option.annotation) if name not in records else None
            parameters[option.name] = option.replace(annotation=annotation or option.annotation)
    order = sorted(parameters.values(), key=lambda option: option.kind)
    signature = Signature(order, return_annotation=types.get("return", Signature.empty))

    by_place = set(inner.parameters) - set(records)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> R:
        ready = {n: kwargs.pop(n) for n, kind in records.items() if isinstance(kwargs.get(n), kind)}
        try:
            bound = (signature.bind_partial if ready else signature.bind)(*args, **kwargs)
        except TypeError:
            extra = args[sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in order) :]
            if not extra or "model" not in parameters:
                raise
            raise TypeError(
                f"{function.__name__}() takes no {extra[0]!r} by its place; name it: "
                f"model={extra[0]!r}"
            ) from None
        for name in inner.parameters:
            if name in bound.arguments and name not in records:
                _check(parameters[name], bound.arguments[name])
        constructed = {
            name: kind(**{
                field: bound.arguments[field] if field in by_place else bound.arguments.pop(field)
                for field in declarations(kind) if field in bound.arguments
            })
            for name, kind in records.items() if name not in ready
        }  # fmt: skip
        if ready and (doubled := bound.arguments.keys() - inner.parameters.keys()):
            raise TypeError(f"{function.__name__}() has {min(doubled)} in a record already")
        positioned = {field: getattr(record, field) for record in ready.values()
                  for field in by_place & declarations(type(record)).keys()}  # fmt: skip
        bound.arguments = positioned | bound.arguments | ready | constructed
        positional, named = [], {}
        for name, parameter in inner.parameters.items():
            if name not in bound.arguments:
                continue
            value = bound.arguments[name]
            if parameter.kind is Parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is Parameter.KEYWORD_ONLY or name in kwargs:
                named[name] = value
            else:
                positional.append(value)
        chosen = {n: getattr(record, n) for record in ready.values() for n in record.changed()}
        command = call(function.__name__, args, kwargs | chosen)
        with named_packages(), running(command):
            result = function(*positional, **named)
        of_call(result, command)
        return result

    called.__signature__ = signature  # type: ignore[attr-defined]
    tells = types.get("progress") in (Progress, Progress | None)
    called.__doc__ = _documented(inspect.getdoc(function) or "", records.values(), tells)
    return called


def _fields(record: type[Any]) -> list[Parameter]:
    """Return a keyword for every setting of a record that functions have."""
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if option.default is MISSING else option.default,
            annotation=hints(record)[name],
        )
        for name, (option, declared) in declarations(record).items()
        if declared.python
    ]


def _check(parameter: Parameter, value: object) -> None:
    """Refuse an argument of another type than its annotation names."""
    if value is parameter.default or parameter.annotation is Parameter.empty:
        return
    if parameter.name in _TORCHS:
        return
    elements = value if parameter.kind is Parameter.VAR_POSITIONAL else (value,)
    for element in elements:  # type: ignore[attr-defined]
        check(parameter.name, element, parameter.annotation)


_TOLD = "    progress: called again and again with a stage, how much is done and how much there is."
_RAISED = "Raises:\n    AttnvizError: see :mod:`attnviz.errors`."
"""What every public function says, unless it has its own words for it."""


def _documented(text: str, records: Any, tells: bool) -> str:
    """Put settings behind a function's own arguments, then what it tells and raises."""
    entries = [_TOLD] if tells and "progress:" not in text else []
    entries += [
        _entry(name, declared)
        for record in records
        for name, (_, declared) in declarations(record).items()
        if declared.python
    ]
    if not entries:
        return text
    sections = text.split("\n\n")
    if not any(part.startswith("Raises:") for part in sections):
        ends = (n for n, part in enumerate(sections) if part.startswith("Source:"))
        sections.insert(next(ends, len(sections)), _RAISED)
    index = next((n for n, part in enumerate(sections) if part.startswith("Args:")), None)
    if index is None:
        ends = (n for n, part in enumerate(sections) if part.startswith(("Raises:", "Returns:")))
        index = next(ends, len(sections))
        sections.insert(index, "Args:")
    sections[index] = "\n".join([sections[index], *entries])
    return "\n\n".join(sections)


def _entry(name: str, declared: Declaration) -> str:
    """Return a line of ``Args:``."""
    limits = (("at least", declared.least), ("at most", declared.most))
    bounds = [f"{words} {limit:g}" for words, limit in limits if limit is not None]
    bounded = f" ({', '.join(bounds)})" if bounds else ""
    default = f" By default {declared.shown}." if declared.shown else ""
    text = f"{name}: {declared.said(lambda setting: f'``{setting}``')}{bounded}{default}"
    return fill(text, 96, initial_indent=" " * 4, subsequent_indent=" " * 8)
