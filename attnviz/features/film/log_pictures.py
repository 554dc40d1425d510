"""A step in pictures, for what keeps a training's log: the grid of heads, maps, a table of roles.

Each has its own words for a picture of a step. They are told apart by their packages:
``torch.utils.tensorboard`` or ``tensorboardX``, wandb, trackio, mlflow, aim. None is imported here.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnviz.core.prompt import Inputs
from attnviz.core.scores import HeadScores, HeadsOf
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import html
from attnviz.drawing.figure import heads_figure, heatmap_figure
from attnviz.drawing.labels import head_title
from attnviz.errors import UsageError
from attnviz.features.film.steps import MeasuredStep

_KNOWN = ("tensorboard", "wandb", "trackio", "mlflow", "aim")
_HELD = ("tb_writer", "_wandb", "_trackio", "_ml_flow", "experiment")
"""Where callbacks of a Trainer have theirs, in this order."""


def named(to: Any) -> tuple[Any, ...]:
    """One tracker or several, as a tuple; UsageError for what is none that takes pictures."""
    several = tuple(to) if isinstance(to, list | tuple) else (to,)
    if odd := [type(tracker).__name__ for tracker in several if not package(tracker)]:
        expected = "a SummaryWriter, wandb, trackio, mlflow or aim's Run"
        raise UsageError("{log_pictures} takes {}, not {}", expected, odd[0], log_pictures=...)
    return several


def trackers(callbacks: Sequence[Any]) -> list[Any]:
    """Return what the callbacks of a Trainer report to, of the trackers that take pictures."""
    held = (getattr(callback, name, None) for callback in callbacks for name in _HELD)
    return [tracker for tracker in held if package(tracker)]


def package(tracker: Any) -> str:
    """Which package a tracker is of; empty for none that takes pictures."""
    names = [getattr(tracker, "__name__", ""), *(kind.__module__ for kind in type(tracker).__mro__)]
    parts = {part for name in names for part in str(name).lower().split(".")}
    return next((kind for kind in _KNOWN if {kind, f"{kind}x"} & parts), "")


def report(measured: MeasuredStep, to: Sequence[Any]) -> None:
    """Hand a step's grid, the map of every score's highest head, and its roles to trackers."""
    from PIL import Image

    names, heads = measured.header.scores, measured.total().of(measured.layout)
    rows = [
        [measured.layout.name(head.head), ", ".join(role.name for role in head.roles),
         *(head.scores[name].mean for name in names)]
        for head in heads
    ]  # fmt: skip
    table: list[list[Any]] = [["head", "roles", *names], *rows]
    pictures = {
        name: Image.open(io.BytesIO(png)).convert("RGB") for name, png in _drawn(measured, heads)
    }
    for tracker in to:
        _hand(tracker, measured.header.step, pictures, table)


def _hand(tracker: Any, step: int, pictures: Mapping[str, Any], table: list[list[Any]]) -> None:
    """Hand pictures by name, and a table under the names of its columns, to one tracker."""
    kind, title, (columns, *rows) = package(tracker), "heads/roles", table
    text = html.table(columns, (list(map(str, row)) for row in rows))
    if kind == "tensorboard":
        for name, picture in pictures.items():
            tracker.add_image(name, np.asarray(picture), step, dataformats="HWC")
        tracker.add_text(title, text, step)
        tracker.flush()
    elif kind == "mlflow":
        for name, picture in pictures.items():
            tracker.log_image(picture, key=name, step=step)
        by_column = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
        tracker.log_table(by_column, f"{title}-{step:08}.json")  # appended, names turn into numbers
    elif kind == "aim":
        for name, picture in pictures.items():
            tracker.track(sys.modules[kind].Image(picture), name=name, step=step)
        tracker.track(sys.modules[kind].Text(text), name=title, step=step)
    else:
        entries = {name: sys.modules[kind].Image(picture) for name, picture in pictures.items()}
        entries[title] = sys.modules[kind].Table(columns=columns, data=rows)
        tracker.log({**entries, "train/global_step": step})  # as transformers counts for both


def _drawn(measured: MeasuredStep, heads: Sequence[HeadScores]) -> Iterator[tuple[str, bytes]]:
    """Draw the pictures of a step as PNG, by names that no number has: aim would refuse them."""
    header, layout = measured.header, measured.layout
    yield "heads/grid", heads_figure(HeadsOf(header.info, layout, Inputs({}), tuple(heads)))
    sides = Sides(Tokens(tuple(header.shown)), Tokens(tuple(header.shown)))
    for score in header.scores if len(measured.maps) else ():
        means = [(head.scores[score].mean, -n) for n, head in enumerate(heads)]
        if ranked := [pair for pair in means if pair[0] is not None]:
            best = -max(ranked)[1]
            title = head_title(layout.name(heads[best].head), heads[best].roles)
            maps = [(title, measured.maps[best] / np.float32(255), sides)]
            caption = f"{header.name}: the head with the highest {score} score"
            yield f"heads/map/{score}", heatmap_figure(maps, caption=caption)
