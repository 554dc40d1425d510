"""What README.md and docs/ name in the repository is there."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

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


def test_files_links_and_modules_are_there() -> None:
    found = {page.name: missing(page, page.read_text("utf-8")) for page in PAGES}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_test_can_fail() -> None:
    text = "`attnviz/nowhere/`, [here](away.md#there), [out](https://a.org), `python -m attnviz.no`"
    assert missing(PAGES[0], text) == ["attnviz/nowhere/", "away.md", "attnviz.no"]
