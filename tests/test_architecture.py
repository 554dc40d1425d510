"""The architecture holds: layers, features apart, light imports, public names, words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import pytest

import attnviz
import attnviz.cli
import attnviz.errors
from attnviz.errors import AttnvizError, Message
from attnviz.features import listed
from tests import sizes

PACKAGE = Path(attnviz.__file__).parent

LAYERS = (
    {"errors"}, {"core", "files"}, {"attention", "statistics"}, {"scoring"},
    {"models", "corpus", "drawing", "web"}, {"captures"}, {"interventions"}, {"features"},
    {"cli", "schemas", "testing"},
)  # fmt: skip
"""Packages from below: each imports from layers below its own, and none from beside it."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

COMMANDS = ("command", "options", "bar")
"""Modules of a feature that know the command line, and are loaded by it."""

SHARED = {"listed", "results"}
"""What features share, beside their folders."""

TOGETHER = {"atlas", "card", "diff", "explain", "film", "mcp", "show", "view", "tour"}
"""Features that lay others side by side; no other imports one."""

RECORDS = dict.fromkeys(("result", "parts", "parses", "table"), 0)
CALLS = dict.fromkeys(COMMANDS, 3)
ORDER = {**RECORDS, "function": 2, **CALLS}
"""Inside a feature: records; what computes and what draws them; its function; its command."""


def test_the_project_does_not_grow() -> None:
    modules = sizes.lines_of(sizes.PACKAGE)
    now = {
        "modules": len(modules),
        "lines of the package": sum(modules),
        "lines of tests": sum(sizes.lines_of(sizes.TESTS)),
        "vague names": sum(parsed(path).names[word] for path in FILES for word in sizes.WORDS),
    }
    assert {what: n for what, n in now.items() if n > sizes.CEILINGS[what]} == {}
    assert set(now) == set(sizes.CEILINGS)


class Parts(NamedTuple):
    """What the tests read of a file's syntax tree; calls are those that may say something."""

    imports: list[ast.Import | ast.ImportFrom]
    calls: list[ast.Call]
    literals: list[tuple[int, str]]
    names: Counter[str]


@cache
def parsed(path: Path) -> Parts:
    """A file's parts; it is parsed and walked once for all tests."""
    found = Parts([], [], [], Counter())
    names, constants, documented = [path.stem], [], set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            constants.append(node)
        elif isinstance(node, ast.Expr):  # a string that nothing uses is documentation
            documented.add(id(node.value))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "say" or hasattr(attnviz.errors, node.func.id):
                found.calls.append(node)
        else:
            names.extend(sizes.names_of(node))
    used = (node for node in constants if id(node) not in documented)
    found.names.update(names)
    found.literals.extend((node.lineno, str(node.value)) for node in used)
    return found


def module(path: Path) -> str:
    """The name under which a file of the package is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module(path): path for path in FILES}


@cache
def imported(path: Path) -> set[str]:
    """The modules of attnviz that a file imports, anywhere in it."""
    found = set()
    for node in parsed(path).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            assert node.level == 0, f"relative import in {path}"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = names if node.module == "attnviz" else names & set(MODULES)
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] == "attnviz"}


def within(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def parts(name: str) -> list[str]:
    """A module's name below attnviz, in parts."""
    return name.split(".")[1:]


def layer_breaks(name: str, found: set[str]) -> set[str]:
    """What a module imports from its own layer or from above; a command may use cli."""
    own = parts(name)
    allowed = {"cli"} if own[0] == "features" and own[-1] in COMMANDS else set()
    return {
        other
        for other in found
        if (there := parts(other)[:1])
        and there != ["__version__"]
        and there[0] != own[0]
        and there[0] not in allowed
        and LEVEL[there[0]] >= LEVEL[own[0]]
    }


PACKAGES = {name: path for name, path in MODULES.items() if parts(name) and "__" not in name}


def test_modules_import_only_from_layers_below() -> None:
    broken = {}
    for name, path in PACKAGES.items():
        found = imported(path)
        if parts(name)[0] == "cli":  # the list of commands
            found = {other for other in found if parts(other)[:1] != ["features"]}
        broken[name] = layer_breaks(name, found)
    assert {name: found for name, found in broken.items() if found} == {}


def test_the_layer_test_can_fail() -> None:
    found = {"attnviz.cli.main", "attnviz.models.hooked", "attnviz.core.heads"}
    assert layer_breaks("attnviz.scoring.roles", found) == found - {"attnviz.core.heads"}
    assert layer_breaks("attnviz.features.flow.command", found) == set()


def feature_breaks(name: str, found: set[str]) -> set[str]:
    """What a module of a feature imports from another one, or of its own from further on."""
    own = parts(name)
    broken = set()
    for other in found:
        there = parts(other)
        if there[:1] != ["features"] or len(there) < 2 or there[1] in SHARED:
            continue
        if there[1] != own[1]:
            if own[1] not in TOGETHER or there[-1] == "command":
                broken.add(other)
        elif len(own) > 2 and len(there) > 2 and ORDER.get(there[2], 1) > ORDER.get(own[2], 1):
            broken.add(other)
    return broken


FEATURES = sorted(name for name in PACKAGES if name.startswith("attnviz.features."))


def test_features_stand_alone_and_flow_one_way() -> None:
    broken = {name: feature_breaks(name, imported(PACKAGES[name])) for name in FEATURES}
    assert {name: found for name, found in broken.items() if found} == {}


def test_the_feature_test_can_fail() -> None:
    found = {"attnviz.features.flow.result", "attnviz.features.logits.function"}
    assert feature_breaks("attnviz.features.logits.result", found) == found
    assert feature_breaks("attnviz.features.atlas.function", found) == set()


def test_every_command_has_its_feature() -> None:
    folders = {feature.package.rpartition(".")[2] for feature in listed.FEATURES}
    there = {path.parent.name for path in PACKAGE.glob("features/*/command.py")}
    assert folders - there == set()


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, as TopologicalSorter reports them; or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_a_detour() -> None:
    """Layers forbid rings of packages; this forbids rings inside of one, late imports included."""
    graph = {name: imported(path) & set(MODULES) - {name} for name, path in MODULES.items()}
    del graph["attnviz"]  # names for type checkers only; everything else is lazy
    assert cycle(graph) == []


def test_the_ring_test_can_fail() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_processes_and_modules_are_named_by_import() -> None:
    """A module named in a string is found by no rename and by no test of layers."""
    lists = {"__init__.py", "features/listed.py", "features/results.py"}
    named = [
        f"{within(path)}:{line} names {text}"
        for path in FILES
        if within(path) not in lists  # of the public names, the features and their results
        for line, text in parsed(path).literals
        if text in MODULES and text != "attnviz"
    ]
    assert named == []


def said(path: Path) -> Iterator[ast.Call]:
    """The calls in a file that make one of our errors, or a message.

    What ``say`` of shapes takes from a file of sentences stands in its call as if it were a literal
    there.
    """
    shapes = PACKAGE / "features" / "shapes"
    sentences = tomllib.loads((shapes / "words.toml").read_text("utf-8"))
    for node in parsed(path).calls:
        assert isinstance(node.func, ast.Name)
        kind = getattr(attnviz.errors, node.func.id, None)
        if node.func.id == "say" and path.is_relative_to(shapes):
            view, name = ast.literal_eval(node.args[0]).split(".")
            values = [ast.Constant(sentences[view][name]), *node.args[1:]]
            yield ast.Call(node.func, values, node.keywords, lineno=node.lineno)
        elif kind is Message and path == shapes / "table.py":
            continue  # in ``say`` itself
        elif kind is Message or (isinstance(kind, type) and issubclass(kind, AttnvizError)):
            yield node


def fields(template: ast.expr | None) -> list[str]:
    """The fields of a template, which must be a literal and hold no foreign braces."""
    if isinstance(template, ast.IfExp):
        return fields(template.body) + fields(template.orelse)
    assert isinstance(template, ast.Constant), "a template with fields must be a literal"
    return [name for _, name, _, _ in Formatter().parse(template.value) if name is not None]


def test_templates_are_literals_and_get_their_fields() -> None:
    calls = [(path, call) for path in FILES if within(path) != "errors.py" for call in said(path)]
    for path, call in calls:
        given = {word.arg: word.value for word in call.keywords if word.arg}
        remedy = given.pop("remedy", None)
        if not call.args or (len(call.args) == 1 and not given):
            continue
        found = fields(call.args[0]) + (fields(remedy) if remedy else [])
        assert {name for name in found if name} == set(given), f"{within(path)}:{call.lineno}"
        if not any(isinstance(value, ast.Starred) for value in call.args):
            assert found.count("") == len(call.args) - 1, f"{within(path)}:{call.lineno}"


OPTION = re.compile(r"(?<![\w!-])--(?=[a-z]|$)")


def test_only_the_command_line_knows_options() -> None:
    named = [
        f"{within(path)}:{line} names an option: {text!r}"
        for path in FILES
        if within(path).split("/")[0] not in ("cli", "testing")  # whose options are those of pytest
        and path.stem not in (*COMMANDS, "listed")  # what each command needs at least
        for line, text in parsed(path).literals
        if OPTION.search(text)
    ]
    assert named == []


def test_the_option_test_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text('"""Says --this."""\nx = f"--{y} or"\nz = "use --that"\n')
    assert {line for line, text in parsed(bad).literals if OPTION.search(text)} == {2, 3}


def loaded(code: str, *modules: str) -> set[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys\nprint('\\n'.join(m for m in {modules!r} if m in sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    return set(out.split()) & set(modules)


HEAVY = ("torch", "transformers", "matplotlib", "tokenizers", "numpy")


HELPED = [
    [*command.split(), "--help"]
    for command in ("", "heads", "heatmap", "view", "diff", "export", "capture")
]
STEPS = (
    ("import attnviz", ("inspect", "attnviz.core")),
    ("import attnviz.drawing.style", ("numpy",)),
    (f"from attnviz.cli import main\nfor line in {HELPED}: main(line)", HEAVY),
    ("import attnviz.drawing.terminal, attnviz.drawing.figure", HEAVY[:3]),
)
"""What one process does, step by step, and what it has not loaded by then."""


def test_imports_and_help_cost_nothing_heavy() -> None:
    script = "import sys\n"
    for code, heavy in STEPS:
        script += f"{code}\nprint([m for m in {heavy} if m in sys.modules], file=sys.stderr)\n"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["[]"] * len(STEPS)


@pytest.mark.slow  # tests/cli/test_start.py lists what heads may import
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
    for name in attnviz._PUBLIC:
        assert not (PACKAGE / name).exists()
        assert not (PACKAGE / f"{name}.py").exists()


def test_the_error_tree_is_drawn_and_public() -> None:
    tree = attnviz.errors.__doc__ or ""
    kinds = [
        value
        for value in vars(attnviz.errors).values()
        if isinstance(value, type) and issubclass(value, attnviz.AttnvizError)
    ]
    assert len(kinds) == 9
    for kind in kinds:
        assert kind.__name__ in tree
        assert kind.__name__ in attnviz.__all__
