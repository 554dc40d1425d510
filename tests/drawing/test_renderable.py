"""Very many heads on the terminal: grids fold to the strongest heads, tables show the first."""

from __future__ import annotations

import re

import numpy as np
import pytest

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.grid import heads_grid
from attnviz.drawing.renderable import (
    FIRST_ROWS,
    MOST_LINES,
    MOST_ROWS,
    Tile,
    TileGrid,
    every_few,
    rows_shown,
)
from attnviz.drawing.signed import SignedGrid, signed
from attnviz.scoring.roles import ROLES
from tests.drawing.test_figure import report
from tests.drawing.test_terminal import printed

SIZES = ((32, 32), (80, 64))


def values(layers: int, heads: int) -> dict[Head, float]:
    """Of every head, without two that are written the same in one line."""
    rng = np.random.default_rng(layers)
    sizes = rng.permutation(layers * heads) / 1000 + 0.001
    signs = rng.choice([-1, 1], layers * heads)
    names = (Head(Site("decoder", n), i) for n in range(layers) for i in range(heads))
    return dict(zip(names, map(float, sizes * signs), strict=True))


def groups(text: str) -> list[tuple[range, list[str], int]]:
    """Every line of a folded grid: its layers, its heads in order, how many more there are."""
    found = []
    for line in text.splitlines()[1:]:
        start = re.match(r" *(\d+)(?:–(\d+))?  ", line)
        if start is None:
            break
        first, last = int(start[1]), int(start[2] or start[1])
        more = re.search(r"\+(\d+)$", line)
        heads = re.findall(r"(?<= )(\d+\.\d+) ", line[start.end() - 1 :])
        found.append((range(first, last + 1), heads, int(more[1]) if more else 0))
    return found


@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_folded_values_are_the_largest_of_their_layers(layers: int, heads: int) -> None:
    known = values(layers, heads)
    layout = Layout({"decoder": (heads,) * layers})
    text = printed(SignedGrid(layout, known, 5.0, -1), 100)
    lines = groups(text)
    assert [layer for some, _, _ in lines for layer in some] == list(range(layers))
    assert len(lines) <= 32
    for some, named, more in lines:
        here = sorted((h for h in known if h.layer in some), key=lambda h: -abs(known[h]))
        assert named == [head.name for head in here[: len(named)]]
        assert len(named) + more == len(here)
        assert signed(known[here[0]], 2, 3) in text
    assert f"of the {layers * heads:,} heads with a value" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_grid_that_can_be_read_is_whole() -> None:
    known = values(24, 16)
    text = printed(SignedGrid(Layout({"decoder": (16,) * 24}), known, 5.0, -1), 100)
    assert "strongest" not in text
    assert len(re.findall(r"[+-]\d", text)) == len(known)


def test_layers_without_anything_are_left_out_of_a_folded_grid() -> None:
    known = {head: value for head, value in values(32, 32).items() if head.layer in (4, 30)}
    lines = groups(printed(SignedGrid(Layout({"decoder": (32,) * 32}), known, 5.0, -1), 100))
    assert [list(some) for some, _, _ in lines] == [[4], [30]]
    tiles = {head: Tile("one", abs(value)) for head, value in known.items()}
    lines = groups(printed(TileGrid(Layout({"decoder": (32,) * 32}), tiles), 100))
    assert [(list(some), len(named) + more) for some, named, more in lines] == [
        ([4], 32),
        ([30], 32),
    ]


@pytest.mark.parametrize("width", [60, 100, 140])
def test_folded_roles_have_what_heads_do_first(width: int) -> None:
    found = report({"decoder": (64,) * 80})
    text = printed(heads_grid(found), width)
    assert len(text.splitlines()) <= MOST_LINES
    roles = {one.head.name: one.roles[0] for one in found.heads if one.roles}
    lines = groups(text)
    assert sum(len(named) + more for _, named, more in lines) == len(roles)
    for some, named, _ in lines:
        order = {n: (not ROLES[r.name].rests, r.evidence.mean) for n, r in roles.items()}
        here = sorted((n for n in order if int(n.split(".")[0]) in some), key=order.get)
        assert named == here[::-1][: len(named)]
    assert "no role" in text  # the legend counts all


def test_32_by_32_roles_stand_in_one_grid_where_there_is_room() -> None:
    text = printed(heads_grid(report({"decoder": (32,) * 32})), 100)
    assert "strongest" not in text
    assert len(text.splitlines()) < 50


def test_tables_show_all_that_can_be_read() -> None:
    assert [rows_shown(n) for n in (0, 144, MOST_ROWS)] == [0, 144, MOST_ROWS]
    assert rows_shown(MOST_ROWS + 1) == FIRST_ROWS
    assert rows_shown(5120, 1000) == 1000
    assert rows_shown(12, 40) == 12


def test_of_many_layers_every_few_and_the_last() -> None:
    assert list(every_few(range(33))) == list(range(33))
    assert list(every_few(range(81))) == list(range(2, 81, 3))
    assert list(every_few(range(127)))[-1] == 126
