"""The words and sums that every picture of a logit shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnviz.core.heads import Head
from attnviz.drawing.labels import visible
from attnviz.drawing.renderable import layers_a_line
from attnviz.features.logits.result import LogitPart, Logits

UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""


@dataclass(frozen=True, slots=True)
class WaterfallStep:
    """A step of the waterfall: what some parts add, and where that leads from where."""

    label: str
    value: float
    before: float

    @property
    def after(self) -> float:
        """The sum up to here."""
        return self.before + self.value


def steps(report: Logits) -> tuple[WaterfallStep, ...]:
    """Embeddings, then the heads, the mixer and the MLP of every layer, then all biases.

    Of very many layers several stand together.
    """
    layers = {part.layer for part in report.parts if part.layer is not None}
    each, last = layers_a_line(len(layers)), max(layers, default=0)
    groups: dict[str, float] = {}
    for part in report.parts:
        label = {"embedding": "embeddings", "bias": "biases"}.get(part.kind)
        label = label or _layer_label(part, each, last)
        groups[label] = groups.get(label, 0.0) + part.value
    groups["biases"] = groups.pop("biases", 0.0)
    bars, total = [], 0.0
    for label, value in groups.items():
        bars.append(WaterfallStep(label, value, total))
        total += value
    return tuple(bars)


def _layer_label(part: LogitPart, each: int, last: int) -> str:
    first = (part.layer or 0) // each * each
    end = min(first + each - 1, last)
    if end == first:
        name = {"head": "heads", "mlp": "MLP"}.get(part.kind) or part.name
        return f"layer {first} {name}"
    several = {"head": "heads", "mlp": "MLPs"}.get(part.kind, "mixers without attention")
    return f"layers {first}–{end} {several}"


def subject(report: Logits) -> str:
    """Whose logit it is: ``logit of ·table minus that of ·door``."""
    minus = f" minus that of {visible(report.against)}" if report.against else ""
    return f"logit of {visible(report.token)}{minus}"


def place(report: Logits, position: int, *, ascii_only: bool = False) -> str:
    """Where it is predicted: ``after ·the (18)``, or at the token in a masked model."""
    at = "at" if report.layout.kinds == ("encoder",) else "after"
    return f"{at} {visible(report.tokens[position], ascii_only=ascii_only)} ({position})"


def checked(report: Logits) -> str:
    """The sum beside the model's own logit."""
    assert report.sum is not None
    own = f"the model says {report.logit:.4f}"
    if report.cap is not None:
        own = (
            f"the model says {report.whole:.4f} before its cap of {report.cap:g}, and "
            f"{report.logit:.4f} behind it"
        )
    return (
        f"{subject(report)}, {place(report, report.position)}: the parts add up to "
        f"{report.sum:.4f}, {own} (difference {abs(report.sum - report.whole):.0e})"
    )


def by_token(report: Logits) -> Iterator[tuple[int, float, list[tuple[Head, float]]]]:
    """What all heads add through each token: position, sum, and the heads by size.

    The largest sums first.
    """
    parts: Mapping[Head, tuple[float, ...]] = report.by_token or {}
    sums = [sum(values[n] for values in parts.values()) for n in range(len(report.tokens))]
    for position in sorted(range(len(sums)), key=lambda n: -abs(sums[n])):
        heads = sorted(parts, key=lambda head: -abs(parts[head][position]))
        yield position, sums[position], [(head, parts[head][position]) for head in heads]
