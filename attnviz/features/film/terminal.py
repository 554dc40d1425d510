"""A film on the terminal: a line of bars for each head, when roles appear and vanish, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import counted, signs
from attnviz.drawing.palette import mix
from attnviz.drawing.terminal import Line
from attnviz.features.film.result import Film, HeadFilm, StepCurve
from attnviz.features.film.words import between, closing, known_by, score_title, spans, told
from attnviz.scoring.roles import SHOWN

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", ".:-=+*%#"
_LEAST, _MOST = 8, 60
"""Columns of a line of bars."""
_GROUND = "#a0a0a0"
"""Colours of roles are mixed with this, to be seen on dark and on light terminals."""
_BESIDE = 66
"""Columns of all that stands beside it."""


def parts(
    film: Film, heads: Sequence[HeadFilm] | None = None, *, everything: bool = False
) -> Iterator[RenderableType]:
    """Loss and in-context score, a line a head, events, one line of origin.

    Args:
        film: the film.
        heads: those to list; by default those with a role at any step, or all where none has one.
        everything: list all heads.
    """
    if heads is None:
        some = [head for head in film.heads if any(head.roles)]
        heads = film.heads if everything or not some else some
    yield Timelines(film, tuple(heads))
    if rest := len(film.heads) - len(heads):
        yield Line(f"{counted(rest, 'other head')} without a role at any step", "dim")
    yield ""
    for line in told(film):
        yield Line(line)
    yield Line(closing(film), "dim")


def bars(
    values: Sequence[float | None], low: float, high: float, width: int, *, plain: bool
) -> str:
    """A line of bars, one a step; the mean of those that share a column where there are more."""
    shapes = _PLAIN_BARS if plain else _BARS
    count = min(width, len(values))
    line = []
    for column in range(count):
        start, end = column * len(values) // count, (column + 1) * len(values) // count
        known = [value for value in values[start:end] if value is not None]
        if not known:
            line.append(" ")
            continue
        share = (sum(known) / len(known) - low) / ((high - low) or 1.0)
        line.append(shapes[max(0, min(int(share * len(shapes)), len(shapes) - 1))])
    return "".join(line)


@dataclass(frozen=True)
class Timelines:
    """A renderable: the table of curves, as wide as the console lets it be."""

    film: Film
    heads: tuple[HeadFilm, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        film, plain = self.film, options.ascii_only
        width = max(_LEAST, min(_MOST, options.max_width - _BESIDE))
        table = Table(box=None if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("head", no_wrap=True)
        steps = f"step {film.steps[0]:,}" + signs(" → ", plain) + f"{film.steps[-1]:,}"
        table.add_column(steps, no_wrap=True, min_width=min(width, len(film.steps)))
        table.add_column(signs("first → last", plain), no_wrap=True, justify="right")
        table.add_column("score", no_wrap=True)
        table.add_column("roles, with the steps at which they are sure")
        for name, curve in (("loss", film.loss), ("in-context score", film.in_context)):
            if curve is not None:
                table.add_row(*self._loss(name, curve, width, plain=plain))
        for head in self.heads:
            table.add_row(*self._head(head, width, console, plain=plain))
        yield table

    def _loss(self, name: str, curve: StepCurve, width: int, *, plain: bool) -> tuple[str, ...]:
        known = [value for value in curve.mean if value is not None]
        line = bars(curve.mean, min(known), max(known), width, plain=plain)
        beside = ""
        if name == "loss" and self.film.baselines:
            beside = ", ".join(f"{k} {v:.2f}" for k, v in self.film.baselines.items())
        return "", line, _ends(curve, plain), f"{name} (nats)", beside

    def _head(
        self, head: HeadFilm, width: int, console: Console, *, plain: bool
    ) -> tuple[str | Text, ...]:
        film = self.film
        title, score = known_by(head)
        if score not in head.scores:
            return film.layout.name(head.head), "", "", "", self._spans(head, plain=plain)
        curve = head.scores[score]
        high = (
            1.0 if film.units.get(score) == "share" else max(filter(None, curve.mean), default=1.0)
        )
        line = Text(bars(curve.mean, 0.0, high, width, plain=plain))
        role = SHOWN.get(title or "")
        if role is not None and console.color_system is not None:
            line.stylize(mix(role.color, _GROUND, 0.35))
        return (
            film.layout.name(head.head), line, _ends(curve, plain), score_title(score),
            self._spans(head, plain=plain),
        )  # fmt: skip

    def _spans(self, head: HeadFilm, *, plain: bool) -> str:
        when: dict[str, list[str]] = {}
        for span in spans(self.film, head):
            when.setdefault(span.role, []).append(span.steps)
        for formation in self.film.formations:
            if formation.head == head.head and formation.role in when:
                when[formation.role].append(
                    f"formed {formation.step:,}{between(formation.low, formation.high)}"
                )
        said = "; ".join(f"{role} {', '.join(steps)}" for role, steps in when.items())
        return said.replace("–", "-" if plain else "–")


def _ends(curve: StepCurve, plain: bool) -> str:
    first, last = (
        "" if value is None else f"{value:.2f}" for value in (curve.mean[0], curve.mean[-1])
    )
    return f"{first} {signs('→', plain)} {last}"
