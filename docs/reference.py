"""Write what follows from what is declared: the types of the API, and pages of docs/.

    python -m docs.reference

``attnviz/__init__.pyi`` tells type checkers the keywords of every public function, which
at run time follow from its records; ``docs/options.md`` lists every option of every command,
``docs/glossary.md`` every term, ``families.json`` what docs/families.md says of every family,
``docs/questions.md`` every question that ``attnviz help`` knows.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import typer

import attnviz
from attnviz import cli
from attnviz.features.models.function import FAMILIES
from docs import glossary

ROOT = Path(__file__).parents[1]
STUB = ROOT / "attnviz" / "__init__.pyi"
OPTIONS = ROOT / "docs" / "options.md"
FAMILIES_PAGE = ROOT / "docs" / "families.md"

_HEAD = '''"""Written by docs/reference.py from the declarations of settings."""

'''


class Imports:
    """The names that a stub imports."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)

    def spelled(self, hint: Any) -> str:
        """Return an annotation as source, with what it needs imported."""
        origin, inside = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return " | ".join(dict.fromkeys(map(self.spelled, inside)))
        if origin is Literal:
            self._names["typing"].add("Literal")
            return f"Literal[{', '.join(map(repr, inside))}]"
        if hint is None or hint is type(None):
            return "None"
        if hint is ...:
            return "..."
        if isinstance(hint, list):
            return f"[{', '.join(map(self.spelled, hint))}]"
        if hint is Any or hint is inspect.Parameter.empty or isinstance(hint, TypeVar):
            self._names["typing"].add("Any")
            return "Any"
        if origin is not None:
            return f"{self.spelled(origin)}[{', '.join(map(self.spelled, inside))}]"
        if hint is Callable or hint is getattr(Callable, "__origin__", None):
            self._names["collections.abc"].add("Callable")
            return "Callable"
        module, name = hint.__module__, hint.__qualname__
        if module != "builtins":
            self._names[module].add(name.partition(".")[0])
        return str(name)

    def add(self, module: str, name: str) -> None:
        """Import a name that the stub gives on."""
        self._names[module].add(f"{name} as {name}")

    def lines(self) -> Iterable[str]:
        """One import for each name, so that a change is one line."""
        for module in sorted(self._names):
            names = {name.partition(" ")[0]: name for name in sorted(self._names[module])}
            yield from (f"from {module} import {name}" for name in sorted(names.values()))


def stub() -> str:
    """Return the types of everything that ``import attnviz`` offers."""
    imports, functions = Imports(), []
    for name in attnviz.__all__:
        value = getattr(attnviz, name)
        if isinstance(value, type):
            imports.add(value.__module__, name)
        elif callable(value):
            signature = inspect.signature(value)
            if _is_context_manager(value):
                (given,) = get_args(signature.return_annotation)
                given = AbstractContextManager[given]
                signature = signature.replace(return_annotation=given)
            functions.append(_function(name, signature, imports))
    body = "\n".join(functions)
    names = "\n".join(f'    "{name}",' for name in attnviz.__all__)
    return (
        _HEAD
        + "\n".join(imports.lines())
        + f"\n\n__version__: str\n\n{body}\n\n__all__ = [\n{names}\n]\n"
    )


def _is_context_manager(function: Any) -> bool:
    """Whether it is a generator that ``contextmanager`` made something to enter."""
    made: Any = contextmanager(iter)
    while function is not None:
        if getattr(function, "__code__", None) is made.__code__:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _function(name: str, signature: inspect.Signature, imports: Imports) -> str:
    parts, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        said = f"{stars}{parameter.name}: {imports.spelled(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            plain = isinstance(parameter.default, bool | int | float | str | None)
            said += f" = {parameter.default!r}" if plain else " = ..."
        parts.append(said)
    inside = "".join(f"    {part},\n" for part in parts)
    return f"def {name}(\n{inside}) -> {imports.spelled(signature.return_annotation)}: ...\n"


def declared_options() -> dict[str, dict[str, Any]]:
    """Every option by its longest spelling: the commands that have it, each with its parameter."""
    root: Any = typer.main.get_command(cli.app)
    options: dict[str, dict[str, Any]] = defaultdict(dict)
    for command in cli.COMMANDS:
        for parameter in root.get_command(None, command).params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                spelled = [*parameter.opts, *parameter.secondary_opts]
                options[max(spelled, key=len)][command] = parameter
    return dict(sorted(options.items(), key=lambda item: item[0].removeprefix("--no-").lower()))


def options_page() -> str:
    """``docs/options.md``."""
    options = declared_options()
    lines = [
        "# All options",
        "",
        f"{len(options)} names in {len(cli.COMMANDS)} commands. Each is declared once, in the "
        "settings of its feature; the same names are the keywords of the functions in Python. "
        "`attnviz COMMAND --help` lists the common ones, `--help-all` all.",
        "",
        "| option | commands | what it does |",
        "|---|---|---|",
    ]
    for name, commands in options.items():
        told: dict[str, list[str]] = defaultdict(list)
        for command, parameter in commands.items():
            told[_plain(parameter.help or "")].append(command)
        for number, (help, which) in enumerate(told.items()):
            first = next(iter(commands.values()))
            short = [flag for flag in first.opts if not flag.startswith("--")]
            shown = "" if number else " ".join(f"`{flag}`" for flag in (name, *short))
            lines.append(f"| {shown} | {', '.join(which)} | {help} |")
    return "\n".join(lines) + "\n"


def _plain(help: str) -> str:
    """Help without typer's markup, for a cell of a table."""
    plain = help.replace("[bold]", "").replace("[/]", "").replace("|", "\\|")
    return " ".join(plain.split())


def families_data() -> str:
    """Return the rows of docs/families.md, which ``python -m tests.families`` writes, as JSON."""
    page = FAMILIES_PAGE.read_text("utf-8").partition("\n## ")[0]
    (version,) = re.findall(r"family of transformers (\S+) that", page)
    rows = []
    for line in page.replace("\\|", "\0").splitlines():
        cells = [cell.strip().replace("\0", "|") for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or cells[0] == "family":
            continue
        family, maps, heads, *others = cells
        rows.append(
            {"family": family, "maps": maps, "heads": int(heads) if heads else None}
            | dict(zip(("logits", "ablation", "linear"), others, strict=True))
        )
    document = {"transformers": version, "families": rows}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


WRITTEN: dict[Path, Callable[[], str]] = {
    STUB: stub,
    OPTIONS: options_page,
    FAMILIES: families_data,
    OPTIONS.with_name("glossary.md"): glossary.glossary_page,
    OPTIONS.with_name("questions.md"): glossary.questions_page,
}
"""What is written, and by what."""

if __name__ == "__main__":
    for path, text in WRITTEN.items():
        path.write_text(text(), "utf-8")
        print(path.relative_to(ROOT))
