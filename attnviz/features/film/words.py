"""What a film says, in words and spans: for terminal, picture and page alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from attnviz.drawing import paper
from attnviz.drawing.labels import counted, model_name, percent, visible
from attnviz.features.film.result import (
    IN_CONTEXT,
    Event,
    Film,
    Formation,
    HeadFilm,
    Order,
    StepCurve,
)
from attnviz.scoring.roles import ROLES

METHOD = (
    "A head formed at the first checkpoint of its last rise past the middle between the highest "
    "value of its role's score and the lowest before that. Intervals of steps are 95 % of a "
    "bootstrap over texts and over what neighbouring checkpoints do, and begin at the checkpoint "
    "before, since nothing is known of what is between two. In-context score: loss late in a text "
    "minus loss early in it (Olsson et al. 2022)."
)


def _targets() -> set[str]:
    """Scores of the weight on what a role looks at."""
    return {bound.score for role in ROLES.values() for bound in role.evidence} - {"entropy_share"}


_KINDS = {
    "previous": "previous-token", "next": "next-token", "duplicate": "duplicate-token",
    "first": "attention-sink",
}  # fmt: skip
"""What heads of a role are called, where that is not the role's name."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps at which a head has a role.

    Attributes:
        role: its title.
        start: the first step; ``end`` the last one.
        end: see ``start``.
        vanished: the step at which the role is gone; None where the film ends with it.
    """

    role: str
    start: int
    end: int
    vanished: int | None

    @property
    def steps(self) -> str:
        """The steps in words, such as ``60–240`` or ``from 720``."""
        if self.vanished is None:
            return f"from {self.start:,}"
        return f"{self.start:,}" if self.start == self.end else f"{self.start:,}–{self.end:,}"


def spans(film: Film, head: HeadFilm) -> tuple[Stretch, ...]:
    """When its roles appear and vanish, in the order of their appearance."""
    stretches: list[Stretch] = []
    for title in dict.fromkeys(title for roles in head.roles for title in roles):
        start: int | None = None
        for place, step in enumerate(film.steps):
            if title in head.roles[place]:
                start = step if start is None else start
            elif start is not None:
                stretches.append(Stretch(title, start, film.steps[place - 1], step))
                start = None
        if start is not None:
            stretches.append(Stretch(title, start, film.steps[-1], None))
    return tuple(sorted(stretches, key=lambda span: (span.start, span.role)))


def known_by(head: HeadFilm) -> tuple[str | None, str]:
    """What a head is drawn by: its last role that a score stands for, and that score.

    A head without one is drawn by the share of weight that is highest at any step.
    """
    for roles in reversed(head.roles):
        for title in roles:
            if title in ROLES:
                scores = [evidence.score for evidence in ROLES[title].evidence]
                return title, next((s for s in scores if s in head.scores), scores[0])
    targets = _targets()
    shares = [name for name in head.scores if name in targets] or list(head.scores)
    return None, max(shares, key=lambda name: _most(head.scores[name]))


def _most(curve: StepCurve) -> float:
    return max((value for value in curve.mean if value is not None), default=0.0)


def score_title(name: str) -> str:
    """A score as it is called in pictures."""
    return name.replace("_", " ")


def run_name(film: Film) -> str:
    """The model, by the folder of the run where checkpoints lie in one; empty for none."""
    if paper.current().name:
        return str(paper.current().name)
    run, _, last = film.source.model.rpartition("/")
    numbered = re.search(r"(\d+)$", last)
    if "@" in last or not numbered or int(numbered[1]) != film.steps[-1]:
        return model_name(film.source)
    return visible(run.rpartition("/")[2]) if run else ""


def title(film: Film) -> str:
    """What is shown."""
    name = run_name(film)
    return f"Heads during training: {name}" if name else f"Heads during training, {_steps(film)}"


def clearest(film: Film) -> Formation:
    """The formation with the largest rise, of a film with any."""
    return max(film.formations, key=lambda formation: formation.most - formation.least)


def headline(film: Film) -> str:
    """The clearest thing that happened, in a sentence about heads."""
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


def _steps(film: Film) -> str:
    first, last = film.steps[0], film.steps[-1]
    return f"step {first:,}" if first == last else f"step {first:,} to {last:,}"


def heading(film: Film) -> str:
    """What the film is of."""
    return f"{counted(len(film.steps), 'checkpoint')}, {_steps(film)}"


def between(low: int | None, high: int | None) -> str:
    """An interval of steps, as words behind a step; empty for none."""
    return "" if low is None or high is None else f" ({low:,}–{high:,})"


def happens(name: str) -> str:
    """An event as a clause: ``the first induction head forms``."""
    if name == IN_CONTEXT:
        return f"the {name} falls"
    return f"the first {_KINDS.get(name, name)} head forms"


def event(happened: Event) -> str:
    """An event as a sentence."""
    said = (
        f"{happens(happened.name)} at step {happened.step:,}{between(happened.low, happened.high)}."
    )
    return f"{said[0].upper()}{said[1:]}"


def ordered(order: Order) -> str:
    """Which of two events came first, as a sentence; no order where the interval holds 0."""
    first, then = happens(order.first), happens(order.then)
    if not order.sure:
        ends = "" if order.low is None else f" ({order.low:,} to {order.high:,} steps between)"
        return f"Which comes first, {first} or {then}, cannot be told{ends}."
    return (
        f"{first[0].upper()}{first[1:]} {order.steps:,} steps before {_once(first, then)} "
        f"[{order.low:,}, {order.high:,}]."
    )


def _once(first: str, then: str) -> str:
    """The second of two clauses without its verb, where that is the verb of the first."""
    verb = first.rpartition(" ")[2]
    return then.removesuffix(f" {verb}")


def meanwhile(formation: Formation) -> str:
    """What the loss did while a head formed; empty where that is not known."""
    parts = []
    for name, shift in (("loss", formation.loss), (IN_CONTEXT, formation.in_context)):
        if shift is None:
            continue
        change = shift.after - shift.before
        ends = "" if shift.low is None else f" [{shift.low:+.2f}, {shift.high:+.2f}]"
        part = shift.share is not None and 0 <= shift.share <= 1
        share = f", {percent(shift.share or 0.0)} of its whole change" if part else ""
        parts.append(f"{name} {change:+.2f} nats{ends}{share}")
    return "; ".join(parts)


def told(film: Film) -> Iterator[str]:
    """The events, their order, and what the loss did, line by line."""
    for happened in film.events:
        yield event(happened)
    for order in film.order:
        yield ordered(order)
    first: dict[str, Formation] = {}
    for formation in film.formations:
        first.setdefault(formation.role, formation)
    for role, formation in first.items():
        if said := meanwhile(formation):
            name = film.layout.name(formation.head)
            yield f"While {name} forms ({role}): {said}."


def closing(film: Film) -> str:
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
