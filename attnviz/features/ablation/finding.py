"""What an ablation says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure
from attnviz.drawing.labels import percent
from attnviz.drawing.signed import signed
from attnviz.features.ablation.result import Ablation, Change, Effect

_GROUPS = 3
"""Groups that a head is told of."""
_CHANGED = {
    "loss": "loss",
    "kl": "prediction",
    "logit-diff": "difference of logits",
    "hidden": "last hidden states",
}
"""What a metric is of, in words."""
_VERDICTS = {
    "needed": ": needed",
    "better without": ": better without it",
    "depends": ": methods disagree on whether it is needed",
    "small": ": significant, but below the smallest effect of interest",
}
"""What ablations by several methods say together."""


def finding(found: Ablation, name: str) -> Finding:
    """What ablating each head costs.

    Args:
        found: the result.
        name: of its file.
    """
    changed = _CHANGED.get(found.metric, found.metric)
    alone = [effect for effect in found.ranked() if _single(found, effect)]
    said = {
        effect.name: list(_lines(found, effect, rank, len(alone)))
        for rank, effect in enumerate(alone, start=1)
    }
    for group in (effect for effect in found.effects if len(effect.heads) > 1):
        apart = ""
        if group.members is not None:
            apart = f", the sum of single effects is {signed(group.members)}"
        label = f"{group.name}, {len(group.heads)} heads together"
        for head in map(found.layout.name, group.heads):
            if len(said.setdefault(head, [])) < 3 + _GROUPS:
                said[head].append(
                    f"with others ({label}): {_change(group.first)} {found.unit}{apart}"
                )
    compares = found.distance
    sign = 0 if compares else -found.worse  # blue: the head helps
    values = {
        effect.name: (effect.change, effect.first.joint_low, effect.first.joint_high)
        for effect in alone
    }
    measures = [Measure("effect", f"change of the {changed} without it", found.unit, sign, values)]
    slopes = {e.name: (e.gradient, None, None) for e in alone if e.gradient is not None}
    if slopes:
        measures.append(Measure("gradient", "gradient of its gate", found.unit, 0, slopes))
    lines = {head: tuple(some) for head, some in said.items()}
    return Finding(
        "ablate", name, "Effect of ablating it", _how(found, changed), lines, tuple(measures)
    )


def _single(found: Ablation, effect: Effect) -> bool:
    """Whether it is of one head, alone."""
    return [found.layout.name(head) for head in effect.heads] == [effect.name]


def _lines(found: Ablation, effect: Effect, rank: int, heads: int) -> Iterator[str]:
    share = ""
    if found.texts > 1 and effect.first.worse is not None:
        share = f", worse on {percent(effect.first.worse)} of the texts"
    verdict = _VERDICTS.get(effect.verdict or "", "")
    ranked = "" if effect.rank is None else f", rank {rank} of {heads}"
    yield f"{_change(effect.first)} {found.unit}{ranked}{share}{verdict}"
    others = ", ".join(f"{signed(change.change)} by {change.method}" for change in effect.by[1:])
    if others:
        yield f"{others}{_constant(found, effect)}"
    if effect.gradient is not None and effect.signed is not None:
        slope = f"mean |∂/∂gate| {effect.gradient:.2g}"
        yield f"{slope}, with its sign {signed(effect.signed)}"


def _how(found: Ablation, changed: str) -> str:
    """How it was measured, in sentences."""
    compares = found.distance
    worse = "" if compares else f"; {'below' if found.worse < 0 else 'above'} 0 is worse"
    base = "" if compares else f"; with all heads it is {found.base:.3g} {found.unit}"
    over = f"{found.texts:,} text{'s' if found.texts > 1 else ''}"
    interval = "a single text has no interval"
    if found.texts > 1:
        interval = "95 % intervals over texts, for all heads and methods at once"
    partial = " It was interrupted: only the texts that were done are in it." * found.partial
    return (
        f"Change of the {changed} without it ({found.unit}), by ablation ({found.method}), at "
        f"{found.positions:,} positions of {over}{base}{worse}; {interval}.{partial}"
    )


def _constant(found: Ablation, effect: Effect) -> str:
    """How much of a head's output zero takes that never changes."""
    if effect.mean_share is None or "zero" not in found.methods:
        return ""
    return f"; {percent(effect.mean_share)} of its output is its mean, which zero removes too"


def _change(change: Change) -> str:
    """A change with its interval: ``+2.1 [1.2, 3.0]``."""
    low, high = change.joint_low, change.joint_high
    ends = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return f"{signed(change.change)}{ends}"
