"""A check described: the verdict, every problem, and a row for each problem or bug."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from attnviz.attention.walkthrough import plain_steps
from attnviz.drawing.description import Column, Listing, plain
from attnviz.drawing.labels import counted
from attnviz.drawing.terminal import Line
from attnviz.features.check.result import Bug, FileCheck, ModuleCheck


def parts(result: FileCheck | ModuleCheck) -> Iterator[Any]:
    """Yield the verdict, and below it every problem."""
    if isinstance(result, ModuleCheck):
        yield from _module(result)
    else:
        yield from _file(result)


def _file(result: FileCheck) -> Iterator[Any]:
    if result.holds:
        for kind, (layers, heads, queries, keys) in result.shapes.items():
            size = f"{layers} layers × {heads} heads, {queries} queries × {keys} keys"
            yield Text(f"{result.file}: {result.format}, {kind}, {size}")
        if result.items > 1:
            yield f"a batch of {counted(result.items, 'item')}"
        yield "can be read"
        return
    yield Text(f"{result.file}: {result.format}, {counted(len(result.problems), 'problem')}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("where", "expected", "found"):
        table.add_column(name, overflow="fold")
    for problem in result.problems:
        table.add_row(*map(Text, (problem.path or "the file", problem.expected, problem.found)))
    yield table


def _module(result: ModuleCheck) -> Iterator[Any]:
    yield Line(verdict(result), "bold" if result.right else "bold red")
    steps = plain_steps()
    for bug in result.bugs:
        yield ""
        yield Line(f"{bug.step}: {bug.what}", "bold")
        yield Line(f"change: {bug.change}")
        yield Line(f"why: {steps[bug.step].why}", "dim")
        if bug.off is not None:
            yield Line(off(bug), "dim")
    if not result.bugs:
        for test in result.failed:
            yield Line(test)
    if result.sizes:
        batch, tokens, width = result.sizes
        yield Line(
            f"called in float64, without dropout, with {batch} × {tokens} tokens of D = {width}; "
            f"{counted(result.heads, 'map')} an item",
            "dim",
        )


def verdict(result: ModuleCheck) -> str:
    """Return the sentence that says what was found."""
    if result.right:
        return f"{result.module} is right: every step from Q and K to the output holds"
    if result.bugs:
        named = ", ".join(bug.name for bug in result.bugs)
        return f"{result.module} has {counted(len(result.bugs), 'bug')}: {named}"
    return f"{result.module}: nothing is named, and not everything holds or could be followed"


def off(bug: Bug) -> str:
    """How far the output is off, before and after the step is mended."""
    mended = "" if bug.after is None else f", and by {bug.after:.1e} once that is mended"
    return f"the output is off by up to {bug.off:.3g}{mended}"


def listing(result: FileCheck | ModuleCheck) -> Listing:
    """List each problem, where it is and what was expected; of a module each bug."""
    if isinstance(result, FileCheck):
        columns = [Column("file", lambda _: result.file), *plain("path", "expected", "found")]
        return Listing(columns, result.problems)

    def of(name: str) -> Column:
        return Column("bug" if name == "name" else name, lambda bug: bug and getattr(bug, name))

    return Listing(
        [
            Column("module", lambda _: result.module),
            Column("verdict", lambda _: result.verdict),
            *map(of, ("name", "step", "what", "change", "off", "after")),
        ],
        result.bugs or [None],
    )
