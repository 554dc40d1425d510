"""The house holds: floors, light imports, public names, nothing private in the repository."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from string import Formatter

import pytest

import attnviz
import attnviz.errors
from attnviz.errors import AttnvizError, Message

PACKAGE = Path(attnviz.__file__).parent

FLOORS = {
    "errors": 0,
    "reach": 0,
    "reasons": 0,
    "measures": 0,
    "media": 0,
    "quantities": 1,
    "records": 1,
    "passes": 2,
    "statistics": 1,
    "estimates": 2,
    "effects": 2,
    "annotated": 2,
    "votes": 2,
    "flows": 2,
    "portable": 2,
    "gathered": 3,
    "findings": 0,
    "found": 7,
    "edges": 2,
    "differences": 2,
    "attention": 3,
    "scoring": 3,
    "generation": 0,
    "shapes": 4,
    "models": 5,
    "render": 5,
    "files": 6,
    "corpus": 6,
    "answers": 7,
    "ablation": 7,
    "grammar": 7,
    "profiling": 7,
    "flowing": 7,
    "export": 7,
    "notebook": 7,
    "looking": 8,
    "wiring": 7,
    "comparing": 7,
    "in_memory": 8,
    "writing": 8,
    "evidence": 9,
    "flowed": 9,
    "antecedents": 9,
    "given": 8,
    "exported": 9,
    "profiled": 9,
    "inpage": 9,
    "wired": 9,
    "compared": 9,
    "viewed": 9,
    "api": 9,
    "tour": 10,
    "atlases": 10,
    "": 9,  # attnviz/__init__.py
    "cli": 11,
    "__main__": 12,
}


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree; every test reads the same one."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module(path: Path) -> str:
    """The name under which a file of the package is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module(path): path for path in FILES}


def room(name: str) -> str:
    return name.partition(".")[2].partition(".")[0]


def imported(path: Path) -> set[str]:
    """The modules of attnviz that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"relative import in {path}"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = names if node.module == "attnviz" else names & set(MODULES)
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] == "attnviz"}


def imports(path: Path) -> set[str]:
    """The rooms of attnviz that a file imports."""
    return {room(name) for name in imported(path)}


def within(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=within)
def test_modules_import_only_from_floors_below(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py").replace("__init__", "")
    if own == "":  # names for type checkers only; everything else is lazy
        return
    for name in imports(path) - {own}:
        other = "" if name == "__version__" else name
        assert FLOORS[other] < FLOORS[own], f"{own} must not import {other}"


def test_the_floor_test_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from attnviz.cli import main\n    import attnviz.models.hooked\n")
    assert imports(bad) == {"cli", "models"}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, as TopologicalSorter reports them; or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_a_detour() -> None:
    """Floors forbid rings of rooms; this forbids rings inside of one, late imports included."""
    graph = {name: imported(path) & set(MODULES) - {name} for name, path in MODULES.items()}
    del graph["attnviz"]  # names for type checkers only; everything else is lazy
    assert cycle(graph) == []


def test_the_ring_test_can_fail() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


COMMANDS_REACH = {
    "",  # the version
    *(
        "errors",
        "records",
        "effects",
        "votes",
        "flows",
        "files",
        "corpus",
        "looking",
        "notebook",
        "tour",
    ),
    "api",
    "evidence",  # what commands call
    "antecedents",
    "exported",
    "flowed",
    "inpage",
    "atlases",
    "profiled",
    "wired",
    "compared",
    "viewed",
    "answers",
    "render",  # what prints their results
    *("ablation.settings", "export.settings", "export.execution"),  # options
    "generation",  # options of writing
    *("models.untrained", "attention.sizes"),  # options of a fresh layer
    *("export.run", "profiling.run"),  # progress and interruption
    *("scoring.arrange", "scoring.scores"),  # which rows of a table, by which score
}
"""Rooms, or modules in them, that the command line may use: what makes and shows results."""


def reaches(path: Path) -> set[str]:
    """What a file imports beside its own room and what commands may reach."""
    names = {name.partition(".")[2] for name in imported(path)} - {"__version__"}
    rooms = {name for name in names if name.partition(".")[0] in COMMANDS_REACH | {"cli"}}
    return names - rooms - COMMANDS_REACH


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").rglob("*.py")), ids=within)
def test_commands_call_one_function_and_print(path: Path) -> None:
    assert not reaches(path)


def test_the_reach_test_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from attnviz import api\nfrom attnviz.models.hooked import source\n")
    assert reaches(bad) == {"models.hooked.source"}


@pytest.mark.parametrize("path", FILES, ids=within)
def test_processes_and_modules_are_named_by_import(path: Path) -> None:
    """A module named in a string is found by no rename and by no test of floors."""
    if within(path) in ("__init__.py", "cli/__init__.py"):  # the public names and the commands
        return
    for line, text in literals(path):
        assert text not in MODULES or text == "attnviz", f"{within(path)}:{line} names {text}"


def said(path: Path) -> Iterator[ast.Call]:
    """The calls in a file that make one of our errors, or a message."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = getattr(attnviz.errors, node.func.id, None)
            if kind is Message or (isinstance(kind, type) and issubclass(kind, AttnvizError)):
                yield node


def fields(template: ast.expr | None) -> list[str]:
    """The fields of a template, which must be a literal and hold no foreign braces."""
    if isinstance(template, ast.IfExp):
        return fields(template.body) + fields(template.orelse)
    assert isinstance(template, ast.Constant), "a template with fields must be a literal"
    return [name for _, name, _, _ in Formatter().parse(template.value) if name is not None]


@pytest.mark.parametrize("path", FILES, ids=within)
def test_templates_are_literals_and_get_their_fields(path: Path) -> None:
    if within(path) == "errors.py":
        return
    for call in said(path):
        given = {word.arg: word.value for word in call.keywords if word.arg}
        remedy = given.pop("remedy", None)
        if not call.args or (len(call.args) == 1 and not given):
            continue
        found = fields(call.args[0]) + (fields(remedy) if remedy else [])
        assert {name for name in found if name} == set(given), f"{within(path)}:{call.lineno}"
        if not any(isinstance(value, ast.Starred) for value in call.args):
            assert found.count("") == len(call.args) - 1, f"{within(path)}:{call.lineno}"


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The strings in a file with their lines, docstrings left out."""
    tree = parsed(path)
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # a string that nothing uses is documentation
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documented:
            yield node.lineno, str(node.value)


OPTION = re.compile(r"(?<![\w!-])--(?=[a-z]|$)")


@pytest.mark.parametrize("path", FILES, ids=within)
def test_only_the_command_line_knows_options(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    for line, text in literals(path):
        assert not OPTION.search(text), f"{within(path)}:{line} names an option: {text!r}"


def test_the_option_test_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text('"""Says --this."""\nx = f"--{y} or"\nz = "use --that"\n')
    assert {line for line, text in literals(bad) if OPTION.search(text)} == {2, 3}


def loaded(code: str, *modules: str) -> set[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys\nprint('\\n'.join(m for m in {modules!r} if m in sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    return set(out.split()) & set(modules)


HEAVY = ("torch", "transformers", "matplotlib", "tokenizers", "numpy")


def test_import_costs_nothing_heavy() -> None:
    assert loaded("import attnviz", *HEAVY) == set()
    assert loaded("import attnviz.cli", *HEAVY) == set()


def test_help_costs_nothing_heavy() -> None:
    for command in ("", "heads", "heatmap", "view", "export", "capture"):
        arguments = [command, "--help"] if command else ["--help"]
        assert loaded(f"from attnviz.cli import main\nmain({arguments!r})", *HEAVY) == set()


def test_heads_on_a_fresh_layer_needs_no_transformers_or_matplotlib() -> None:
    code = "from attnviz.cli import main\nassert main(['heads', 'a b c', '-m', 'fresh']) == 0"
    assert loaded(code, *HEAVY) == {"torch", "tokenizers", "numpy"}


def test_every_public_name_is_there_and_documented() -> None:
    for name in attnviz.__all__:
        found = getattr(attnviz, name)
        if name != "__version__":
            assert found.__doc__, f"attnviz.{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        attnviz.nonsense  # noqa: B018


def test_importing_a_submodule_does_not_hide_a_function() -> None:
    """A subpackage named like a public function would replace it once imported."""
    for name in attnviz._LAZY:
        assert not (PACKAGE / name).exists()
        assert not (PACKAGE / f"{name}.py").exists()


def test_the_error_tree_is_drawn_and_public() -> None:
    tree = attnviz.errors.__doc__ or ""
    kinds = [
        value
        for value in vars(attnviz.errors).values()
        if isinstance(value, type) and issubclass(value, attnviz.AttnvizError)
    ]
    assert len(kinds) == 8
    for kind in kinds:
        assert kind.__name__ in tree
        assert kind.__name__ in attnviz.__all__
