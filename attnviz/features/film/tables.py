"""A film as rows in long form: one for each step, head and number."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.film.result import Film, StepCurve

COLUMNS = (
    "step", "checkpoint", *HEAD, "quantity", "mean", "low", "high", "chance",
    "roles",
)  # fmt: skip


def rows(film: Film) -> list[Row]:
    """Loss and in-context score, then every score and effect of every head, step by step."""
    return list(_rows(film))


def _rows(film: Film) -> Iterator[Row]:
    for place, (step, name) in enumerate(zip(film.steps, film.names, strict=True)):
        begins: Row = {"step": step, "checkpoint": name} | which_head(film.layout)
        begins |= {column: None for column in COLUMNS if column not in begins}
        for quantity, curve in (("loss", film.loss), ("in_context", film.in_context)):
            if curve is not None:
                yield begins | {"quantity": quantity} | _numbers(curve, place)
        for head in film.heads:
            which = {
                **which_head(film.layout, head.head),
                "roles": " ".join(title.replace(" ", "") for title in head.roles[place]),
            }
            for score, curve in head.scores.items():
                yield begins | which | {"quantity": score} | _numbers(curve, place)
            if head.effect is not None:
                yield begins | which | {"quantity": "effect"} | _numbers(head.effect, place)


def _numbers(curve: StepCurve, place: int) -> Row:
    mean, half = curve.mean[place], curve.half[place]
    known = mean is not None and half is not None
    return {
        "mean": mean,
        "low": round(mean - half, 4) if known else None,  # type: ignore[operator]
        "high": round(mean + half, 4) if known else None,  # type: ignore[operator]
        "chance": curve.chance,
    }
