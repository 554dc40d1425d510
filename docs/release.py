"""Builds the sdist and the wheel: ``python -m docs.release FOLDER``.

The same files give the same bytes: nothing of the clock goes into them, for ``SOURCE_DATE_EPOCH``
is set where it is not, and modes are those that git keeps. ``python -m docs.release --tag v0.1.0``
says what keeps a tag from being released, and ends with 1 where something does.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).absolute().parents[1]
EPOCH = "1580601600"
"""2 February 2020, as hatchling has it; a zip file knows no time before 1980."""


def build(folder: Path) -> list[Path]:
    """Return the sdist and the wheel, in a folder."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)
    made: list[Path] = []
    for builder in (SdistBuilder, WheelBuilder):
        made += map(Path, builder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    return made


def obstacles(tag: str, root: Path = ROOT) -> list[str]:
    """Say what keeps a tag such as ``v0.1.0`` from a release: files that say something else."""

    def found(file: str, pattern: str) -> str:
        match = re.search(pattern, (root / file).read_text("utf-8"), re.MULTILINE)
        return match[1] if match else "nothing"

    version = tag.removeprefix("v")
    says = {
        "attnviz/__init__.py": found("attnviz/__init__.py", r'^__version__ = "(.+)"$'),
        "CITATION.cff": found("CITATION.cff", r"^version: (.+)$"),
        "recipe/meta.yaml": found("recipe/meta.yaml", r'set version = "(.+)"'),
    }
    wrong = [f"{file} says {said}, not {version}" for file, said in says.items() if said != version]
    dated = found("CHANGELOG.md", rf"^## {re.escape(version)} \((.+)\)$")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", dated):
        wrong.append(f"CHANGELOG.md has {dated} as the day of {version}, not a date")
    if "/github/OWNER/" in (root / "docs" / "tour.ipynb").read_text("utf-8"):
        wrong.append("docs/tour.ipynb has OWNER in its badge, not the repository's")
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "--tag":
        lines = obstacles(sys.argv[2])
        print("\n".join(lines) or f"{sys.argv[2]} can be released")
        sys.exit(bool(lines))
    for path in build(Path(sys.argv[1])):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
