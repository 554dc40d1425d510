"""A film as rows in long form: one for each step, head and number."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.tables import Row
from attnviz.features.film.result import Film, StepCurve

COLUMNS = (
    "step", "checkpoint", "site", "layer", "head", "quantity", "mean", "low", "high", "chance",
    "roles",
)  # fmt: skip


def rows(found: Film) -> list[Row]:
    """Loss and in-context score, then every score and effect of every head, step by step."""
    return list(_rows(found))


def _rows(found: Film) -> Iterator[Row]:
    for place, (step, name) in enumerate(zip(found.steps, found.names, strict=True)):
        begins: Row = dict.fromkeys(COLUMNS) | {"step": step, "checkpoint": name}
        for quantity, curve in (("loss", found.loss), ("in_context", found.in_context)):
            if curve is not None:
                yield begins | {"quantity": quantity} | _numbers(curve, place)
        for one in found.heads:
            which = {
                "site": one.head.site.kind,
                "layer": one.head.layer,
                "head": one.head.index,
                "roles": " ".join(title.replace(" ", "") for title in one.roles[place]),
            }
            for score, curve in one.scores.items():
                yield begins | which | {"quantity": score} | _numbers(curve, place)
            if one.effect is not None:
                yield begins | which | {"quantity": "effect"} | _numbers(one.effect, place)


def _numbers(curve: StepCurve, place: int) -> Row:
    mean, half = curve.mean[place], curve.half[place]
    known = mean is not None and half is not None
    return {
        "mean": mean,
        "low": round(mean - half, 4) if known else None,  # type: ignore[operator]
        "high": round(mean + half, 4) if known else None,  # type: ignore[operator]
        "chance": curve.chance,
    }
