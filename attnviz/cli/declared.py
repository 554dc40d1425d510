"""Commands take records of settings, and typer sees an option for each of their fields.

This is the only module that knows both: how a setting is declared, and what typer asks of an
option. A command's own parameters, without a record, are as typer has them. Here too: the model
that runs where none is named, what a shell offers for a value, and the option ``--plugin``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Any, get_type_hints

import typer
from typer.utils import get_params_from_function

from attnviz.core.arguments import hints
from attnviz.core.provenance import DEFAULT_MODEL
from attnviz.core.settings import Declaration, Settings, declarations, plain_type, records_of
from attnviz.errors import AttnvizError, InputError, Message, UsageError, system_errors

VARIABLE = "ATTNVIZ_MODEL"
SAID = f"By default ${VARIABLE}, model in \\[tool.attnviz] of pyproject.toml, or {DEFAULT_MODEL}."
_FILE = "pyproject.toml"


def default_model() -> str:
    """``$ATTNVIZ_MODEL``, else ``model`` in ``[tool.attnviz]`` of the nearest pyproject.toml.

    The nearest is the first one from the working directory upwards; a folder of a model in it is
    relative to it. Else the bundled model.
    """
    if named := os.environ.get(VARIABLE):
        return named
    cwd = Path.cwd()
    file = next((path / _FILE for path in (cwd, *cwd.parents) if (path / _FILE).is_file()), None)
    return DEFAULT_MODEL if file is None else _of_project(file)


def teaching(model: str) -> list[str]:
    """Give what to know of the bundled model where nobody named one, and others can be fetched."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    if model != DEFAULT_MODEL or offline:
        return []
    return [
        f"{model} is a small model trained for teaching. For a well-known one: "
        "--model bert-base-uncased, or --model gpt2."
    ]


def _of_project(file: Path) -> str:
    """Return the model that a project names; the bundled one where it names none."""
    import tomllib

    with system_errors(InputError, f"cannot read {file}"):
        text = file.read_bytes()
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            "{} is not readable TOML: {}; mend it, or name a {model}", file, error, model=...
        ) from None
    table = document.get("tool", {})
    table = table.get("attnviz", {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict) or table.keys() - {"model"}:
        raise UsageError(f"[tool.attnviz] of {file} takes model alone, not {str(table)[:60]}")
    model = table.get("model", DEFAULT_MODEL)
    if not isinstance(model, str) or not model:
        raise UsageError(f"model in [tool.attnviz] of {file} is a name, not {str(model)[:40]!r}")
    beside = file.parent / model
    return str(beside) if os.path.isdir(beside) else model  # False for what no path can be


_declared: dict[str, Any] = {}  # the parameters of the command that runs, as typer declares them

_OF_A_TEXT = ("text", "pair", "target")
"""Parameters of one text: a command for files of many texts finds them in the files."""

_OF_A_MEDIUM = ("image", "audio")
"""Parameters of one picture or sound: a command without them names one that takes it."""

_OTHERWISE = {"picture": "image"}  # parameters that are called otherwise on the command line

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
    """Return a message with options for its parameters."""
    return message.worded(option) if isinstance(message, Message) else message


def option(name: str, value: Any = ...) -> str:
    """Get a parameter as the command line has it: ``--seq``, ``--seq 4``, ``--no-causal``, TEXT."""
    name = name if name in _declared else _OTHERWISE.get(name, name)
    declared = _declared.get(name)
    if declared is None and name in _VALUES and _VALUES[name][0] in _declared:
        holder, template, example = _VALUES[name]
        return option(
            holder, template.format(example if isinstance(value, bool | EllipsisType) else value)
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
    flags = [flag for flag in spelled if flag.startswith("--")]
    return flags[0] if flags else "--" + ("no-" if negated else "") + name.replace("_", "-")


ALL = "--help-all"
"""Shows all options of a command, where ``--help`` shows the common ones."""

_WIDE = 16
"""Columns that the values of an option have beside its name; longer lists stand in the help."""

_METAVARS: dict[Any, str] = {int: "N", float: "X", Path: "FILE", list[Path]: "FILE"}
"""What stands for a value of which nothing else is said."""

_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z])")
"""What parts the first sentence of a help from the others."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of the records that it takes."""
    kinds = get_type_hints(function, include_extras=True)
    records = records_of(kinds)
    parameters = [
        parameter
        for name, plain in inspect.signature(function).parameters.items()
        for parameter in (
            _parameters(records[name])
            if name in records
            else [plain.replace(kind=plain.KEYWORD_ONLY, annotation=kinds[name])]
        )
    ]

    @wraps(function)
    def run(**values: Any) -> None:
        for name, kind in records.items():
            fields = {field: values.pop(field) for field in _shown(kind)}
            several = {field: tuple(v) for field, v in fields.items() if isinstance(v, list) and v}
            single = {field: v for field, v in fields.items() if not isinstance(v, list)}
            values[name] = kind(**single, **several)
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.declared = {  # type: ignore[attr-defined]
        name: declared for kind in records.values() for name, declared in _shown(kind).items()
    }
    run.__doc__ = _help(inspect.getdoc(function) or "")
    del run.__wrapped__
    return run


def _help(text: str) -> str:
    """Return a docstring as typer prints it: examples on lines of their own, close together."""
    intro, heading, examples = text.partition("[bold]Examples[/]")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return intro + "\n  ".join([f"\b\n{heading}", *lines]) if lines else text


def adapted(command: Any, function: Any) -> None:
    """Do for a command what typer (0.18 to 0.24) has no word for."""
    declared: dict[str, Declaration] = getattr(function, "declared", {})
    originals = get_params_from_function(function)
    for parameter in command.params:
        if not parameter.help:  # typer 0.24 with click 8.5 loses what arguments are
            parameter.help = getattr(originals[parameter.name].default, "help", None)
        setting = declared.get(parameter.name)
        if setting is not None and setting.bare is not None:  # an option that may have no value
            parameter.flag_value = setting.bare
            parameter._flag_needs_value = True
        if parameter.name == "model" and parameter.default == DEFAULT_MODEL:
            parameter.default, parameter.show_default = default_model, False
            parameter.help += f" {SAID}"
        parameter.common = setting is None or setting.common or setting.argument


def shorten(command: Any) -> None:
    """Show only the common options of a command in its help, and how to see the others."""
    hidden = 0
    for parameter in command.params:
        parameter.rich_help_panel = None
        parameter.help = _SENTENCE.split(parameter.help or "")[0]
        if not getattr(parameter, "common", True):
            parameter.hidden = True
            hidden += 1
    if hidden:
        command.epilog = f"{hidden} more options: attnviz {command.name} {ALL}"


def changed(*records: Settings, but: Sequence[str] = ()) -> list[str]:
    """Return the options of records that were given, as they stand on the command line."""
    return [
        option(name, value if isinstance(value := getattr(record, name), bool) else ...)
        for record in records
        for name in record.changed(but=but)
        if name != "model" or getattr(record, name) != default_model()
    ]


def _shown(record: type[Any]) -> dict[str, Declaration]:
    """Return the settings of a record that the command line has."""
    return {
        name: declared for name, (_, declared) in declarations(record).items() if declared.command
    }


def _parameters(record: type[Any]) -> list[inspect.Parameter]:
    parameters = []
    for name, declared in _shown(record).items():
        field = record.__dataclass_fields__[name]
        default = ... if field.default is dataclasses.MISSING else field.default
        kind, choices = plain_type(declared.typed or hints(record)[name])
        listed = "|".join(choices)
        help, metavar = declared.said(option), declared.metavar or listed or _METAVARS.get(kind)
        if declared.metavar is None and len(listed) > _WIDE:
            help, metavar = f"{help} One of: {', '.join(choices)}.", name.upper()
        args: dict[str, Any] = {
            "help": help,
            "metavar": metavar,
            "rich_help_panel": declared.panel or None,
            "parser": declared.parser and _reading(name, declared.parser),
            "autocompletion": offer(name, choices),
        }
        if declared.argument:
            info = typer.Argument(show_default=False, **args)
        else:
            show = True if declared.shown is None else declared.shown or False
            if default is None and declared.shown is None:
                show = False
            info = typer.Option(*_flags(name, kind, default, declared), show_default=show, **args)
        optional = kind if default is ... else kind | None
        annotation = Annotated[optional, info]  # type: ignore[valid-type]
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is ... else default,
                annotation=annotation,
            )
        )
    return parameters


def _reading(name: str, parser: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser whose refusals name the option."""

    def read(text: str) -> Any:
        try:
            return parser(text)
        except UsageError as error:
            raise UsageError(f"{option(name)}: {error}") from None

    return read


def _flags(name: str, kind: Any, default: Any, declared: Declaration) -> tuple[str, ...]:
    """How an option is spelled: a switch only in the direction in which it can be turned."""
    plain = name.rstrip("_").replace("_", "-")
    flags = tuple(f"--{spelled}" for spelled in declared.spelled or (plain,))
    short = (f"-{declared.short}",) if declared.short else ()
    if kind is bool and default is None:
        return (f"--{plain}/--no-{plain}",)
    if kind is bool and default:
        return (f" /--no-{plain}",)
    return (*flags, *short)


Offer = Callable[..., list[str]]


def offer(name: str, choices: Sequence[str]) -> Offer | None:
    """Return what completes a value."""
    if choices:
        return lambda incomplete: _starting(incomplete, choices)
    return _OFFERS.get(name)


def models(incomplete: str) -> list[str]:
    """Models of this machine, and folders here that hold one."""
    from attnviz.features.models.catalog import names

    local = (
        str(path.parent)
        for path in Path().glob(f"{incomplete.rstrip('*') or ''}*/config.json")
        if not any(character in incomplete for character in "*?[")
    )
    return _starting(incomplete, (*names(), *sorted(local)))


def heads(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the heads of the model that was named before, behind those that are typed already."""
    typed, comma, last = incomplete.rpartition(",")
    model = ctx.params.get("model") or default_model()
    return [f"{typed}{comma}{head}" for head in _starting(last, ("all", *_heads_of(model)))]


def terms(incomplete: str) -> list[str]:
    """Terms of the glossary, as one word each."""
    from attnviz.core import questions

    names = (name for term in questions.terms() for name in (term.name, *term.also))
    return _starting(incomplete, (name.replace(" ", "-") for name in names))


def _heads_of(model: Any) -> list[str]:
    """``0.0``, ``0.1``, ... by the configuration alone; none where it is not here."""
    from attnviz.features.models.catalog import folder_of
    from attnviz.models.configs.model import read_config as read_attention
    from attnviz.models.folder import read_config

    folder = folder_of(str(model))
    if folder is None:
        return []
    try:
        groups = read_attention(read_config(folder), str(model)).groups
    except (AttnvizError, OSError):
        return []
    layers = sorted((layer, group.spec.heads) for group in groups for layer in group.layers)
    return [f"{layer}.{head}" for layer, count in layers for head in range(count)]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(incomplete.lower())]


_OFFERS: dict[str, Offer] = {
    "model": models, "other_model": models, "show": models, "select": heads, "without": heads,
    "term": terms,
}  # fmt: skip
"""By the name of a setting."""


WITH_PLUGINS = (
    "heads", "explain", "heatmap", "view", "profile", "ablate", "patch", "film", "atlas", "export",
    "diff", "card", "show",
)  # fmt: skip
"""Which have it."""

_NO_PLUGIN = "none"
_PLUGIN_HELP = (
    "Python file with scores and roles of your own (av.score, av.role); it is run. Repeatable. "
    "Installed packages with such are found by themselves, but for --plugin none."
)


def plugin_option() -> Any:
    """Return the option; what it names is loaded before the command begins."""
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def declare(
        plugin: Annotated[
            list[str],
            typer.Option(
                help=_PLUGIN_HELP,
                metavar="FILE",
                callback=_load_plugins,
                expose_value=False,
                is_eager=True,
                show_default=False,
            ),
        ] = [],  # noqa: B006
    ) -> None:
        pass

    (plugin,) = typer.main.get_command(holder).params
    plugin.common = False  # type: ignore[attr-defined]
    return plugin


def _load_plugins(files: list[str]) -> None:
    """Load installed plugins, then named ones."""
    from attnviz.scoring.plugins import load_plugins

    named = [file for file in files if file != _NO_PLUGIN]
    if len(named) == len(files):
        load_plugins()
    if named:
        load_plugins(*named)
