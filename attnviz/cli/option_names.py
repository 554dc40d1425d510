"""Where parameters become options: what the library says, in the words of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from types import EllipsisType
from typing import Any

from attnviz.errors import Message

_declared: dict[str, Any] = {}
"""The parameters of the command that runs, as typer declares them."""

_OF_A_TEXT = ("text", "pair", "target")
"""Parameters of one text: a command for files of many texts finds them in the files."""

_OF_A_MEDIUM = ("image", "audio")
"""Parameters of one picture or sound: a command without them names one that takes it."""

_OTHERWISE = {"picture": "image"}
"""Parameters that are called otherwise on the command line."""

_VALUES = {
    "compare": ("show", "compare", ""),
    "verify": ("show", "verify", ""),
    "memory": ("show", "compare:{}", "80GB"),
    "sweep": ("show", "{}", "seq=128..131072"),
    "precision": ("show", "numbers:{}", "5"),
    "rope_dim": ("latent", "512+{}", "64"),
}
"""Parameters of a function that are a value of an option here: the option, how its value is
written with theirs, and an example of theirs."""


def speak_for(parameters: Iterable[Any]) -> None:
    """From now on call parameters as a command declares them."""
    _declared.clear()
    _declared.update((parameter.name, parameter) for parameter in parameters)


def words(message: str) -> str:
    """A message with options for its parameters."""
    return message.worded(option) if isinstance(message, Message) else message


def option(name: str, value: Any = ...) -> str:
    """A parameter as the command line has it: ``--seq``, ``--seq 4``, ``--no-causal``, TEXT."""
    name = name if name in _declared else _OTHERWISE.get(name, name)
    declared = _declared.get(name)
    if declared is None and name in _VALUES and _VALUES[name][0] in _declared:
        holder, written, example = _VALUES[name]
        return option(
            holder, written.format(example if isinstance(value, bool | EllipsisType) else value)
        )
    if declared is None and _declared and name in _OF_A_TEXT:
        return f"the field {name!r}"
    if declared is None and _declared and name in _OF_A_MEDIUM:
        return f"attnviz heads --{name}"
    if declared is not None and declared.param_type_name == "argument":
        flag = declared.metavar or name.upper()
    else:
        flag = _flag(declared, name, value is False)
    if value is ... or isinstance(value, bool):
        return flag
    return f"{flag} {shlex.quote(str(value))}"


def given(**values: Any) -> list[str]:
    """Those parameters of the running command that differ from their defaults, as options."""
    return [
        option(name, value if isinstance(value, bool) else ...)
        for name, value in values.items()
        if name in _declared and value != _declared[name].default
    ]


def _flag(declared: Any, name: str, negated: bool) -> str:
    spelled = [] if declared is None else declared.opts
    if negated:
        spelled = declared.secondary_opts if declared is not None else ()
    long = [flag for flag in spelled if flag.startswith("--")]
    return long[0] if long else "--" + ("no-" if negated else "") + name.replace("_", "-")
