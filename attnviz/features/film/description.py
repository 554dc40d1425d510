"""A film described: what it says in words and spans, its lines of bars, its rows, findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.core.result import Figures, Finding, Measure
from attnviz.drawing import paper
from attnviz.drawing.console import renderable
from attnviz.drawing.description import Column, Listing
from attnviz.drawing.labels import counted, model_name, percent, signs, visible
from attnviz.drawing.palette import mix
from attnviz.drawing.tables import Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.film import result as records
from attnviz.scoring.roles import ROLES, SHOWN

METHOD = (
    "A head formed at the first checkpoint of its last rise past the middle between the highest "
    "value of its role's score and the lowest before that. Intervals of steps are 95 % of a "
    "bootstrap over texts and over what neighbouring checkpoints do, and begin at the checkpoint "
    "before, since nothing is known of what is between two. In-context score: loss late in a text "
    "minus loss early in it (Olsson et al. 2022)."
)


_KINDS = {
    "previous": "previous-token", "next": "next-token", "duplicate": "duplicate-token",
    "first": "attention-sink",
}  # fmt: skip
"""What heads of a role are called, where that is not the role's name."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps at which a head has a role."""

    role: str  # its title
    start: int  # the first step; ``end`` the last one
    end: int
    vanished: int | None  # the step at which the role is gone; None where the film ends with it

    @property
    def steps(self) -> str:
        """The steps in words, such as ``60–240`` or ``from 720``."""
        if self.vanished is None:
            return f"from {self.start:,}"
        return f"{self.start:,}" if self.start == self.end else f"{self.start:,}–{self.end:,}"


def spans(film: records.Film, head: records.HeadFilm) -> tuple[Stretch, ...]:
    """When its roles appear and vanish, in the order of their appearance."""
    stretches: list[Stretch] = []
    for title in dict.fromkeys(title for roles in head.roles for title in roles):
        start: int | None = None
        for index, step in enumerate(film.steps):
            if title in head.roles[index]:
                start = step if start is None else start
            elif start is not None:
                stretches.append(Stretch(title, start, film.steps[index - 1], step))
                start = None
        if start is not None:
            stretches.append(Stretch(title, start, film.steps[-1], None))
    return tuple(sorted(stretches, key=lambda span: (span.start, span.role)))


def known_by(head: records.HeadFilm) -> tuple[str | None, str]:
    """Give a head's last role with a score, and that score; else None and its highest share."""
    for roles in reversed(head.roles):
        for title in roles:
            if title in ROLES:
                scores = [evidence.score for evidence in ROLES[title].evidence]
                return title, next((s for s in scores if s in head.scores), scores[0])
    # scores of the weight on what a role looks at
    targets = {bound.score for role in ROLES.values() for bound in role.evidence}
    targets -= {"entropy_share"}
    shares = [name for name in head.scores if name in targets] or list(head.scores)
    return None, max(shares, key=lambda name: _most(head.scores[name]))


def _most(curve: records.StepCurve) -> float:
    return max((value for value in curve.mean if value is not None), default=0.0)


def run_name(film: records.Film) -> str:
    """Return the model, by the folder of the run where checkpoints lie in one; empty for none."""
    if paper.current().name:
        return str(paper.current().name)
    run, _, last = film.source.model.rpartition("/")
    numbered = re.search(r"(\d+)$", last)
    if "@" in last or not numbered or int(numbered[1]) != film.steps[-1]:
        return model_name(film.source)
    return visible(run.rpartition("/")[2]) if run else ""


def title(film: records.Film) -> str:
    """Return what is shown."""
    name = run_name(film)
    return f"Heads during training: {name}" if name else f"Heads during training, {_steps(film)}"


def clearest(film: records.Film) -> records.Formation:
    """Return the formation with the largest rise, of a film with any."""
    return max(film.formations, key=lambda formation: formation.most - formation.least)


def headline(film: records.Film) -> str:
    """Return the clearest thing that happened, in a sentence about heads."""
    name = run_name(film)
    of = f" of {name}" if name else ""
    if not film.formations:
        return f"No head{of} takes on a role, {_steps(film)}"
    first = clearest(film)
    kind = _KINDS.get(first.role, first.role)
    article = "an" if kind[0] in "aeiou" else "a"
    return (
        f"Head {film.layout.name(first.head)}{of} becomes {article} {kind} head at step "
        f"{first.step:,}{between(first.low, first.high)}"
    )


def _steps(film: records.Film) -> str:
    first, last = film.steps[0], film.steps[-1]
    return f"step {first:,}" if first == last else f"step {first:,} to {last:,}"


def heading(film: records.Film) -> str:
    """Return what the film is of."""
    return f"{counted(len(film.steps), 'checkpoint')}, {_steps(film)}"


def between(low: int | None, high: int | None) -> str:
    """Return an interval of steps, as words behind a step; empty for none."""
    return "" if low is None or high is None else f" ({low:,}–{high:,})"


def happens(name: str) -> str:
    """Return an event as a clause: ``the first induction head forms``."""
    if name == records.IN_CONTEXT:
        return f"the {name} falls"
    return f"the first {_KINDS.get(name, name)} head forms"


def event(happened: records.Event) -> str:
    """Return an event as a sentence."""
    sentence = (
        f"{happens(happened.name)} at step {happened.step:,}{between(happened.low, happened.high)}."
    )
    return f"{sentence[0].upper()}{sentence[1:]}"


def ordered(order: records.Order) -> str:
    """Which of two events came first, as a sentence; no order where the interval holds 0."""
    first, second = happens(order.first), happens(order.then)
    if not order.sure:
        ends = "" if order.low is None else f" ({order.low:,} to {order.high:,} steps between)"
        return f"Which comes first, {first} or {second}, cannot be told{ends}."
    verb = first.rpartition(" ")[2]  # of both is said once
    return (
        f"{first[0].upper()}{first[1:]} {order.steps:,} steps before "
        f"{second.removesuffix(f' {verb}')} [{order.low:,}, {order.high:,}]."
    )


def meanwhile(formation: records.Formation) -> str:
    """Return what the loss did while a head formed; empty where that is not known."""
    parts = []
    for name, shift in (("loss", formation.loss), (records.IN_CONTEXT, formation.in_context)):
        if shift is None:
            continue
        change = shift.after - shift.before
        ends = "" if shift.low is None else f" [{shift.low:+.2f}, {shift.high:+.2f}]"
        part = shift.share is not None and 0 <= shift.share <= 1
        share = f", {percent(shift.share or 0.0)} of its whole change" if part else ""
        parts.append(f"{name} {change:+.2f} nats{ends}{share}")
    return "; ".join(parts)


def told(film: records.Film) -> Iterator[str]:
    """Yield the events, their order, and what the loss did, line by line."""
    for happened in film.events:
        yield event(happened)
    for order in film.order:
        yield ordered(order)
    first: dict[str, records.Formation] = {}
    for formation in film.formations:
        first.setdefault(formation.role, formation)
    for role, formation in first.items():
        if change := meanwhile(formation):
            name = film.layout.name(formation.head)
            yield f"While {name} forms ({role}): {change}."


def closing(film: records.Film) -> str:
    """How it was measured, on a line."""
    parts = [
        film.source.model,
        heading(film),
        f"{counted(film.texts, 'text')} ({counted(film.tokens, 'token')})",
        "95 % intervals over texts",
        f"roles corrected for {counted(film.questions, 'question')}",
    ]
    if film.probed:
        parts.append(f"repetition on {film.probed:,} sequences of random tokens")
    return " · ".join(parts)


_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", ".:-=+*%#"
_LEAST, _MOST = 8, 60  # columns of a line of bars
_GROUND = "#a0a0a0"
"""Colours of roles are mixed with this, to be seen on dark and on light terminals."""
_BESIDE = 66  # columns of all that stands beside it


def parts(
    film: records.Film, heads: Sequence[records.HeadFilm] | None = None, *, everything: bool = False
) -> Iterator[RenderableType]:
    """Loss and in-context score, a line a head, events, one line of origin."""
    if heads is None:
        active = [head for head in film.heads if any(head.roles)]
        heads = film.heads if everything or not active else active
    yield timelines(film, heads)
    if others := len(film.heads) - len(heads):
        yield Line(f"{counted(others, 'other head')} without a role at any step", "dim")
    yield ""
    for line in told(film):
        yield Line(line)
    yield Line(closing(film), "dim")


def bars(
    values: Sequence[float | None], low: float, high: float, width: int, *, plain: bool
) -> str:
    """Draw a line of bars, one a step; the mean of those that share a column where more are."""
    shapes = _PLAIN_BARS if plain else _BARS
    count = min(width, len(values))
    line = []
    for column in range(count):
        start, end = column * len(values) // count, (column + 1) * len(values) // count
        numbers = [value for value in values[start:end] if value is not None]
        if not numbers:
            line.append(" ")
            continue
        share = (sum(numbers) / len(numbers) - low) / ((high - low) or 1.0)
        line.append(shapes[max(0, min(int(share * len(shapes)), len(shapes) - 1))])
    return "".join(line)


@renderable
def timelines(
    console: Console, options: ConsoleOptions, film: records.Film, heads: Sequence[records.HeadFilm]
) -> RenderResult:
    """Draw the table of curves, as wide as the console lets it be."""
    plain, width = options.ascii_only, max(_LEAST, min(_MOST, options.max_width - _BESIDE))
    table = Table(box=None if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("head", no_wrap=True)
    steps = f"step {film.steps[0]:,}" + signs(" → ", plain) + f"{film.steps[-1]:,}"
    table.add_column(steps, no_wrap=True, min_width=min(width, len(film.steps)))
    table.add_column(signs("first → last", plain), no_wrap=True, justify="right")
    table.add_column("score", no_wrap=True)
    table.add_column("roles, with the steps at which they are sure")
    for name, curve in (("loss", film.loss), ("in-context score", film.in_context)):
        if curve is None:
            continue
        values = [value for value in curve.mean if value is not None]
        baselines = film.baselines.items() if name == "loss" else ()
        table.add_row(
            "", bars(curve.mean, min(values), max(values), width, plain=plain), _ends(curve, plain),
            f"{name} (nats)", ", ".join(f"{label} {value:.2f}" for label, value in baselines),
        )  # fmt: skip
    for head in heads:
        name, roles = film.layout.name(head.head), _roles(film, head, plain=plain)
        title, score = known_by(head)
        if score not in head.scores:
            table.add_row(name, "", "", "", roles)
            continue
        curve = head.scores[score]
        share = film.units.get(score) == "share"
        high = 1.0 if share else max(filter(None, curve.mean), default=1.0)
        line = Text(bars(curve.mean, 0.0, high, width, plain=plain))
        role = SHOWN.get(title or "")
        if role is not None and console.color_system is not None:
            line.stylize(mix(role.color, _GROUND, 0.35))
        table.add_row(name, line, _ends(curve, plain), score.replace("_", " "), roles)
    yield table


def _roles(film: records.Film, head: records.HeadFilm, *, plain: bool) -> str:
    """Say which roles a head has, with the steps at which they are sure and when they formed."""
    times: dict[str, list[str]] = {}
    for span in spans(film, head):
        times.setdefault(span.role, []).append(span.steps)
    for formation in film.formations:
        if formation.head == head.head and formation.role in times:
            times[formation.role].append(
                f"formed {formation.step:,}{between(formation.low, formation.high)}"
            )
    text = "; ".join(f"{role} {', '.join(steps)}" for role, steps in times.items())
    return text.replace("–", "-") if plain else text


def _ends(curve: records.StepCurve, plain: bool) -> str:
    first, last = (
        "" if value is None else f"{value:.2f}" for value in (curve.mean[0], curve.mean[-1])
    )
    return f"{first} {signs('→', plain)} {last}"


_NUMBERS = ("quantity", "mean", "low", "high", "chance", "roles")


def listing(film: records.Film) -> Listing:
    """List loss and in-context score, then every score and effect of every head, step by step."""
    names = ("step", "checkpoint", *which_head(film.layout), *_NUMBERS)
    return Listing([Column(name, itemgetter(name)) for name in names], list(_rows(film)))


def _rows(film: records.Film) -> Iterator[Row]:
    for index, (step, name) in enumerate(zip(film.steps, film.names, strict=True)):
        row: Row = {"step": step, "checkpoint": name} | which_head(film.layout)
        row |= dict.fromkeys(_NUMBERS)
        for quantity, curve in (("loss", film.loss), ("in_context", film.in_context)):
            if curve is not None:
                yield row | {"quantity": quantity} | _numbers(curve, index)
        for head in film.heads:
            head_row = {
                **which_head(film.layout, head.head),
                "roles": " ".join(title.replace(" ", "") for title in head.roles[index]),
            }
            for score, curve in head.scores.items():
                yield row | head_row | {"quantity": score} | _numbers(curve, index)
            if head.effect is not None:
                yield row | head_row | {"quantity": "effect"} | _numbers(head.effect, index)


def _numbers(curve: records.StepCurve, index: int) -> Row:
    mean, half = curve.mean[index], curve.half[index]
    certain = mean is not None and half is not None
    return {
        "mean": mean,
        "low": round(mean - half, 4) if certain else None,  # type: ignore[operator]
        "high": round(mean + half, 4) if certain else None,  # type: ignore[operator]
        "chance": curve.chance,
    }


def finding(film: records.Film, name: str) -> Finding:
    """When every head formed."""
    formed = {
        film.layout.name(f.head): (float(f.step), _float(f.low), _float(f.high))
        for f in reversed(film.formations)
    }
    method = (
        f"{heading(film)}, on {counted(film.texts, 'text')}; a head formed at the first "
        "checkpoint at which its score is past the middle of its rise."
    )
    lives = {film.layout.name(head.head): life(film, head) for head in film.heads}
    measure = Measure("formed", "step at which it formed", "steps", 0, formed)
    return Finding.of("film", name, "While it was trained", method, lives, [measure])


def life(film: records.Film, head: records.HeadFilm) -> Iterator[str]:
    """When it had which role, and when it formed, line by line."""
    for span in spans(film, head):
        yield f"{span.role}, steps {span.steps}"
    for formation in film.formations:
        if formation.head == head.head:
            change = meanwhile(formation)
            yield (
                f"formed for {formation.role} at step {formation.step:,}"
                f"{between(formation.low, formation.high)}"
                f"{'; ' if change else ''}{change}"
            )
    if not any(head.roles):
        yield "no role at any step"


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def figures(film: records.Film) -> Figures:
    """Return the mean of every score at the last step, and the roles there."""
    heads = {film.layout.name(head.head): head for head in film.heads}
    return Figures(
        {
            name: {key: curve.mean[-1] for key, curve in head.scores.items()}
            for name, head in heads.items()
        },
        {name: frozenset(head.roles[-1]) for name, head in heads.items()},
        {"steps": f"{film.steps[0]} to {film.steps[-1]}"},
    )
