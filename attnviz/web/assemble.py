"""Small ES modules into one script, without a bundler.

Every module becomes a function that runs once, in order, and returns what it exports, so that each
keeps its names to itself. The modules are written in a subset of the language: named imports from
``./name.js`` under their own names, and ``export`` in front of a function, a class or a constant.
Whatever else would change meaning on the way is an error here, in the tests and not in a reader's
browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r"^import\s*\{([^}]*)\}\s*from\s*\"\./([\w-]+)\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(
    r"^export ((?:async )?function\*?|const|class) ([A-Za-z_$][\w$]*)", re.MULTILINE
)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


def assemble(modules: Mapping[str, str], entry: str) -> str:
    """One script from modules, each after those it imports."""
    order: list[str] = []
    _visit(entry, modules, order, ())
    script = (
        '(() => {\n"use strict";\n' + "".join(_scoped(n, modules[n]) for n in order) + "})();\n"
    )
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("the script would end the element that holds it")
    return script


def _scoped(name: str, source: str) -> str:
    """One module as a function of its own."""
    exported = [name for _, name in _EXPORT.findall(source)]
    body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = from_{match[2]};\n", source)
    body = _EXPORT.sub(r"\1 \2", body)
    if left := _LEFT_OVER.search(body):
        raise ValueError(f"{name}.js: cannot resolve {left.group().strip()!r}")
    return f"const from_{name} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _visit(name: str, modules: Mapping[str, str], order: list[str], path: tuple[str, ...]) -> None:
    """Append a module to the order, after those that it imports."""
    if name in order:
        return
    if name in path:
        raise ValueError(f"modules import in a circle: {' -> '.join((*path, name))}")
    if name not in modules:
        raise ValueError(f"{path[-1] if path else 'the page'} needs {name}.js, which is not there")
    for names, target in _IMPORT.findall(modules[name]):
        _visit(target, modules, order, (*path, name))
        exported = {name for _, name in _EXPORT.findall(modules[target])}
        for wanted in (part.strip() for part in names.split(",") if part.strip()):
            if wanted not in exported:
                raise ValueError(f"{name}.js imports {wanted}, which {target}.js does not export")
    order.append(name)
