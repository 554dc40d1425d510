"""What an ablation says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import WITHOUT_IT, Figures, Finding, Measure, bare
from attnviz.drawing.labels import percent
from attnviz.drawing.signed import signed
from attnviz.features.ablation import words
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
    "worse": ": worse without it, not surely by the smallest effect of interest",
    "better": ": better without it, not surely by the smallest effect of interest",
    "small": ": below the smallest effect of interest",
}
"""What ablations by several methods say together."""


def finding(result: Ablation, name: str) -> Finding:
    """What ablating each head costs."""
    changed = _CHANGED.get(result.metric, result.metric)
    alone = [effect for effect in result.ranked() if _single(result, effect)]
    said = {
        effect.name: list(_lines(result, effect, rank, len(alone)))
        for rank, effect in enumerate(alone, start=1)
    }
    for group in (effect for effect in result.effects if len(effect.heads) > 1):
        apart = ""
        if group.members is not None:
            apart = f", the sum of single effects is {signed(group.members)}"
        label = f"{group.name}, {len(group.heads)} heads together"
        for head in map(result.layout.name, group.heads):
            if len(said.setdefault(head, [])) < 3 + _GROUPS:
                said[head].append(
                    f"with others ({label}): {_change(group.first)} {result.unit}{apart}"
                )
    compares = result.distance
    sign = 0 if compares else -result.worse  # blue: the head helps
    values = {
        effect.name: (effect.change, effect.first.joint_low, effect.first.joint_high)
        for effect in alone
    }
    title = f"change of the {changed} without it"
    ends = WITHOUT_IT if sign else ("", "")
    slopes = bare({e.name: e.gradient for e in alone if e.gradient is not None})
    measures = (
        Measure("effect", title, result.unit, sign, values, ends),
        Measure("gradient", "gradient of its gate", result.unit, 0, slopes),
    )
    how = _how(result, changed)
    return Finding.of("ablate", name, "Effect of ablating it", how, said, measures)


def _single(result: Ablation, effect: Effect) -> bool:
    """Whether it is of one head, alone."""
    return [result.layout.name(head) for head in effect.heads] == [effect.name]


def _lines(result: Ablation, effect: Effect, rank: int, heads: int) -> Iterator[str]:
    share = ""
    if result.texts > 1 and effect.first.worse is not None:
        share = f", worse on {percent(effect.first.worse)} of the texts"
    verdict = _VERDICTS.get(effect.verdict or "", "")
    ranked = "" if effect.rank is None else f", rank {rank} of {heads}"
    yield f"{_change(effect.first)} {result.unit}{ranked}{share}{verdict}"
    if often := words.often(result, effect):
        size = signed(result.smallest or 0.0).lstrip("+")
        yield f"by {size} {result.unit} or more {often} of the texts"
    others = ", ".join(f"{signed(change.change)} by {change.method}" for change in effect.by[1:])
    if others:
        yield f"{others}{_constant(result, effect)}"
    if effect.gradient is not None and effect.signed is not None:
        slope = f"mean |∂/∂gate| {effect.gradient:.2g}"
        yield f"{slope}, with its sign {signed(effect.signed)}"


def _how(result: Ablation, changed: str) -> str:
    """How it was measured, in sentences."""
    compares = result.distance
    worse = "" if compares else f"; {'below' if result.worse < 0 else 'above'} 0 is worse"
    base = "" if compares else f"; with all heads it is {result.base:.3g} {result.unit}"
    over = f"{result.texts:,} text{'s' if result.texts > 1 else ''}"
    interval = "a single text has no interval"
    if result.texts > 1:
        interval = "no interval holds for all heads at once"
    if words.together(result):
        interval = "95 % intervals of the typical text, for all heads and methods at once"
    partial = " It was interrupted: only the texts that were done are in it." * result.partial
    return (
        f"Change of the {changed} without it ({result.unit}), by ablation ({result.method}), at "
        f"{result.positions:,} positions of {over}{base}{worse}; {interval}.{partial}"
    )


def _constant(result: Ablation, effect: Effect) -> str:
    """How much of a head's output zero takes that never changes."""
    if effect.mean_share is None or "zero" not in result.methods:
        return ""
    return f"; {percent(effect.mean_share)} of its output is its mean, which zero removes too"


def _change(change: Change) -> str:
    """A change with its interval: ``+2.1 [1.2, 3.0]``."""
    low, high = change.joint_low, change.joint_high
    ends = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return f"{signed(change.change)}{ends}"


def figures(result: Ablation) -> Figures:
    """The change of the metric without each group, by the first method."""
    return Figures(
        {effect.name: {"effect": effect.change} for effect in result.effects},
        {
            effect.name: frozenset(filter(None, (effect.does, effect.rests)))
            for effect in result.effects
        },
        {
            "metric": result.metric,
            "methods": ", ".join(result.methods),
            "average": result.average,
            "at": result.at or "all tokens",
        },
    )
