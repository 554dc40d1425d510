"""Relations of a treebank described: the grid, their table, whole sentences, controls, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Interval, Measure, Value
from attnviz.corpus.gold.tally import ALL
from attnviz.drawing.console import FULL, Tile, coloured, renderable, table_of, tile_grid
from attnviz.drawing.description import (
    Column,
    Listing,
    by_case,
    estimate,
    estimate_column,
    head_column,
    interval,
    percent,
    plain_percent,
    plain_share,
    points,
)
from attnviz.drawing.labels import counted, isolate, model_name, ran_on, shorten, signs, visible
from attnviz.drawing.terminal import Line
from attnviz.features.syntax import arcs
from attnviz.features.syntax import result as records
from attnviz.features.syntax.arcs import SHORT, DrawnArc, WordLine, drawn_arcs, levels, line_up
from attnviz.models.controls import Scale

_GAP = 2  # cells between two words
_LONGEST = 24  # cells of a word
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_BOXES = {
    _UP: "│", _DOWN: "│", _UP | _DOWN: "│", _LEFT: "─", _RIGHT: "─", _LEFT | _RIGHT: "─",
    _RIGHT | _DOWN: "╭", _LEFT | _DOWN: "╮", _RIGHT | _UP: "╰", _LEFT | _UP: "╯",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤",
    _LEFT | _RIGHT | _DOWN: "┬", _LEFT | _RIGHT | _UP: "┴",
}  # fmt: skip
_DASHED = {"─": "╌", "│": "╎"}
_PLAIN = {"─": "-", "│": "|", "╌": ".", "╎": ":", "▼": "v", "▲": "^"}
_STYLES = {None: "", True: "#3f8fd2", False: "#d0701c"}
"""Of gold, right and wrong arcs; they read on light and on dark terminals."""


@renderable
def arc_sentence(console: Console, options: ConsoleOptions, parse: records.Parse) -> RenderResult:
    """Yield a sentence with gold arcs above and predicted ones below."""
    ascii_only = options.ascii_only
    words = [
        shorten(visible(word, ascii_only=ascii_only), _LONGEST, ascii_only=ascii_only)
        for word in parse.words
    ]
    above, below = drawn_arcs(parse, ascii_only=ascii_only)
    first, last = _window([cell_len(word) for word in words], above, below, options.max_width)
    pairs = [
        (_moved(upper, first), _moved(lower, first))
        for upper, lower in zip(above, below, strict=True)
        if first <= min(upper.left, lower.left) and max(upper.end, lower.end) < last
    ]
    fitting = words[first:last]
    line = _line([cell_len(word) for word in fitting], [arc for pair in pairs for arc in pair])
    yield Text(visible(parse.name, ascii_only=ascii_only), "dim")
    yield from _rows([upper for upper, _ in pairs], line, ascii_only, upwards=True)
    text, end = Text(no_wrap=True), 0
    for word, start in zip(fitting, line.lefts, strict=True):
        text.append(" " * (int(start) - end) + isolate(word), "bold")
        end = int(start) + cell_len(word)
    yield text
    yield from _rows([lower for _, lower in pairs], line, ascii_only, upwards=False)
    cut, lost_arcs = len(words) - len(fitting), len(above) - len(pairs)
    if cut:
        note = (
            f"too wide: {cut} of {len(words)} words and {lost_arcs} of {len(above)} arcs are cut; "
            "a picture has all of them"
        )
        yield Text(signs(note, ascii_only), "dim")
    yield Text("")


def _moved(arc: DrawnArc, first: int) -> DrawnArc:
    return DrawnArc(arc.head - first, arc.dependent - first, arc.label, arc.right)


def _line(widths: Sequence[int], arcs: Sequence[DrawnArc]) -> WordLine:
    """Whole cells for everything."""
    odd = [float(width - (width + 1) % 2) for width in widths]  # so that a middle is a cell
    line = line_up(
        [max(w, 1.0) for w in odd], _GAP + 1, 1, [(arc, cell_len(arc.label) + 3.0) for arc in arcs]
    )
    return WordLine(tuple(float(int(start)) for start in line.lefts), line.widths, 1)


def _window(
    widths: Sequence[int], above: Sequence[DrawnArc], below: Sequence[DrawnArc], room: int
) -> tuple[int, int]:
    """Give the words to draw, the first and the one after the last: all, or where most arcs fit."""
    best, best_count = (0, 1), -1
    for first in range(len(widths)):
        last = first + 1
        for end in range(first + 1, len(widths) + 1):
            inside = [
                _moved(arc, first)
                for pair in zip(above, below, strict=True)
                if first <= min(b.left for b in pair) and max(b.end for b in pair) < end
                for arc in pair
            ]
            line = _line(widths[first:end], inside)
            if line.lefts[-1] + widths[end - 1] > room:
                break
            last, count = end, len(inside)
            if count > best_count:
                best, best_count = (first, end), count
        if best[0] == first:
            best = (first, last)
        if last == len(widths):
            break
    return best


def _rows(
    arcs: Sequence[DrawnArc], line: WordLine, ascii_only: bool, *, upwards: bool
) -> Iterator[Text]:
    """Yield the lines of text above or below the words."""
    heights = levels(arcs)
    columns = int(line.width) + 4
    cells: dict[tuple[int, int], tuple[int, bool | None]] = {}
    letters: dict[tuple[int, int], tuple[str, bool | None]] = {}

    def add(row: int, column: int, bits: int, right: bool | None) -> None:
        previous, _ = cells.get((row, column), (0, None))
        cells[row, column] = previous | bits, right

    for arc, height in sorted(zip(arcs, heights, strict=True), key=lambda pair: -pair[1]):
        start, arrow = (int(end) for end in line.ends(arc))
        left, right = sorted((start, arrow))
        for column in (start, arrow):
            for row in range(height):
                add(row, column, _UP | _DOWN, arc.right)
            add(height, column, (_DOWN if upwards else _UP), arc.right)
        for column in range(left, right + 1):
            bits = (_LEFT if column > left else 0) | (_RIGHT if column < right else 0)
            add(height, column, bits, arc.right)
        letters[0, arrow] = "▼" if upwards else "▲", arc.right
        label = f" {arc.label} " if right - left > cell_len(arc.label) + 2 else arc.label
        column = left + (right - left + 1 - cell_len(label)) // 2
        for letter in label:
            letters[height, column] = letter, arc.right
            column += cell_len(letter)
    rows = range(max(heights, default=0) + 1)
    for row in reversed(rows) if upwards else rows:
        text, column = Text(no_wrap=True), 0
        while column < columns:
            letter, shade = letters.get((row, column), ("", None))
            if not letter:
                bits, shade = cells.get((row, column), (0, None))
                letter = _BOXES.get(bits, "┼") if bits else " "
                letter = _DASHED.get(letter, letter) if shade is False else letter
                if ascii_only and letter != " ":
                    letter = _PLAIN.get(letter, "+")
            elif ascii_only:
                letter = _PLAIN.get(letter, letter)
            text.append(letter, _STYLES[shade])
            column += cell_len(letter)
        text.rstrip()
        if text.plain:
            yield text


WITHOUT: Mapping[Scale, str] = {"default": "untrained", "trained": "shuffled"}
"""Weights with nothing learned in them, as columns and lines call them."""


def scales(result: records.Syntax) -> tuple[Scale, ...]:
    """Return the kinds of weights without training that there are."""
    return tuple(dict.fromkeys(control.scale for control in result.untrained))


def measured(result: records.Syntax) -> str:
    """Return what was measured on what, in one line."""
    if result.chosen_on == result.measured_on:
        chosen = f"head and offset chosen and measured on {result.measured_on}"
    else:
        chosen = f"head and offset chosen on {result.chosen_on}, measured on {result.measured_on}"
    parts = [
        f"{result.sentences:,} sentences, {result.words:,} words",
        f"{result.texts:,} {result.unit} as clusters",
        chosen,
        "95 % intervals",
        ran_on(result.source),
    ]
    return " · ".join(parts)


def parts(result: records.Syntax, *, relation: str | None = None) -> Iterator[RenderableType]:
    """Yield the grid, the table, sentences with arcs, what whole ones tell, and the legends."""
    if relation is None:
        yield syntax_grid(result)
    yield syntax_table(result, result.named(relation))
    yield ""
    for parse in result.shown:
        yield arc_sentence(parse)
    for line in arcs.lines(result):
        yield Line(line, "dim")
    if result.shown:
        yield ""
    if result.trees or result.rooted or result.combined:
        yield whole_table(result)
        yield ""
    yield Line(legend(result), "dim")
    for line in control_lines(result):
        yield Line(line, "dim")
    for line in whole_lines(result):
        yield Line(line, "dim")
    yield Line(measured(result), "dim")


def strongest(report: records.Syntax) -> dict[Head, records.RelationHead]:
    """Of each head with syntactic roles the one with the largest margin."""
    best: dict[Head, records.RelationHead] = {}
    for role in report.roles:
        margin = role.margin.value or 0.0
        if role.head not in best or margin > (best[role.head].margin.value or 0.0):
            best[role.head] = role
    return best


@renderable
def syntax_grid(console: Console, options: ConsoleOptions, report: records.Syntax) -> RenderResult:
    """Layers downwards, heads across, each with the relation that it finds."""
    tiles = {
        head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
        for head, role in strongest(report).items()
    }
    yield tile_grid(report.layout, tiles)
    end = f"; full colour at {100 * FULL:.0f} points" if coloured(console) else ""
    tested = (
        f"Holm over {counted(report.asked, 'question')}"
        if report.asked
        else "nothing to test: no head came that far, or there are too few documents"
    )
    yield Text(
        "the relation that a head finds in a quarter of the cases or more, ten points or more "
        f"above the best fixed offset, and significantly above it ({tested}){end}",
        "dim",
    )
    yield Text("")


def syntax_table(report: records.Syntax, relations: Sequence[records.Relation]) -> RenderableType:
    """Show a line for each relation: the chosen head, its accuracy, and the best offset's."""
    sure = {(role.head, role.relation) for role in report.roles}

    def without(scale: Scale) -> Column:
        return Column("", lambda relation: highest(report, scale, relation.name), WITHOUT[scale])

    def is_dim(relation: records.Relation) -> bool:
        named = relation.best and (relation.best.head, relation.name) in sure
        return not named and relation.name != "all"

    titles = [*columns(report), *map(without, scales(report))]
    return Listing(titles, relations, is_unknown, dim=is_dim).table(no_wrap=True)


def is_unknown(relation: records.Relation) -> bool:
    """Whether no case is left to measure a relation on."""
    return relation.best is None or relation.best.accuracy.value is None


def highest(report: records.Syntax, scale: Scale, name: str) -> str:
    """Return the accuracy of the best head without training, in %, the highest of all seeds."""
    accuracies = [
        relation.best.accuracy
        for control in report.untrained
        if control.scale == scale
        for relation in control.relations
        if relation.name == name and relation.best and relation.best.accuracy.value is not None
    ]
    return percent(max(accuracies, key=lambda share: share.value or 0.0)) if accuracies else "–"


def legend(report: records.Syntax) -> str:
    """Return what the columns mean, in one line."""
    meaning = (
        f"cases: in {report.measured_on}; by row: where the dependent looks; by column: who looks "
        "most at it; offset: the best fixed distance to the head; points: accuracy above it"
    )
    kinds = scales(report)
    if not kinds:
        return meaning
    seeds = sum(control.scale == kinds[0] for control in report.untrained)
    return (
        f"{meaning}; {', '.join(WITHOUT[scale] for scale in kinds)}: % of the best head of weights "
        "as drawn before training, and of the trained ones in random order, chosen and measured "
        f"likewise, the highest of {seeds} seed{'s' * (seeds > 1)}"
    )


def control_lines(report: records.Syntax) -> Iterator[str]:
    """How many heads get a role without training, a line for each kind of weights."""
    for scale in scales(report):
        runs = [control for control in report.untrained if control.scale == scale]
        heads = [len({role.head for role in run.roles}) for run in runs]
        line = (
            f"{model_name(report.source)}, {WITHOUT[scale]} (seed"
            f"{'s' * (len(runs) > 1)} {', '.join(str(run.seed) for run in runs)}): "
            f"{', '.join(str(count) for count in heads)} of {len(report.layout)} heads syntactic"
        )
        relations = dict.fromkeys(visible(role.relation) for run in runs for role in run.roles)
        yield f"{line} ({', '.join(relations)}), which needs no training" if relations else line


_count = "{:,}".format


def listing(result: records.Syntax) -> Listing:
    """List each relation: ``count`` cases in all, ``held_out`` those that are measured on."""
    return Listing(columns(result), result.relations)


def columns(report: records.Syntax) -> list[Column]:
    """Describe a relation: its best head, its accuracy, and the best fixed offset's."""
    sure = {(role.head, role.relation) for role in report.roles}

    def best(name: str) -> Callable[[records.Relation], Any]:
        return lambda relation: relation.best and getattr(relation.best, name)

    def is_role(relation: records.Relation) -> bool | None:
        return None if (best := relation.best) is None else (best.head, relation.name) in sure

    return [
        Column("relation", "name", "relation", visible, left=True),
        Column("count", "count"),
        Column("", lambda relation: relation.best.count if relation.best else 0, "cases", _count),
        replace(head_column(report.layout, best("head")), left=False),
        Column("direction", best("direction"), "by", SHORT.__getitem__, left=True),
        estimate_column("accuracy", best("accuracy"), "%", percent, interval),
        Column("held_out", best("count")),
        Column("offset", best("offset"), "offset", "{:+d}".format),
        Column("offset_accuracy", best("offset_accuracy"), "baseline %", plain_percent),
        estimate_column("margin", best("margin"), "points", points, interval),
        Column("role", is_role),
    ]


_RELATIONS = 3  # how many a head is told to find


def finding(result: records.Syntax, name: str) -> Finding:
    """Return the relations that no other head finds as well."""
    roles = {(role.head, role.relation) for role in result.roles}
    best = [
        relation.best
        for relation in result.relations
        if relation.name != ALL and relation.best and relation.best.margin.value is not None
    ]
    best.sort(
        key=lambda leader: (
            (leader.head, leader.relation) not in roles,
            -(leader.margin.value or 0.0),
        )
    )
    text: dict[str, list[str]] = {}
    margins: dict[str, Value] = {}
    for leader in best:
        head = result.layout.name(leader.head)
        lines = text.setdefault(head, [])
        if len(lines) < _RELATIONS:
            lines.append(
                f"{leader.relation} {estimate(leader.accuracy)} of {leader.count:,}, best offset "
                f"{plain_share(leader.offset_accuracy)}"
                + ("" if (leader.head, leader.relation) in roles else " (no role)")
            )
        margin = leader.margin.value or 0.0
        if head not in margins or margin > margins[head][0]:
            margins[head] = (margin, leader.margin.low, leader.margin.high)
    title = "largest lead over the best offset, of the relations it finds best"
    how = (
        f"How often it points at the gold head or dependent, in {result.measured_on} that no "
        "head was chosen on; the best fixed offset beside it; 95 % intervals."
    )
    measure = Measure("lead", title, "", -1, margins, ("behind the offset", "ahead of it"))
    return Finding.of("syntax", name, "Relations it finds best of all heads", how, text, [measure])


def figures(result: records.Syntax) -> Figures:
    """Accuracies on all data, by relation and direction, and the relations that are roles."""
    settings = {"subtypes": str(result.subtypes), "punct": str(result.punct)}
    return by_case(result, result.relations, records.DIRECTIONS, settings)


Row = tuple[str, Interval, Interval | None]
"""What was measured, its share, and by how much it is above what its column says."""


def whole_table(report: records.Syntax) -> RenderableType:
    """One line for each way to a whole tree, baselines first."""
    first = "dependencies in whole sentences"
    table = table_of(first, ">%", ">95 %", ">points", ">95 %", no_wrap=True)
    for title, rows in _blocks(report):
        table.add_row(Text(title, "dim"))
        for name, share, margin in rows:
            lead = ("", "") if margin is None else (points(margin), interval(margin))
            ends = "" if share.low is None else interval(share)
            table.add_row(Text(f"  {name}"), percent(share), ends, *lead)
    return table


def whole_lines(report: records.Syntax) -> Iterator[str]:
    """How the lines of the table were made."""
    if report.trees is not None:
        yield ("undirected trees: the maximum spanning tree over a head's weights, both ways added")
    if report.rooted is not None:
        yield (
            "trees from the root: the maximum arborescence from the gold root, from the word that "
            "looks to the one that is looked at (Htut et al. 2019)"
        )
    if report.trees is not None or report.rooted is not None:
        yield (
            f"points above the chain; heads chosen on {report.chosen_on}, measured on "
            f"{report.measured_on}"
        )
    combined = report.combined
    if combined is not None:
        unit = report.unit
        line = (
            f"all heads: a softmax of weighted sums of attention, {2 * len(report.layout)} "
            f"weights trained on {combined.trained:,} dependencies of even {unit}, measured on "
            f"{combined.count:,} of odd ones; of weights without training the seed with the "
            "highest figure stands there"
        )
        if combined.left_out:
            line += (
                f"; {combined.left_out:,} of {combined.sentences + combined.left_out:,} sentences "
                "were not trained on, since their features take too much memory"
            )
        yield line


def _blocks(report: records.Syntax) -> Iterator[tuple[str, list[Row]]]:
    """Titles and rows, each block against what its title says."""
    for title, trees, controls in (
        ("undirected trees (UUAS), points above the chain", report.trees,
         [(control.scale, control.trees) for control in report.untrained]),
        ("trees from the root (UUAS), points above the chain", report.rooted,
         [(control.scale, control.rooted) for control in report.untrained]),
    ):  # fmt: skip
        if trees is not None and trees.best is not None:
            yield title, list(_trees(report, trees.best, controls))
    combined = report.combined
    if combined is not None:
        yield (
            "directed (UAS), points above the best offset",
            [
                (f"best offset, {combined.offset:+d}", Interval(combined.offset_accuracy), None),
                ("all heads", combined.uas, combined.margin),
            ],
        )
        yield (
            "directed (UAS), points of all heads above these",
            [
                (f"all heads, {WITHOUT[control.scale]}", control.uas, control.margin)
                for control in strongest_controls(combined)
            ],
        )


def strongest_controls(combined: records.Combined) -> list[records.CombinedControl]:
    """Of each kind of weights without training the seed with the highest figure."""
    highest: dict[str, records.CombinedControl] = {}
    for control in combined.controls:
        previous = highest.get(control.scale)
        if previous is None or (control.uas.value or 0.0) > (previous.uas.value or 0.0):
            highest[control.scale] = control
    return list(highest.values())


def _trees(
    report: records.Syntax,
    best: records.TreeChoice,
    controls: list[tuple[Scale, records.Trees | None]],
) -> Iterator[Row]:
    yield "chain of neighbours", Interval(best.chain), None
    for scale in scales(report):
        choices = [trees.best for kind, trees in controls if kind == scale and trees and trees.best]
        if choices:
            strongest = max(choices, key=lambda choice: choice.uuas.value or 0.0)
            yield (
                f"{WITHOUT[scale]}, head {report.layout.name(strongest.head)}",
                strongest.uuas,
                strongest.margin,
            )
    yield f"head {report.layout.name(best.head)}", best.uuas, best.margin
