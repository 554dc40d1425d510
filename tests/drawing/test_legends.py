"""The grid's legends agree: terminal, figure and page show one table of roles and one count."""

from __future__ import annotations

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console

import attnviz as av
from attnviz.drawing import grid_figure as figure_heads
from attnviz.drawing.grid import grids, heads_grid, tally
from attnviz.drawing.palette import FEW
from attnviz.scoring.roles import FEW_ROWS, ROLES
from tests.drawing.test_terminal import lines, shown

SHORT = "The keys to the cabinet"
LONG = "the keys to the cabinet were lost and then the keys to the cabinet were found again"


@pytest.fixture(params=[SHORT, LONG], ids=["few rows", "many rows"])
def report(request: pytest.FixtureRequest) -> av.Heads:
    return av.heads(request.param)


def drawn(report: av.Heads) -> Figure:
    return figure_heads.build(report, 100)


def legend_of(report: av.Heads) -> list[tuple[str, int, str]]:
    """Name, count and colour of each entry of the figure's legend."""
    axes = drawn(report).axes[-1]
    texts = {(t.get_position()[0] == 0.5, round(t.get_position()[1], 3)): t for t in axes.texts}
    numbers = {
        round(t.get_position()[1], 3): t.get_text() for t in axes.texts if t.get_ha() == "right"
    }
    colors = {round(p.get_y() + 0.08, 3): to_hex(p.get_facecolor()) for p in axes.patches}
    rows = [(y, text.get_text()) for (name, y), text in texts.items() if name]
    return [(text, int(numbers[y]), colors[y]) for y, text in sorted(rows)]


def test_names_order_counts_and_colours_agree(report: av.Heads) -> None:
    want = [(name or "no role", count) for name, count in tally(report)]
    assert sum(count for _, count in want) == len(report.heads)
    found = legend_of(report)
    assert [(name, count) for name, count, _ in found] == want
    assert all(color == ROLES[name].color for name, _, color in found if name in ROLES)
    text = "\n".join(lines(heads_grid(report), 100))
    names = "|".join([*ROLES, "no role"])
    assert [(n, int(c)) for n, c in re.findall(rf"({names}) (\d+)", text)] == want
    tiles = [cell.role for grid in grids(report) for row in grid.cells for cell in row if cell]
    assert [(n or "no role", tiles.count(n)) for n, _ in tally(report)] == want
    for line in shown(heads_grid(report), 100):
        legend = "".join(cell.char for cell in line)
        for entry in re.finditer(rf" ({'|'.join(ROLES)}) \d+", legend):
            assert line[entry.start() - 1].back == ROLES[entry[1]].color


@pytest.mark.parametrize("width", [30, 60, 100])
def test_few_rows_are_marked_everywhere(report: av.Heads, width: int) -> None:
    few = sum(bool(head.roles) and head.roles[0].few_rows for head in report.heads)
    note = f"{FEW}: fewer than {FEW_ROWS} rows"
    text = lines(heads_grid(report), width, color_system=None)
    tiles = [line for line in text if re.match(r"\d+ ", line)]
    assert sum(line.count(FEW) for line in tiles) == few
    assert (note in " ".join(text)) == bool(few)
    assert all(len(line) <= width for line in text)
    figure = drawn(report)
    codes = [text.get_text() for text in figure.axes[0].texts]
    assert sum(code.endswith(FEW) for code in codes) == few
    assert any(text.get_text() == note for text in figure.axes[-1].texts) == bool(few)


def test_a_dense_grid_underlines_what_rests_on_few_rows() -> None:
    from attnviz.core.scores import Score
    from tests.drawing import test_terminal

    rows = {("decoder", 0, i): [("previous", Score(0.9, 0.1, 9.0, 4))] for i in range(30)}
    report = test_terminal.report({"decoder": (30,)}, rows)
    console = Console(width=66, force_terminal=True, color_system="truecolor")
    drawn = console.render_lines(heads_grid(report), pad=False)
    tiles = [part for part in drawn[2] if part.text == "PR"]
    assert len(tiles) == 30
    assert all(part.style is not None and part.style.underline for part in tiles)
    said = " ".join(part.text for line in drawn for part in line)
    assert f"underlined: fewer than {FEW_ROWS} rows" in " ".join(said.split())
    assert FEW not in said
