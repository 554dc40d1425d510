"""Colours: distinct for every kind of colour vision, even in lightness, legible."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console

import attnviz
import attnviz as av
from attnviz.core.scores import Score
from attnviz.drawing import grid_figure as figure_heads
from attnviz.drawing import palette
from attnviz.drawing.grid import grids, heads_grid, minus, tally
from attnviz.drawing.palette import FEW
from attnviz.errors import UsageError
from attnviz.scoring.roles import FEW_ROWS, ROLES, SHOWN
from tests.drawing.test_terminal import lines, shown

# Machado, Oliveira & Fernandes 2009, table 1, severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
TO_LMS = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
TO_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip


def oklab(color: str, vision: str = "normal") -> np.ndarray:
    part = np.array(palette.rgb(color)) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    return TO_LAB @ np.cbrt(TO_LMS @ seen)


@pytest.mark.parametrize("vision", VISION)
def test_role_colours_stay_apart(vision: str) -> None:
    seen = {style.name: oklab(style.color, vision) for style in SHOWN.values()}
    distances = {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(seen, 2)
    }
    assert min(distances.values()) > 0.085, min(distances, key=distances.__getitem__)


def test_role_codes_are_unique_and_short() -> None:
    styles = SHOWN.values()
    assert len({style.code for style in styles}) == len({style.short for style in styles}) == 14
    assert all(2 <= len(style.code) <= 4 and len(style.short) == 2 for style in styles)


def test_how_a_role_looks_stands_in_one_place() -> None:
    """No file but the table of roles names a role's colour: the renderers and the page take it."""
    package = Path(attnviz.__file__).parent
    colors = re.compile("|".join({role.color for role in SHOWN.values()}))
    found = {
        str(path.relative_to(package))
        for suffix in ("py", "js", "css", "html")
        for path in package.rglob(f"*.{suffix}")
        if colors.search(path.read_text("utf-8").lower())
    }
    assert found == {"scoring/roles.py"}


@pytest.mark.parametrize("name", ["viridis", "magma", "cividis"])
def test_sampled_palettes_follow_the_published_ones(name: str) -> None:
    ours = np.array([palette.rgb(color) for color in palette.ramp(name, 256)]) / 255
    published = mpl.colormaps[name](np.arange(256))[:, :3]
    assert np.abs(ours - published).max() < 0.045
    assert np.abs(ours - published).mean() < 0.005


@pytest.mark.parametrize("name", palette.PALETTES)
def test_lightness_is_even(name: str) -> None:
    lightness = np.array([oklab(color)[0] for color in palette.ramp(name, 33)])
    steps = np.diff(lightness) * np.sign(lightness[-1] - lightness[0])
    assert (steps > 0).all()
    assert steps[2:].max() < 3 * steps[2:].mean()  # magma leaves black faster than it goes on


def test_ink_reads_on_everything() -> None:
    for color in [*palette.ramp("viridis", 64), *palette.ramp("blues", 64)]:
        light = sorted([palette.luminance(color), palette.luminance(palette.ink(color))])
        assert (light[1] + 0.05) / (light[0] + 0.05) >= 4.5


def test_unknown_palette() -> None:
    with pytest.raises(UsageError, match="unknown palette 'jet': choose one of viridis, magma"):
        palette.ramp("jet")


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


@pytest.mark.parametrize(
    ("sentence", "written"),
    [
        ("the lead changes by -5.6 (mean), -5.7", "the lead changes by −5.6 (mean), −5.7"),
        ("-0.25 nats [-0.3, +.1]", "−0.25 nats [−0.3, +.1]"),
        ("looks at -5 (6) and at “-5”, ·-5", "looks at -5 (6) and at “-5”, ·-5"),
        ("gpt-2, log-prob, 2026-01-02, a-3", "gpt-2, log-prob, 2026-01-02, a-3"),
    ],
)
def test_a_sentence_has_minus_signs_and_its_tokens_stay(sentence: str, written: str) -> None:
    assert minus(sentence) == written
