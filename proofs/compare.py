"""``python -m proofs.compare [--time]``: the two questions of docs/compare.md, asked of each tool.

The code of that page is run as it stands there, on demo-gpt2 as transformers reads its folder, in
float32. What is printed is how many lines it takes, how far the numbers are from attnviz's, and
with ``--time`` how many times as long as attnviz's a call takes, the median of several, with the
model loaded. A tool that is not installed is named without figures.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import linecache
import re
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnviz as av
from attnviz.models.demo import DEMOS

PAGE = Path(__file__).absolute().parents[1] / "docs" / "compare.md"
TEXT = "the cat river moon stone bread the cat river moon stone"
OWN = "attnviz"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^### (.+?)\n+```python\n(.+?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """How a tool answers a question.

    Attributes:
        question: the section's heading.
        tool: its name, also on PyPI but for capitals and a hyphen.
        setup: code that loads the model, with its imports.
        code: leaves the answer in ``answer``: weights [queries, keys], or a logit.
    """

    question: str
    tool: str
    setup: str
    code: str

    @property
    def lines(self) -> int:
        """Lines of code without imports and blank lines."""
        lines = f"{self.setup}\n{self.code}".splitlines()
        return sum(bool(line.strip()) and not re.match("import |from ", line) for line in lines)

    @property
    def version(self) -> str:
        """Of the tool that is installed; empty where it is not."""
        if self.tool == OWN:
            return str(av.__version__)
        name = {"TransformerLens": "transformer-lens"}.get(self.tool, self.tool.lower())
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def loaded(self) -> dict[str, Any]:
        """Run the setup, and return its names."""
        names: dict[str, Any] = {"folder": str(DEMOS["demo-gpt2"]), "text": TEXT}
        exec(self.setup, names)
        return names

    def run(self, names: dict[str, Any]) -> NDArray[np.float64]:
        """Run the code, and return what it answers; a number as [1, 1]."""
        name = f"<{self.tool}, {self.question}>"
        linecache.cache[name] = (len(self.code), None, self.code.splitlines(True), name)  # nnsight
        exec(compile(self.code, name, "exec"), names)
        answer = names["answer"]
        answer = answer.detach() if hasattr(answer, "detach") else answer
        return np.atleast_2d(np.asarray(answer, np.float64))


def answers(page: str) -> list[Answer]:
    """Return every block of the page, in its order."""
    parts = (
        (question, tool, *code.split("\n\n", 2))
        for question, section in _SECTION.findall(page)
        for tool, code in _BLOCK.findall(section)
    )
    return [
        Answer(question, tool, f"{imports}\n{load}", code)
        for question, tool, imports, load, code in parts
    ]


def compared(page: str, timed: bool, repeats: int = 7) -> Iterator[tuple[str, ...]]:
    """Yield a row for each answer: question, tool, lines, difference, and times as long."""
    firsts: dict[str, tuple[NDArray[np.float64], float]] = {}
    for answer in answers(page):
        if not answer.version:
            yield answer.question, answer.tool, str(answer.lines), "not installed", ""
            continue
        names = answer.loaded()
        value, seconds = answer.run(names), list[float]()
        for _ in range(repeats if timed else 0):
            start = time.perf_counter()
            answer.run(names)
            seconds.append(time.perf_counter() - start)
        median = statistics.median(seconds or [1.0])
        baseline, shortest = firsts.setdefault(answer.question, (value, median))
        rows, keys = map(min, baseline.shape, value.shape)  # Inseq has the last row alone
        largest = np.abs(value[-rows:, :keys] - baseline[-rows:, :keys]).max()
        difference = "" if answer.tool == OWN else f"{largest:.0e}"
        tool = f"{answer.tool} {answer.version}"
        yield answer.question, tool, str(answer.lines), difference, f"{median / shortest:.1f}"


def table(page: str, timed: bool = False) -> Iterator[str]:
    """Yield the lines of the table, as Markdown."""
    head = ("question", "tool", "lines", "largest difference", "times as long")[: 4 + timed]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in compared(page, timed):
        yield f"| {' | '.join(row[: len(head)])} |"


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m proofs.compare", description=__doc__)
    parser.add_argument("--time", action="store_true", help="also how long calls take, as ratios")
    timed = parser.parse_args(arguments).time
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in table(PAGE.read_text("utf-8"), timed):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
