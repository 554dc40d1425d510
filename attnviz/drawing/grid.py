"""The layer × head grid of a report as plain data: the terminal and the figures draw the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnviz.core.heads import SiteKind
from attnviz.core.scores import ScoredHeads
from attnviz.drawing.palette import FEW
from attnviz.scoring.roles import FEW_ROWS, drawn, in_order

KIND_TITLES: Mapping[SiteKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One head in the grid.

    Attributes:
        role: what it does, else where it rests, else None.
        strength: how much of it, 0..1.
        few: whether that rests on few rows.
        of: what the role is about, such as a relation.
    """

    role: str | None
    strength: float = 0.0
    few: bool = False
    of: str = ""

    def code(self, letters: int) -> str:
        """What a tile shows of the role, in so many letters at most; 2 for the short code."""
        if self.role is None:
            return ""
        style = drawn(self.role)
        if letters < len(style.code):
            return style.short
        return self.of[:letters] or style.code


@dataclass(frozen=True, slots=True)
class Grid:
    """The heads of one kind of site.

    ``cells[layer][head]`` is None where there is no such head in the report; all rows are as long
    as the widest layer. ``mixers`` are what the layers of a hybrid are, empty elsewhere.
    """

    title: str
    cells: tuple[tuple[Cell | None, ...], ...]
    mixers: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """The number of rows."""
        return len(self.cells)

    @property
    def heads(self) -> int:
        """The number of columns."""
        return max((len(row) for row in self.cells), default=0)


def grids(report: ScoredHeads) -> tuple[Grid, ...]:
    """One grid for each kind of site that has a head in the report.

    The title is empty where the model has only one kind.
    """
    by_place = {(scores.head.site, scores.head.index): scores for scores in report.heads}
    kinds = {scores.head.site.kind for scores in report.heads}
    out = []
    for kind in report.layout.kinds:
        if kind not in kinds:
            continue
        counts = report.layout.heads[kind]
        rows = []
        for site in report.layout.sites:
            if site.kind != kind:
                continue
            row: list[Cell | None] = []
            for index in range(max(counts)):
                scores = by_place.get((site, index))
                if scores is None:
                    row.append(None)
                elif not scores.roles:
                    row.append(Cell(None))
                else:
                    best = scores.roles[0]
                    strength = min(max(best.evidence.mean or 0.0, 0.0), 1.0)
                    row.append(Cell(best.name, strength, best.few_rows, best.of))
            rows.append(tuple(row))
        title = KIND_TITLES[kind] if len(report.layout.kinds) > 1 else ""
        out.append(Grid(title, tuple(rows), report.layout.mixers))
    return tuple(out)


def few_note(drawn: Sequence[Grid], mark: str = FEW) -> str:
    """What the mark of few rows means; empty where no cell of some grids has it."""
    cells = (cell for grid in drawn for row in grid.cells for cell in row)
    some = any(cell is not None and cell.few for cell in cells)
    return f"{mark}: fewer than {FEW_ROWS} rows" if some else ""


def tally(report: ScoredHeads) -> tuple[tuple[str | None, int], ...]:
    """How many heads show each role in the grid, in the order of legends; None (no role) last."""
    counts: dict[str | None, int] = {}
    for scores in report.heads:
        name = scores.roles[0].name if scores.roles else None
        counts[name] = counts.get(name, 0) + 1
    named = in_order(name for name in counts if name is not None)
    order: list[str | None] = [*named, None]
    return tuple((name, counts[name]) for name in order if name in counts)


def by_mixer(mixers: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The kinds of layers of a hybrid, each with the numbers of its layers, the first one first."""
    layers: dict[str, list[int]] = {}
    for layer, name in enumerate(mixers):
        layers.setdefault(name, []).append(layer)
    return list(layers.items())
