"""What every offline page needs: its parts put together, data that cannot become markup, a policy.

A page is a template, a style behind the one that all share (``page.css``), scripts put together
from modules (:mod:`attnviz.web.page`), those in ``js/`` for all pages among them, and data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from attnviz.core.provenance import Made
from attnviz.core.questions import Term, term
from attnviz.core.record import Record
from attnviz.errors import encodable
from attnviz.web.written import with_made

_USED = re.compile(r"(?:data-term=|\bterm\()\"([^\"]+)\"")


def used(*texts: str) -> tuple[Term, ...]:
    """Give terms that a page marks: its markup with ``data-term``, scripts with ``term("...")``."""
    names = {name for text in texts for name in _USED.findall(text)}
    return tuple(sorted(map(term, names), key=lambda entry: entry.name.lower()))


def definitions(terms: tuple[Term, ...]) -> str:
    """Their definitions as the help lists them."""
    lines = []
    for entry in terms:
        source = f' <span class="source">{html.escape(entry.source)}</span>' if entry.source else ""
        name, text = html.escape(entry.name), html.escape(entry.text)
        lines.append(f'    <dt data-word="{name}">{name}</dt><dd>{text}{source}</dd>\n')
    return "".join(lines)


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
    if leftover := _LEFT_OVER.search(body):
        raise ValueError(f"{name}.js: cannot resolve {leftover.group().strip()!r}")
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
        for needed in (part.strip() for part in names.split(",") if part.strip()):
            if needed not in exported:
                raise ValueError(f"{name}.js imports {needed}, which {target}.js does not export")
    order.append(name)


_NOTHING = "<p>This page needs JavaScript, which is off in this browser.</p>"
_HEIGHT = 2 * "-" + "vh"  # the property that ``page.css`` sets
_HIGH = re.compile(r"(?<![\w.-])([\d.]+)vh\b")
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def html_page(
    template: str,
    *rules: str,
    title: str,
    style: str,
    script: str,
    of: Record | Made,
    still: str,
    headline: str = "",
    compiled: bool = False,
    **parts: str,
) -> bytes:
    """Return a page, as UTF-8: a template with its parts in place of ``{{name}}``."""
    parts |= {"title": html.escape(title), "style": style, "script": script}
    parts["headline"] = html.escape(headline or title).replace(" %", "\u00a0%")
    shared = {name: _shared(f"{name}.html") for name in ("head", "theme", "save", "tools")}
    shared["tools"] = _filled(shared["tools"], shared)
    shared["still"] = f'<noscript><div class="still">{still or _NOTHING}</div></noscript>'
    policy = _policy(rules, compiled, script=script, style=style)
    shared["head"] = _filled(shared["head"], {**parts, "policy": policy})
    if "{{header}}" in template:
        shared["header"] = _filled(_shared("header.html"), {**parts, **shared})
    filled = with_made(template, of)
    return encodable(_filled(filled, {**parts, **shared})).encode()


def result_page(
    package: str, of: Record | Made, *rules: str, data: Any, still: str, **texts: str
) -> bytes:
    """Give the page of a result, as UTF-8: template, style and the module ``main`` of a package.

    ``texts`` are ``title``, ``headline`` and other parts of :func:`html_page`.
    """
    template, style, script = parts(package, "main")
    return html_page(
        template, *rules, style=style, script=script, of=of, still=still, compiled=False,
        data=safe_json(data), **texts,
    )  # fmt: skip


def _shared(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    first, *sections = template.split("{{")
    out = [first]
    for part in sections:
        name, _, text = part.partition("}}")
        out += [parts[name], text]
    return "".join(out)


@lru_cache
def parts(package: str, *entries: str) -> tuple[str, ...]:
    """Read a page's template, its style behind that of all pages, and a script for each entry.

    In the template ``{{help}}`` stands for the help: what figures show (``help.html``), keys, and
    the words of the glossary that markup or scripts mark with ``data-term``.
    """
    shared, folder = files(__package__), files(package)
    style = shared_style() + _high((folder / "style.css").read_text("utf-8"))
    scripts = _modules(shared / "js") | _modules(folder / "js")
    assembled = [assemble(scripts, entry) for entry in entries]
    template = (folder / "page.html").read_text("utf-8")
    if "{{help}}" in template:
        figures = (folder / "help.html").read_text("utf-8")
        words = definitions(used(template, figures, *assembled))
        inside = {"figures": figures, "words": words}
        template = template.replace("{{help}}", _filled(_shared("help.html"), inside))
    return (template, style, *assembled)


def shared_style() -> str:
    """Return the style that all pages share."""
    return _high(_shared("page.css"))


def _high(style: str) -> str:
    """Heights by the window's as multiples of one, which a page in a frame has of its own."""
    return _HIGH.sub(rf"calc(\1 * var({_HEIGHT}))", style)


def _modules(folder: Traversable) -> dict[str, str]:
    """Return the JavaScript modules of a folder, by name without ``.js``."""
    return {
        entry.name.removesuffix(".js"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".js")
    }


def safe_json(value: Any) -> str:
    """ASCII JSON that cannot end the script element that holds it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def _policy(extra: Iterable[str], compiled: bool, **texts: str) -> str:
    """Return a content security policy that lets in the page's own parts, by their hashes."""
    rules = ["default-src 'none'", *extra]
    rules += [f"{name}-src {_hash(text)}" for name, text in texts.items()]
    if compiled:
        rules = [f"{r} 'wasm-unsafe-eval'" if r.startswith("script-src") else r for r in rules]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
