"""The arguments of tools: settings as they are declared, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field

from attnviz.core.arguments import hints
from attnviz.core.settings import Settings, declarations, plain_type
from attnviz.features.mcp.answer import ToolAnswer
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.settings import REACHES

Wanted = tuple[type[Settings], str]
"""A record, and the names of some of its settings with blanks between them."""


def takes(*wanted: Wanted, **defaults: Any) -> Callable[[Callable[..., Any]], Any]:
    """Give a method of :class:`~attnviz.features.mcp.tools.Tools` the arguments of some records.

    Files, models and selections are looked up in the allowed folders before the method sees them;
    what it returns is kept as a result and becomes an answer, with a picture where one is wanted.
    """
    parameters = [
        _parameter(record, name, defaults.get(name, MISSING))
        for record, names in wanted
        for name in names.split()
    ]
    known = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not Parameter.empty
    }

    def decorated(tool: Callable[..., Any]) -> Callable[..., ToolAnswer]:
        own = inspect.signature(tool).parameters

        @wraps(tool)
        def call(self: Any, **arguments: Any) -> ToolAnswer:
            asked = known | {
                name: reached(self.folders, name, value) for name, value in arguments.items()
            }
            picture = False if "picture" in own else asked.pop("picture", False)
            result = tool(self, **asked)
            if isinstance(result, ToolAnswer):
                return result
            answer: ToolAnswer = self.kept.answer(tool.__name__, result, picture)
            return answer

        first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = Signature([first, *parameters])  # type: ignore[attr-defined]
        return call

    return decorated


def reached(folders: Folders, name: str, value: Any) -> Any:
    """An argument with its files and models as they are found in the allowed folders."""
    if value is None or name not in REACHES:
        return value
    if isinstance(value, list | tuple):
        return tuple(reached(folders, name, each) for each in value)
    find: dict[str, Callable[[str], Any]] = {
        "file": folders.file, "model": folders.model, "selection": folders.selection,
    }  # fmt: skip
    return find[REACHES[name]](value)


def _parameter(record: type[Settings], name: str, default: Any) -> Parameter:
    """A setting as an argument, with what its schema says of it."""
    own, declared = declarations(record)[name]
    default = own.default if default is MISSING else default
    required = default is ... or default is MISSING
    said = declared.said(lambda other: other)
    if default is True:
        said = f"If false: {said[0].lower()}{said[1:]}"
    hint = declared.typed or hints(record)[name]
    kind, choices = plain_type(hint)
    if any(get_origin(part) is Mapping for part in (hint, *get_args(hint))):
        kind = dict[str, str]
    elif choices and str not in get_args(hint):
        kind = Literal[choices]
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if required else default,
        annotation=Annotated[
            kind | None if default is None else kind,
            Field(description=said, ge=declared.least, le=declared.most),
        ],
    )
