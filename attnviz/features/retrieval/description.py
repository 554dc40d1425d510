"""Needles described: lengths and depths, the grid, the first heads, ablations, findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.console import RenderableType
from rich.table import Table

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Interval, Measure, known
from attnviz.drawing.console import Tile, table_of, tile_grid
from attnviz.drawing.description import (
    Column,
    Listing,
    by_head,
    estimate,
    estimate_column,
    head_column,
    interval,
    mean_column,
    percent,
    plain_percent,
    points,
)
from attnviz.drawing.labels import counted, model_name, ran_on, shorten, visible
from attnviz.drawing.terminal import Line
from attnviz.features.retrieval import result as records

BY = {"copied": "tokens of the answer copied", "query": "weight from the question to the needle"}


def main_score(result: records.Retrieval, score: records.RetrievalScore) -> Interval:
    """Return the score that heads are ranked by, on the needles that they were not chosen on."""
    if result.by == "copied":
        return score.copied
    return score.weight if score.query.value is None else score.query


def title(result: records.Retrieval) -> str:
    """Return what a picture shows."""
    verb = "copy a needle from" if result.by == "copied" else "find a needle in"
    return f"{model_name(result.source)}: which heads {verb} a long text"


def depth_label(depth: float) -> str:
    """Where a needle stands."""
    return f"{100 * depth:.0f} %"


def summary(result: records.Retrieval) -> str:
    """How many retrieval heads there are, in one line."""
    if not result.generates:
        return "no score while generating: the model generates nothing"
    count = len(result.retrieval_heads)
    named = ", ".join(result.layout.name(head.head) for head in result.retrieval_heads[:8])
    ellipsis = ", …" if count > 8 else ""
    heads = f"{count} of {len(result.heads)} heads"
    return (
        f"{heads} copy more than {100 * records.LEAST_COPIED:.0f} % of the answers"
        f"{f': {named}{ellipsis}' if count else ''}; chance {chance_percent(result.chance)} %"
    )


def chance_percent(value: float | None) -> str:
    """Return a small share in percent."""
    return "–" if value is None else f"{100 * value:.2g}"


def control_line(result: records.Retrieval) -> str:
    """Return what random weights do, in one line; empty where they did not run."""
    control = result.control
    if control is None:
        return ""
    copied = ""
    if control.copied is not None:
        copied = (
            f"copied {chance_percent(control.copied)} % (the head with most "
            f"{chance_percent(control.copied_most)} %, chance {chance_percent(control.chance)} %), "
        )
    return (
        f"random weights (seed {control.seed}, given the answer): {copied}from the question "
        f"{100 * control.query:.2g} % (most {100 * control.query_most:.2g} %)"
    )


def measured(result: records.Retrieval) -> str:
    """Return what was measured on what, in one line."""
    lengths = f"{result.lengths[0]:,}"
    if len(result.lengths) > 1:
        lengths += f" to {result.lengths[-1]:,}"
    needles = "needles of random words" if result.task == "words" else f"needles of {result.task}"
    parts = [
        f"{counted(result.needles, 'prompt')} with {needles}, {lengths} tokens",
        f"heads ranked by {BY[result.by]} on {result.ranked_on}, measured on {result.held_out}",
        "ablation: outputs set to 0" if result.ablations else "",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))


_TEXT = 60


def parts(result: records.Retrieval, *, top: int = 10) -> Iterator[RenderableType]:
    """Lengths and depths, the grid, so many heads, the ablations, random weights, the origin."""
    first = result.layout.name(result.heads[0].head)
    caption = "needles retrieved · " if result.generates else ""
    yield Line(f"{caption}head {first}, %, by depth and tokens", "dim")
    yield cells_table(result)
    yield ""
    yield tile_grid(result.layout, retrieval_tiles(result))
    yield Line(f"{BY[result.by]}, %, on {result.held_out}; full colour at 40", "dim")
    yield ""
    yield heads_table(result, top)
    yield Line(summary(result))
    if result.ablations:
        yield ""
        yield ablations_table(result)
    yield ""
    for example in result.examples[:1]:
        wrote = f" → {visible(example.generated)}" if result.generates else ""
        text = f"{visible(example.needle)} … {visible(example.question)}{wrote}"
        yield Line(f"the first needle: {shorten(text, _TEXT + 40)}", "dim")
    if control_line(result):
        yield Line(control_line(result), "dim")
    yield Line(measured(result), "dim")


def cells_table(result: records.Retrieval) -> Table:
    """Show needles retrieved, and the first head's score, by depth (lines) and length (columns)."""
    cells = {(cell.length, cell.depth): cell for cell in result.cells}

    def score(length: int, depth: float) -> str:
        cell = cells[length, depth]
        score = plain_percent(cell.copied if result.by == "copied" else cell.query)
        return f"{plain_percent(cell.accuracy)} · {score}" if result.generates else score

    return Listing(
        [
            Column("", lambda depth: depth, "depth", depth_label, left=True),
            *(Column("", partial(score, length), f"{length:,}") for length in result.lengths),
        ],
        result.depths,
    ).table(fold=False)


def retrieval_tiles(result: records.Retrieval) -> dict[Head, Tile]:
    """Return the score of every head, in percent."""
    tiles = {}
    for head in result.heads:
        value = main_score(result, head).value
        if value is not None and round(100 * value) > 0:
            tiles[head.head] = Tile(f"{100 * value:.0f}", value / 0.4)
    return tiles


def columns(result: records.Retrieval) -> list[Column]:
    """Describe a head: what it copies, and its weight from the question."""
    copies = result.generates
    return [
        head_column(result.layout),
        estimate_column("copied", "copied", "copied %", percent, interval, when=copies),
        replace(mean_column("copied_all", "copied_all", "all needles", percent), when=copies),
        estimate_column("query", "query", "from question %", percent, interval),
        mean_column("weight", "weight", "as it is", percent),
        Column("where_chosen", "where_chosen"),
    ]


def listing(result: records.Retrieval) -> Listing:
    """List every head, the first of the ranking first."""
    return Listing(columns(result), result.heads)


def heads_table(result: records.Retrieval, top: int) -> Table:
    """Show the first heads, and both scores of each."""
    table = listing(result).table(top, fold=False)
    table.add_section()
    chance = ["chance", *([chance_percent(result.chance), "", ""] if result.generates else [])]
    table.add_row(*chance, "0", "", chance_percent(result.weight_chance), style="dim")
    return table


def ablations_table(result: records.Retrieval) -> Table:
    """Show needles retrieved without the first heads, and without others."""
    titles = (">retrieved %", ">95 %", ">others %", ">draws", ">points", ">95 %")
    table = table_of("ablated", *titles, fold=False)
    table.add_row("nothing", percent(result.accuracy), interval(result.accuracy), "", "", "", "")
    for ablation in result.ablations:
        table.add_row(
            ", ".join(map(result.layout.name, ablation.heads)),
            percent(ablation.accuracy),
            interval(ablation.accuracy),
            percent(ablation.random),
            f"{plain_percent(ablation.least)} to {plain_percent(ablation.most)}",
            points(ablation.margin),
            interval(ablation.margin),
        )
    return table


def finding(result: records.Retrieval, name: str) -> Finding:
    """Return what each head copies, and its weight from the question."""
    heads = {result.layout.name(score.head): score for score in result.heads}
    copied = known({head: score.copied for head, score in heads.items()})
    query = known({head: score.query for head, score in heads.items()})
    measures = (
        Measure("copied", "tokens of the answer copied while generating", "", 0, copied),
        Measure("question", "weight from the question to the needle, calibrated", "", 0, query),
    )
    lines = {head: list(_lines(result, score)) for head, score in heads.items()}
    method = (
        f"{result.needles} prompts with a needle; figures are from {result.held_out}, the ranking "
        f"from {result.ranked_on}. Copied: the generated token is in the needle and has the head's "
        f"largest weight (chance {chance_percent(result.chance)} %); from the question: less what "
        "a question without content gets. 95 % intervals over needles."
    )
    return Finding.of("retrieval", name, "What it copies from a long text", method, lines, measures)


def _lines(result: records.Retrieval, score: records.RetrievalScore) -> Iterator[str]:
    """Yield what is known of a head, and what the smallest ablation that it was part of costs."""
    if score.copied.value is None and score.query.value is None:
        return
    if score.copied.value is not None:
        yield f"{estimate(score.copied)} of the answers copied while generating"
    if score.query.value is not None:
        yield f"{estimate(score.query)} of the weight from the question, calibrated"
    for ablation in [a for a in result.ablations if score.head in a.heads][:1]:
        extra = len(ablation.heads) - 1
        yield (
            f"without it{f' with {extra} others' * bool(extra)} {estimate(ablation.accuracy)} of "
            f"the needles are retrieved, in place of {estimate(result.accuracy)}; without others "
            f"{estimate(ablation.random)}"
        )


def figures(result: records.Retrieval) -> Figures:
    """Both scores of every head."""
    values = by_head(result.layout, result.heads, copied="copied.value", question="query.value")
    settings = {
        "task": result.task,
        "lengths": ", ".join(map(str, result.lengths)),
        "depths": ", ".join(f"{depth:g}" for depth in result.depths),
        "seed": str(result.seed),
    }
    return Figures(values, settings=settings)
