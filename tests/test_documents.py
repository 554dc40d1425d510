"""What README.md and docs/ name in the repository is there, and their Python fits it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import attnviz as av

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = re.compile(r"`((?:attnviz|tests|benchmarks|proofs|training|docs|sample_inputs)/[\w./-]*)`")
MODULES = re.compile(r"python -m ((?:attnviz|tests|benchmarks|proofs|training)(?:\.\w+)*)")
LINKS = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


def missing(page: Path, text: str) -> list[str]:
    """What a page names and the repository has not."""
    files = [name for name in FILES.findall(text) if not (ROOT / name).exists()]
    links = [name for name in LINKS.findall(text) if not (page.parent / name).exists()]
    return files + links + [name for name in MODULES.findall(text) if find_spec(name) is None]


def refused(text: str) -> Iterator[str]:
    """Calls of attnviz in the Python of a page that do not fit the function."""
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for block in (*code, *re.findall(r"`(av\.\w+\([^`\n]*\))`", text)):
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            package, *names = ast.unparse(call.func).split(".")
            if package != "av" or len(names) != 1:
                continue
            if names[0] not in av.__all__:
                yield f"{ast.unparse(call)}: there is no av.{names[0]}"
                continue
            function = getattr(av, names[0])
            keywords = {keyword.arg: 0 for keyword in call.keywords if keyword.arg is not None}
            try:
                inspect.signature(function).bind(*call.args, **keywords)
            except TypeError as error:
                yield f"{ast.unparse(call)}: {error}"


def test_python_calls_functions_as_they_are() -> None:
    wrong = {page.name: list(refused(page.read_text("utf-8"))) for page in PAGES}
    assert {name: calls for name, calls in wrong.items() if calls} == {}


def test_wrong_calls_are_told() -> None:
    text = "```python\nav.heads('a', to=1)\nav.Heads.from_json(x)\n```\nand `av.nothing()`\n"
    assert [call.partition("(")[0] for call in refused(text)] == ["av.heads", "av.nothing"]


def test_files_links_and_modules_are_there() -> None:
    found = {page.name: missing(page, page.read_text("utf-8")) for page in PAGES}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_test_can_fail() -> None:
    text = "`attnviz/nowhere/`, [here](away.md#there), [out](https://a.org), `python -m attnviz.no`"
    assert missing(PAGES[0], text) == ["attnviz/nowhere/", "away.md", "attnviz.no"]


def unknown_options(text: str) -> list[str]:
    """Options that prose gives to a command that has none of that name."""
    table = re.findall(
        r"^\| (?:`(--[\w-]+)[^|]*)? ?\| ([\w, ]+) \|",
        (ROOT / "docs" / "options.md").read_text("utf-8"),
        re.MULTILINE,
    )
    options: dict[str, set[str]] = {}
    option = ""
    for name, commands in table:
        option = name or option
        for command in commands.split(", "):
            options.setdefault(command, set()).update((option, option.replace("--no-", "--")))
    return [
        f"{command} {option}"
        for command, rest in re.findall(r"`(?:attnviz )?([a-z]+)( [^`]*)`", text)
        if command in options
        for option in re.findall(r"(?<!\S)--[a-z][\w-]*", rest)
        if option not in options[command] | {"--help", "--help-all", "--out"}
    ]


def test_options_that_prose_names_are_there() -> None:
    found = {page.name: unknown_options(page.read_text("utf-8")) for page in PAGES}
    assert {name: options for name, options in found.items() if options} == {}
    assert unknown_options("`syntax --random` and `heads --json`") == ["syntax --random"]
