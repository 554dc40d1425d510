"""Options in groups: a command takes dataclasses, and gets one option for each of their fields."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from attnviz.cli.voice import option


def changed(options: Any, *, but: Sequence[str] = ()) -> list[str]:
    """The options of a group that were given, as they stand on the command line."""
    return [
        option(field.name, value if isinstance(value, bool) else ...)
        for field in dataclasses.fields(options)
        if field.name not in but and (value := getattr(options, field.name)) != field.default
    ]


def flatten(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one parameter for each field of the dataclasses that it takes."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        n: kind for n, kind in hints.items() if dataclasses.is_dataclass(kind)
    }
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(
                parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            )
            continue
        inner = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=inner[field.name],
            )
            for field in dataclasses.fields(groups[name])
        ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            fields = {f.name: values.pop(f.name) for f in dataclasses.fields(kind)}
            values[name] = kind(**fields)
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run
