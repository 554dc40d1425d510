"""What the terminal shows, read back cell by cell."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

import attnviz as av
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores, HeadsOf, Role, Score
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import grid, terminal
from attnviz.drawing.heatmap_terminal import ASCII_RAMP
from attnviz.drawing.palette import ramp
from attnviz.drawing.style import SINK_NOTE, Style
from attnviz.errors import InputError
from attnviz.scoring.roles import ROLES

WORDS = ("The", " keys", " to", " the", "cab", "inet", ",", " internationalization", " 1997", ".")


def tokens(count: int) -> Tokens:
    return Tokens(tuple(WORDS[i % len(WORDS)] for i in range(count)))


def causal(queries: int, keys: int, seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(queries, keys)) * 2
    if queries == keys:
        scores[np.triu_indices(queries, 1)] = -np.inf
    weights = np.exp(scores)
    return weights / weights.sum(axis=1, keepdims=True)


def score(mean: float, rows: int = 12) -> Score:
    return Score(mean, 0.1, mean / 0.1, rows)


def report(
    heads: dict[SiteKind, tuple[int, ...]],
    roles: dict[tuple[SiteKind, int, int], Sequence[tuple[str, Score]]],
    only: set[tuple[int, int]] | None = None,
) -> HeadsOf:
    layout = Layout(heads)
    scored = tuple(
        HeadScores(
            head,
            {"first": score(0.3), "previous": score(0.2), "entropy": Score(1.9, None, None, 9)},
            tuple(
                Role(name, name, evidence, evidence.rows < 8)
                for name, evidence in roles.get((head.site.kind, head.layer, head.index), ())
            ),
        )
        for head in layout
        if only is None or (head.layer, head.index) in only
    )
    sides = Sides(tokens(12), tokens(12))
    return HeadsOf(
        source=SourceInfo("gpt2\x1b[2J", "native", "exact within 2e-7"), layout=layout,
        inputs=Inputs(dict.fromkeys(layout.kinds, sides)), heads=scored,
    )  # fmt: skip


@dataclass
class Cell:
    char: str
    fore: str | None
    back: str | None


def shown(item: RenderableType, width: int = 80, **options: object) -> list[list[Cell]]:
    """The screen, one entry a cell; a wide character takes two."""
    settings: dict[str, object] = {"force_terminal": True, "color_system": "truecolor"}
    console = Console(file=io.StringIO(), width=width, legacy_windows=False, **(settings | options))
    screen = []
    for segments in console.render_lines(item, pad=False):
        line = []
        for segment in segments:
            style = segment.style
            pair = (style.color, style.bgcolor) if style and not console.no_color else (None, None)
            fore, back = (color.get_truecolor().hex if color else None for color in pair)
            for char in segment.text:
                line += [Cell(char, fore, back)] + [Cell("", fore, back)] * (cell_len(char) - 1)
        screen.append(line)
    return screen


def lines(item: RenderableType, width: int = 80, **options: object) -> list[str]:
    return ["".join(cell.char for cell in line).rstrip() for line in shown(item, width, **options)]


def printed(item: RenderableType, width: int = 80, **options: object) -> str:
    out = io.StringIO()
    Console(file=out, width=width, legacy_windows=False, **options).print(item)
    return out.getvalue()


# --- the grid of heads


@pytest.mark.parametrize("color", ["truecolor", None])
@pytest.mark.parametrize(
    ("layers", "heads", "width", "folds"),
    [
        (1, 8, 80, 1), (6, 12, 40, 1), (12, 12, 80, 1), (32, 32, 80, 1), (32, 32, 120, 1),
        (3, 96, 80, 4), (2, 12, 20, 2),
    ],
)  # fmt: skip
def test_every_head_stands_at_its_place(
    layers: int, heads: int, width: int, folds: int, color: str | None
) -> None:
    names = list(ROLES)
    roles = {
        ("decoder", layer, head): [(names[(layer * 7 + head) % 10], score(0.5))]
        for layer in range(layers)
        for head in range(heads)
        if (layer + head) % 3
    }
    item = grid.heads_grid(report({"decoder": (heads,) * layers}, roles))
    text = lines(item, width, color_system=color, force_terminal=color is not None)
    assert max(map(len, text)) <= width
    dense = (heads, width) == (32, 80)  # two letters a tile without a gap, only where coloured
    bodies = [re.match(r" *(\d+) (.*)", line) for line in text]
    rows: dict[int, list[str]] = {layer: [] for layer in range(layers)}
    for body in bodies:
        if body is not None and not re.fullmatch(r"[\d ]+", body[0]):
            codes = re.findall("..?", body[2]) if dense and color else body[2].split()
            rows[int(body[1])] += [code.strip() for code in codes]
    small = max(len(code) for row in rows.values() for code in row) == 2
    for layer, row in rows.items():
        expected = []
        for head in range(heads):
            role = roles.get(("decoder", layer, head))
            style = ROLES[role[0][0]] if role else None
            expected.append("·" if style is None else style.short if small else style.code)
        assert row == expected
    headers = [line for line in text if re.fullmatch(r" +[\d ]+", line)]
    numbers = [int(number) for line in headers for number in line.split()]
    if not dense:
        assert len(headers) == folds
        assert numbers == list(range(heads))
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0


def test_tiles_carry_colour_strength_and_capitals() -> None:
    roles = {
        ("encoder", 0, 0): [("previous", score(1.0))],
        ("encoder", 0, 1): [("previous", score(0.4))],
        ("encoder", 0, 2): [("induction", score(0.8)), ("duplicate", score(0.5))],
    }
    screen = shown(grid.heads_grid(report({"encoder": (4,)}, roles)))
    row = screen[2]
    text = "".join(cell.char for cell in row)
    strong, weak, other = text.index("PREV"), text.index("prev"), text.index("IND")
    assert row[strong].back == ROLES["previous"].color
    assert row[weak].back not in (None, row[strong].back)
    assert row[other].back not in (None, row[strong].back, row[weak].back)
    assert row[text.index("·")].back is None
    legend = "\n".join("".join(cell.char for cell in line) for line in screen[3:])
    assert re.search(r"prev +previous 2", legend)
    assert re.search(r"ind +induction 1", legend)
    assert "duplicate" not in legend
    assert re.search(r"· +no role 1", legend)


def test_encoder_decoder_and_ragged_layers_and_selections() -> None:
    kinds: dict[SiteKind, tuple[int, ...]] = {"encoder": (2, 2), "decoder": (2,), "cross": (3,)}
    roles = {("cross", 0, 2): [("self", score(0.6))]}
    text = lines(grid.heads_grid(report(kinds, roles)))
    assert [line for line in text if line.endswith("attention")] == [
        "encoder self-attention",
        "decoder self-attention",
        "cross-attention",
    ]
    ragged = lines(grid.heads_grid(report({"encoder": (1, 3)}, {})))
    assert [line.count("·") for line in ragged[2:4]] == [1, 3]
    chosen = report({"encoder": (3, 3)}, {}, only={(1, 1)})
    assert [line.count("·") for line in lines(grid.heads_grid(chosen))[2:4]] == [0, 1]


# --- the table and the closing line


def test_table_shows_evidence() -> None:
    roles = {
        ("encoder", 0, 1): [("previous", score(0.97)), ("local", score(0.99))],
        ("encoder", 1, 0): [("first", score(0.456, rows=5))],
    }
    full = report({"encoder": (2, 2)}, roles)
    text = lines(terminal.heads_table(full), 100)
    assert re.match(r"head +role +score +chance +lift +rows +also", text[0])
    assert re.match(r"0\.1 +previous +0\.97 +0\.10 +9\.7× +12 +local 0\.99$", text[2])
    assert re.match(r"1\.0 +first +0\.46 +0\.10 +4\.6× +5 +few rows$", text[3])
    assert text[4:] == [""]
    every = lines(terminal.heads_table(full, full.heads[::-1]), 100)
    assert [line[:3] for line in every[2:6]] == ["1.1", "1.0", "0.1", "0.0"]
    assert re.match(r"1\.1 +· \(first\) +0\.30 +0\.10 +3\.0× +12$", every[2])
    small = lines(terminal.heads_table(full), 40)
    assert re.match(r"head +role +score +lift +rows$", small[0])
    assert re.match(r"1\.0 +first +0\.46 +4\.6× +5 few$", small[3])
    assert lines(terminal.heads_table(full, []))[0] == "no head to list"
    none = report({"encoder": (2,)}, {})
    assert lines(terminal.heads_table(none))[0] == "no head shows a role on this input"


def test_heads_without_comparable_scores_are_listed() -> None:
    head = HeadScores(Head(Site("encoder", 0), 0), {"entropy": Score(1.9, None, None, 9)}, ())
    full = report({"encoder": (1,)}, {})
    assert re.match(r"0\.0 +·$", lines(terminal.heads_table(full, [head]))[2])


def test_heads_of_several_kinds_are_told_apart() -> None:
    kinds: dict[SiteKind, tuple[int, ...]] = {"encoder": (2,), "cross": (2,)}
    full = report(kinds, {("cross", 0, 1): [("self", score(0.6))]})
    assert lines(terminal.heads_table(full))[2].startswith("cross:0.1")


@pytest.mark.parametrize("score", [None, "entropy", "distance", "duplicate_no_sink"])
def test_nothing_in_the_table_is_cut(score: str | None) -> None:
    """Columns that find no room are left out, in place of pieces of words."""
    found = av.heads("the cat and the dog and the cat sat by the dog and the cat")
    table = terminal.HeadsTable(found, found.heads, score)
    shown_also = set()
    for width in range(72, 145, 24):
        head, _, *rows = printed(table, width).splitlines()
        for one in found.heads:
            name, role, *_, also = table.row(one)
            assert any(row.startswith(f"{name} ") and str(role) in row for row in rows)
            told = "".join(rows) if "also" in head else str(also)
            assert all(word in told for word in str(also).split())
        assert score is None or score in head
        shown_also.add("also" in head)
    assert score is None or shown_also == {True, False}


def test_closing_line() -> None:
    line = lines(terminal.closing_line(report({"encoder": (2,)}, {})), 120)
    assert line == ["gpt2␛[2J · native backend · exact within 2e-7 · 12 tokens · cpu float32"]


def test_the_closing_line_of_several_texts_counts_them_all() -> None:
    several = [av.capture(text, model="demo-bert") for text in ("one two", "one", "a b c d e")]
    (line,) = lines(terminal.closing_line(*several), 200)
    total = sum(len(one.tokens) for one in several)
    assert f" · 3 texts, {total} tokens · " in line
    both = av.capture(av.Prompt("a b c", pair="d e"), model=av.FreshConfig(kind="cross"))
    assert " · 2 texts, 10 tokens · " in lines(terminal.closing_line(both, both), 200)[0]


# --- heatmaps


def split(screen: list[list[Cell]]) -> list[list[Cell]]:
    """The painted cells of the map's rows (those with a background or a half-block)."""
    return [
        [cell for cell in line if cell.back is not None or cell.char == "▀"]
        for line in screen
        if sum(cell.back is not None or cell.char == "▀" for cell in line) > 0
    ][:-1]  # the last is the legend's scale


def colors_of(shares: np.ndarray) -> list[list[str]]:
    return [[ramp("viridis")[round(float(s) * 255)] for s in row] for row in shares]


@pytest.mark.parametrize("normalize", ["row", "global"])
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (7, 7), (20, 20), (3, 14)])
def test_cells_have_the_colours_of_their_weights(size: tuple[int, int], normalize: str) -> None:
    weights = causal(*size)
    sides = Sides(tokens(size[0]), tokens(size[1]))
    painted = split(shown(terminal.heatmap(weights, sides, style=Style(normalize=normalize))))
    top = weights.max(axis=1, keepdims=True) if normalize == "row" else weights.max()
    expected = colors_of(weights / top)
    assert len(painted) == size[0]
    width = len(painted[0]) // size[1]
    for line, row in zip(painted, expected, strict=True):
        assert [cell.back for cell in line] == [color for color in row for _ in range(width)]


def test_half_blocks_hold_two_rows() -> None:
    weights = causal(61, 61)
    item = terminal.heatmap(weights, Sides(tokens(61), tokens(61)))
    screen = shown(item)
    painted = split(screen)
    expected = colors_of(weights / weights.max())
    assert len(painted) == 31
    for place, line in enumerate(painted):
        assert {cell.char for cell in line} == {"▀"}
        assert [cell.fore for cell in line] == expected[2 * place]
        lower = expected[2 * place + 1] if place < 30 else [None] * 61
        assert [cell.back for cell in line] == lower
    text = lines(item)
    assert any(line.startswith("60 The") for line in text)
    listed = " ".join(text[text.index(next(t for t in text if t.startswith("tokens:"))) :])
    found = dict(re.findall(r"(\d+) (\S+)", listed))
    assert found == {
        str(i): ("·" + w[1:] if w[0] == " " else w) for i, w in enumerate(tokens(61).texts)
    }


@pytest.mark.parametrize(
    ("color", "width"),
    [("truecolor", 40), ("truecolor", 80), ("256", 120), (None, 40), (None, 80), (None, 120)],
)
@pytest.mark.parametrize(
    "size", [(1, 1), (2, 2), (10, 10), (32, 32), (128, 128), (500, 500), (10, 90), (300, 5)]
)
def test_nothing_is_wider_than_the_screen(
    size: tuple[int, int], color: str | None, width: int
) -> None:
    item = terminal.heatmap(
        causal(*size), Sides(tokens(size[0]), tokens(size[1])), title="head 0.0"
    )
    text = lines(item, width, color_system=color, force_terminal=color is not None)
    assert text[0] == "head 0.0"
    assert max(map(cell_len, text)) <= width
    assert len(text) < 150
    assert any("keys (attended to)" in line for line in text)


def test_too_many_tokens_are_binned_by_their_largest_weight() -> None:
    weights = np.full((200, 200), 1e-4)
    weights[150, 77] = 0.9
    item = terminal.heatmap(weights, Sides(tokens(200), tokens(200)))
    screen = shown(item)
    said = " ".join(lines(item))
    step = re.search(
        r"200 × 200 tokens do not fit: each cell shows the largest weight of (\d+) × \1 tokens",
        said,
    )
    assert step is not None
    size = int(step[1])
    bright = [
        (2 * row + half, column)
        for row, line in enumerate(split(screen))
        for column, cell in enumerate(line)
        for half, color in enumerate((cell.fore, cell.back))
        if color == ramp("viridis")[-1]
    ]
    assert bright == [(150 // size, 77 // size)]


def test_without_colours_density_stands_for_weight() -> None:
    weights = np.zeros((22, 22))
    weights[:, 0] = 1 - np.arange(22) / 44
    weights[:, 1] = np.arange(22) / 44
    sides = Sides(tokens(22), tokens(22))
    text = printed(terminal.heatmap(weights, sides))
    assert "\x1b" not in text
    rows = [line.split("│")[1] for line in text.splitlines() if "│" in line]
    assert len(rows) == 22
    width = len(rows[0]) // 22
    for row, drawn in zip(weights, rows, strict=True):
        density = [ASCII_RAMP[min(int(w * 10), 9)] for w in row]
        assert drawn == "".join(char * width for char in density)
    assert f"0 '{ASCII_RAMP}' 1 (weight)" in text


def test_few_tokens_show_their_weights_in_figures() -> None:
    weights = np.array([[1.0, 0.0], [0.972, 0.028]])
    item = terminal.heatmap(weights, Sides(tokens(2), tokens(2)))
    for text in (printed(item), "\n".join(lines(item))):
        assert [re.findall(r"1\.0|\.\d\d", line) for line in text.splitlines()[1:3]] == [
            ["1.0"],
            [".97", ".03"],
        ]


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    full = report({"encoder": (4,)}, {("encoder", 0, 0): [("self", score(0.9))]})
    item = terminal.heatmap(causal(30, 30), Sides(tokens(30), tokens(30)))
    for thing in (grid.heads_grid(full), terminal.heads_table(full), item):
        text = printed(thing, force_terminal=True, color_system="truecolor")
        assert not re.search(r"\x1b\[[0-9;]*(3|4)8;", text)
        assert "▀" not in text


def test_ascii_terminals_get_ascii() -> None:
    odd = Tokens(("日本", "\x1b[2J", " é", "\u202eabc"))
    full = report({"encoder": (4,)}, {("encoder", 0, 0): [("self", score(0.9, rows=3))]})
    things = [
        grid.heads_grid(full), terminal.heads_table(full, full.heads), terminal.closing_line(full),
        terminal.heatmap(causal(4, 4), Sides(odd, odd), title="head é"),
        terminal.heatmap(causal(200, 200), Sides(tokens(200), tokens(200))),
    ]  # fmt: skip
    for thing in things:
        raw = io.BytesIO()
        file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
        Console(file=file, width=80, legacy_windows=False).print(thing)
        file.flush()
        assert raw.getvalue().isascii()


@pytest.mark.parametrize("count", [4, 25, 60])
@pytest.mark.parametrize("force", [True, False])
def test_hostile_tokens_do_nothing(count: int, force: bool) -> None:
    hostile = (
        "\x1b[2J\x1b]0;owned\x07", "\r\n", "\x9b31m", "\u202egnp", "[red]markup[/red]",
        "[link=http://x]y", "\u2066", "\x08\x08",
    )  # fmt: skip
    sides = Sides(*[Tokens(tuple(hostile[i % 8] for i in range(count)))] * 2)
    item = terminal.heatmap(causal(count, count), sides, title="\x1b[31m[bold]head")
    text = printed(item, 120, force_terminal=force, color_system="truecolor" if force else None)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert not set("\x1b\x07\r\x08\x9b\u202e\u2066") & set(plain.replace("\n", ""))
    assert "\x1b[31m" not in text
    assert plain.splitlines()[0].startswith("␛[31m[bold]head")
    assert count == 4 or "[red]mark" in plain


def test_wide_and_right_to_left_labels_keep_the_columns() -> None:
    texts = ("你好世界", "שלום", "keys", "한국", "ไทย", "e\u0301a", "😀", "مرحبا")
    for count in (8, 24):
        many = Tokens(tuple(texts[i % 8] for i in range(count)))
        text = printed(terminal.heatmap(causal(count, count), Sides(many, many)))
        edges = {
            cell_len(
                re.sub("[\u2066-\u2069]", "", x)[: re.sub("[\u2066-\u2069]", "", x).index("│")]
            )
            for x in text.splitlines()
            if "│" in x
        }
        assert len(edges) == 1
        assert "\u2068שלום\u2069" in text


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\) does not fit 2 query and 2 key tokens"),
        (np.ones(4), r"shape \(4,\) does not fit"),
        (np.array([[1.0, np.nan], [0.5, 0.5]]), "NaN or infinite"),
    ],
)
def test_maps_that_cannot_be_drawn(weights: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        terminal.heatmap(weights, Sides(tokens(2), tokens(2)))


def test_wrong_options_and_empty_maps() -> None:
    sides = Sides(tokens(2), tokens(2))
    with pytest.raises(InputError, match="nothing to draw"):
        terminal.heatmap(np.ones((0, 0)), Sides(Tokens(()), Tokens(())))
    for normalize in ("row", "global"):
        blank = terminal.heatmap(np.zeros((2, 2)), sides, style=Style(normalize=normalize))
        assert {cell.back for line in split(shown(blank)) for cell in line} == {"#440154"}


def test_a_common_top_makes_maps_comparable() -> None:
    weights = np.array([[0.25, 0.25], [0.5, 0.0]])
    item = terminal.heatmap(weights, Sides(tokens(2), tokens(2)), top=1.0)
    backs = {cell.back for cell in split(shown(item))[1]}
    assert backs == {ramp("viridis")[128], ramp("viridis")[0]}


def paired(count: int, second: int) -> Tokens:
    segments = tuple(int(place >= second) for place in range(count))
    return Tokens(tokens(count).texts, segments=segments)


@pytest.mark.parametrize(("count", "width"), [(4, 80), (20, 80), (60, 100), (150, 80)])
@pytest.mark.parametrize("color", [None, "truecolor"])
def test_lines_stand_where_the_sentences_of_a_pair_meet(
    count: int, width: int, color: str | None
) -> None:
    second = count // 2 - 1
    both = paired(count, second)
    item = terminal.heatmap(causal(count, count), Sides(both, both))
    text = lines(item, width, color_system=color)
    assert all(len(line) <= width for line in text)
    if color is None:  # the right edge
        text = [line.removesuffix("│") for line in text]
    (rule,) = (number for number, line in enumerate(text) if "─" in line)
    cross = text[rule].index("┼")
    column = [line[cross : cross + 1] for line in text]
    ends = [number for number, char in enumerate(column) if char in ("│", "┼")]
    assert ends[0] < rule < ends[-1]
    assert ends == list(range(ends[0], ends[-1] + 1)), "one line from the first row to the last"
    before, after = text[rule].strip(" │").split("┼")
    assert len(before) / len(before + after) == pytest.approx(second / count, abs=0.02)


def test_a_map_without_the_sink_says_so() -> None:
    one = tokens(3)
    item = terminal.heatmap(causal(3, 3), Sides(one, one), style=Style(hide="sink"))
    assert SINK_NOTE in lines(item)
