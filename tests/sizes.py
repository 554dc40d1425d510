"""``python -m tests.sizes``: how large the package and its surface are, and what its words are."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from typing import Any

import typer

from attnviz import cli

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "attnviz"

CEILINGS = {
    "modules": 495,
    "lines of the package": 114_630,
    "lines of tests": 71_975,
    "vague names": 393,
}
"""What the project may not outgrow: whoever removes lines lowers these, and nobody raises them."""

WORDS = (
    "Anatomist", "apart", "asked", "Bad", "borrowed", "Bow", "closed", "counted", "done", "dotted",
    "each", "ending", "every", "followed", "foreign", "found", "gaze", "given", "Going", "here",
    "it", "kept", "known", "Leaf", "Lives", "Look", "look", "Lost", "made", "most", "on", "one",
    "opened", "others", "overheard", "own", "parted", "Pictured", "place", "placed", "quiet",
    "Reach", "rest", "said", "seen", "senses", "shown", "some", "stands", "stored", "taken",
    "told", "Told", "unanimous", "used", "voice", "Vote", "wanted", "way", "weighed", "what",
    "whole", "wide", "without", "worth",
)  # fmt: skip
"""Private words, and those that do not tell what a value is: names are nouns of what they hold."""


def modules() -> dict[Path, ast.Module]:
    """Every module of the package, with its syntax tree."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def sizes() -> dict[str, int]:
    """Modules, modules at the top, packages, lines, and class names that are defined twice."""
    trees = modules()
    names = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in trees}
    return {
        "modules": len(trees),
        "modules at the top": len(list(PACKAGE.glob("*.py"))),
        "packages": sum(path.name == "__init__.py" for path in trees),
        "packages at the top": sum((PACKAGE / name.name / "__init__.py").is_file()
                                   for name in PACKAGE.iterdir()),
        "lines of Python": sum(lines.values()),
        "longest module": max(lines.values()),
        "class names in two modules or more": sum(count > 1 for count in names.values()),
    }  # fmt: skip


def lines_of(folder: Path) -> list[int]:
    """Count the lines of every Python file in a folder."""
    return [len(path.read_text("utf-8").splitlines()) for path in folder.rglob("*.py")]


def rooms() -> dict[str, int]:
    """Lines of Python in each package at the top; modules that stand alone are together."""
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts
        lines[inside[0] if len(inside) > 1 else "alone"] += len(
            path.read_text("utf-8").splitlines()
        )
    return dict(lines.most_common())


def options() -> dict[str, set[str]]:
    """The commands of every option, by its name."""
    root: Any = typer.main.get_command(cli.app)
    named: dict[str, set[str]] = defaultdict(set)
    for command in cli.COMMANDS:
        for parameter in root.get_command(None, command).params:
            if isinstance(parameter, typer.core.TyperOption):
                spelled = [*parameter.opts, *parameter.secondary_opts]
                named[max(spelled, key=len)].add(command)
    return named


def declarations() -> Counter[str]:
    """How often each setting is declared in a record of settings, by the name of its field."""
    from attnviz.core.settings import Settings

    for path in modules():
        if path.name in ("settings.py", "options.py", "output.py", "execution.py", "paper.py"):
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            import_module(name)
    waiting, records = [Settings], set()
    while waiting:
        record = waiting.pop()
        records.add(record)
        waiting += record.__subclasses__()
    return Counter(
        field.name
        for record in records
        if is_dataclass(record)
        for field in fields(record)
        if field.name in get_annotations(record)
    )


def words() -> Counter[str]:
    """How often each of these words names a module, a class, a function, an argument or a local."""
    used: Counter[str] = Counter()
    for path, tree in modules().items():
        used[path.stem] += 1
        used.update(name for node in ast.walk(tree) for name in names_of(node))
    return Counter({word: used[word] for word in WORDS})


def names_of(node: ast.AST) -> Iterator[str]:
    """What a node gives a name to."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


if __name__ == "__main__":
    for what, count in {**sizes(), "lines of tests": sum(lines_of(TESTS))}.items():
        print(f"{what}: {count:,}")
    print(f"option names: {len(options())}")
    often = Counter(declarations().values())
    print("settings by how many records name them:", dict(sorted(often.items())))
    print(
        "vague names:",
        words().total(),
        {word: count for word, count in words().most_common() if count},
    )
    print("lines by package:", rooms())
