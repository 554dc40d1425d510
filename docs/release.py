"""Builds the sdist and the wheel: ``python -m docs.release FOLDER``.

The same files give the same bytes: nothing of the clock goes into them, for ``SOURCE_DATE_EPOCH``
is set where it is not, and modes are those that git keeps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).absolute().parents[1]
EPOCH = "1580601600"
"""2 February 2020, as hatchling has it; a zip file knows no time before 1980."""


def build(folder: Path) -> list[Path]:
    """The sdist and the wheel, in a folder."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)
    made: list[Path] = []
    for builder in (SdistBuilder, WheelBuilder):
        made += map(Path, builder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    return made


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
