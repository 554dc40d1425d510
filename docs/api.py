"""The reference of the Python API: a page for each group of public names, from their docstrings.

Every name has its signature, what its docstring says of shapes, units, errors and sources, and an
example of ``docs/examples.toml``, which a test runs.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import attnviz as av

EXAMPLES = Path(__file__).with_name("examples.toml")
FIELD = re.compile(r"^(Args|Returns|Raises|Attributes|Yields|Note|Example)s?:$", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)(?:\(\))?`")

_INDEX = """# The Python API

`import attnviz as av` offers these names; each is imported when it is first used.
[python.md](../python.md) tells how they go together. Every function of a command takes that
command's options as keywords.

"""


def groups() -> dict[str, tuple[str, ...]]:
    """Every public name in the group that examples.toml lists it in."""
    return {group: tuple(names) for group, names in _examples().items()}


def pages() -> dict[str, str]:
    """Return the pages by name, in Markdown."""
    found, index = {}, [_INDEX]
    for group, examples in _examples().items():
        name = group.lower().replace(" ", "-")
        found[name] = f"# {group}\n\n" + "\n".join(
            _entry(public, code) for public, code in examples.items()
        )
        names = ", ".join(f"[`{public}`]({name}.md#{anchor(public)})" for public in examples)
        index.append(f"- [{group}]({name}.md): {names}")
    index.append("\n```{toctree}\n:hidden:\n\n" + "\n".join(found) + "\n```\n")
    return {**found, "index": "\n".join(index)}


def _examples() -> dict[str, dict[str, str]]:
    return tomllib.loads(EXAMPLES.read_text("utf-8"))


def _entry(name: str, example: str) -> str:
    value = getattr(av, name)
    return (
        f"## {'' if isinstance(value, type) else 'av.'}{name}\n\n"
        f"```python\n{signature(name, value)}\n```\n\n{_told(value)}\n\n"
        f"```python\n{example.strip()}\n```\n"
    )


def anchor(name: str) -> str:
    """Of a name's heading."""
    return name.lower() if isinstance(getattr(av, name), type) else f"av{name.lower()}"


def signature(name: str, value: Any) -> str:
    """Return a name with its parameters, a line each where there are many."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except ValueError:  # of an exception
        return f"class {name}"
    said, keyword_only = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            said.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        default = "" if parameter.default is parameter.empty else _default(parameter.default)
        said.append(stars.get(parameter.kind, "") + parameter.name + default)
    line = f"{name}({', '.join(said)})"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in said) + ")"


def _default(value: Any) -> str:
    plain = isinstance(value, bool | int | float | str | None)
    return f"={value!r}" if plain else "=..."


def _told(value: Any) -> str:
    """Return a docstring as Markdown: its text, and its fields as lists."""
    text = ROLE.sub(r"`\1`", inspect.getdoc(value) or "").replace("``", "`")
    heading, *fields = FIELD.split(text)
    parts = [_prose(heading)]
    for title, body in zip(fields[::2], fields[1::2], strict=True):
        parts.append(f"**{title}**\n\n{_items(body)}")
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Text with its indented code as blocks of code."""
    return re.sub(
        r"(?:^ {4}.*\n?)+",
        lambda code: "\n```python\n" + inspect.cleandoc(code[0]).strip() + "\n```\n\n",
        text.strip() + "\n",
        flags=re.MULTILINE,
    ).strip()


def _items(body: str) -> str:
    """``name: text`` entries as a list; other text as it is."""
    text = inspect.cleandoc("\n" + body.strip("\n"))
    entries = re.split(r"\n(?=\S)", text)
    lines = []
    for entry in entries:
        flat = " ".join(entry.split())
        name, colon, rest = flat.partition(": ")
        names = [part.split() for part in name.split(",")]
        listed = colon and all(len(part) == 1 for part in names)
        spelled = ", ".join(f"`{part}`" for (part,) in names) if listed else ""
        lines.append(f"- {spelled}: {rest}" if listed else f"- {flat}")
    return "\n".join(lines)
