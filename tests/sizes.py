"""``python -m tests.sizes``: how large the package is, and which class names stand twice in it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "attnviz"


def sizes() -> dict[str, int]:
    """Modules, modules at the top, packages, lines, and class names that are defined twice."""
    modules = sorted(PACKAGE.rglob("*.py"))
    trees = [ast.parse(path.read_text("utf-8")) for path in modules]
    names = Counter(
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {
        "modules": len(modules),
        "modules at the top": len(list(PACKAGE.glob("*.py"))),
        "packages": sum(path.name == "__init__.py" for path in modules),
        "packages at the top": sum((PACKAGE / name.name / "__init__.py").is_file()
                                   for name in PACKAGE.iterdir()),
        "lines of Python": sum(len(path.read_text("utf-8").splitlines()) for path in modules),
        "class names in two modules or more": sum(count > 1 for count in names.values()),
    }  # fmt: skip


if __name__ == "__main__":
    for what, count in sizes().items():
        print(f"{what}: {count:,}")
