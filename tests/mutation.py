"""Do the tests notice what they are for? Lines chosen at random are broken, one at a time.

    python -m tests.mutation --count 20 --seed 1

Each round changes one expression of one line in a copy of the repository (a comparison turned, plus
and minus swapped, a number or truth value changed, a condition negated, None returned), runs the
tests of that room there, and says whether they fail. What survives is worth reading: either a test
is missing, or the line does not matter.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("attnviz", "tests", "docs", "sample_inputs", "training", "benchmarks", "pyproject.toml",
          "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")  # fmt: skip
ROOMS = {
    "attnviz/scoring": (
        "tests/scoring", "tests/attention", "tests/models", "tests/captures",
        "tests/features/profile", "tests/cli/test_cli.py",
    ),
    "attnviz/statistics": ("tests/statistics", "tests/features/profile/test_numbers.py"),
    "attnviz/interventions": ("tests/interventions", "tests/features/ablation"),
    "attnviz/features/ablation": ("tests/features/ablation", "tests/cli/test_defaults.py"),
    "attnviz/core": ("tests/core", "tests/captures", "tests/models", "tests/cli/test_cli.py"),
    "attnviz/web": ("tests/web", "tests/features/view"),
}  # fmt: skip
"""Folders that are broken, and the tests that should notice, those that mirror them first."""
FLIPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
LIMIT = 900
"""Seconds; a change that makes the tests run for longer is noticed too."""


def mutations(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node whose change can matter (no annotation or decorator), with what it is called."""
    idle: set[int] = set()
    for node in ast.walk(tree):
        outer = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        outer += getattr(node, "decorator_list", [])
        outer += [one for one in getattr(node, "keywords", []) if one.arg == "strict"]
        idle.update(id(inner) for one in outer if one for inner in ast.walk(one))
    for node in ast.walk(tree):
        if id(node) in idle:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
            yield node, "comparison"
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in FLIPPED:
            yield node, "operator"
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, "constant"
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node, "condition"
        if isinstance(node, ast.Return) and node.value is not None:
            yield node, "return"


def change(node: ast.AST, kind: str) -> None:
    """Break a node in place."""
    if isinstance(node, ast.Compare) and kind == "comparison":
        node.ops[0] = FLIPPED[type(node.ops[0])]()  # type: ignore[assignment]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = FLIPPED[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[operator]
    elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


def chosen(count: int, seed: int) -> list[tuple[Path, int, int]]:
    """Files and lines, each with the number of the mutation among those of its line."""
    lines = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            found: dict[int, int] = {}
            for node, _ in mutations(ast.parse(path.read_text("utf-8"))):
                found[node.lineno] = found.get(node.lineno, 0) + 1  # type: ignore[attr-defined]
            lines += [(path.relative_to(ROOT), line, some) for line, some in sorted(found.items())]
    chooser = random.Random(seed)
    return [
        (path, line, chooser.randrange(some))
        for path, line, some in chooser.sample(lines, min(count, len(lines)))
    ]


def broken(source: str, line: int, which: int) -> tuple[str, str]:
    """The source with one change, and what was changed into what."""
    tree = ast.parse(source)
    here = [one for one in mutations(tree) if one[0].lineno == line]  # type: ignore[attr-defined]
    node, kind = here[which]
    before = ast.unparse(node).splitlines()[0]
    change(node, kind)
    return ast.unparse(tree), f"{kind}: {before}  →  {ast.unparse(node).splitlines()[0]}"


def tests_of(path: Path, copy: Path) -> list[str]:
    """The tests to run, those of the file itself first."""
    room = next(room for room in ROOMS if path.is_relative_to(room))
    own = [f"{place}/test_{path.stem}.py" for place in ROOMS[room]]
    return [one for one in (*own, *ROOMS[room]) if (copy / one).exists()]


def noticed(copy: Path, path: Path) -> bool:
    """Whether the tests fail now."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "HF_HUB_OFFLINE": "1"}
    for one in tests_of(path, copy):
        try:
            done = subprocess.run(
                [*command, one], cwd=copy, env=environment, capture_output=True, timeout=LIMIT,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True
        if done.returncode == 5:  # no tests in there
            continue
        if done.returncode:
            return True
    return False


def main() -> int:
    """Break some lines and print a line for each."""
    parser = argparse.ArgumentParser(description="Break random lines; do the tests notice?")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="show the changes and run nothing")
    options = parser.parse_args()
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, copy / name)
        rounds = chosen(options.count, options.seed)
        for path, line, which in rounds:
            whole = (copy / path).read_text("utf-8")
            changed, what = broken(whole, line, which)
            if options.list:
                print(f"{path}:{line}  {what}")
                continue
            (copy / path).write_text(changed, "utf-8")
            began = time.monotonic()
            seen = noticed(copy, path)
            caught += seen
            (copy / path).write_text(whole, "utf-8")
            says = "caught  " if seen else "SURVIVED"
            print(f"{says} {time.monotonic() - began:4.0f} s  {path}:{line}  {what}", flush=True)
    if not options.list:
        print(f"{caught} of {len(rounds)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
