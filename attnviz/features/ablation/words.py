"""The words and figures that every picture of an ablation shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnviz.drawing.labels import counted, percent
from attnviz.drawing.signed import signed
from attnviz.features.ablation.result import Ablation, Change, Effect
from attnviz.statistics.coverage import holds

_OFTEN = 0.005
"""A share of the texts that is not 0 % when it is written."""
_AVERAGES = {
    "mean": "",
    "trimmed": "trimmed means of the texts",
    "median": "in the typical text (median)",
}


def most(report: Ablation) -> float:
    """The end of the scale: the largest effect of a single head."""
    alone = [abs(effect.change) for effect in report.effects if len(effect.heads) == 1]
    return max(alone or [abs(effect.change) for effect in report.effects], default=0.0)


def measured(change: Change) -> str:
    """The change with the digits that its interval leaves known."""
    if change.low is None or change.high is None:
        return signed(change.change)
    half = (change.high - change.low) / 2
    if half <= 0:
        return signed(change.change)
    decimals = max(0, min(4, 1 - math.floor(math.log10(half))))
    text = f"{change.change:+.{decimals}f}"
    return "0" if float(text) == 0 else text


def interval(change: Change) -> str:
    """``6.1 to 6.6``, the interval that holds together with all others; empty for none."""
    if change.joint_low is None or change.joint_high is None:
        return ""
    half = (change.joint_high - change.joint_low) / 2
    decimals = max(0, min(4, 1 - math.floor(math.log10(half)))) if half > 0 else 4
    return f"{change.joint_low:+.{decimals}f} to {change.joint_high:+.{decimals}f}"


def verdict(report: Ablation, effect: Effect) -> str:
    """Whether it is needed, and by which methods where they do not all say so; empty for unknown.

    Where nothing is told apart, the smallest effect that would have been.
    """
    if effect.verdict is None:
        return ""
    smallest = report.smallest or 0.0
    size = signed(smallest).lstrip("+")
    if effect.verdict == "small":
        return f"below {size}"
    if not effect.verdict:
        return nothing(effect)
    if effect.verdict == "depends":
        return _depends(report, [c for c in effect.by if c.sure])
    by = [c.method for c in effect.by if c.sure]
    named = "" if len(by) == len(effect.by) else f" by {' and '.join(by)}"
    unsure = f", not surely by {size}" if effect.verdict in ("worse", "better") else ""
    return f"{effect.verdict}{named}{unsure}"


def nothing(effect: Effect) -> str:
    """``nothing (0.12 would show)``: by any method, in four of five such samples."""
    known = [c.detectable for c in effect.by if c.detectable is not None]
    return f"nothing ({signed(max(known)).lstrip('+')} would show)" if known else "nothing"


def _depends(report: Ablation, sure: Sequence[Change]) -> str:
    """``worse by zero only``; ``worse by mean, better by zero``: it is so without the heads."""
    told = {
        word: [c.method for c in sure if c.change * report.worse * sign > 0]
        for word, sign in (("worse", 1), ("better", -1))
    }
    said = ", ".join(f"{word} by {' and '.join(by)}" for word, by in told.items() if by)
    return f"{said} only" if len(sure) == 1 else said


def of(report: Ablation) -> str:
    """What the smallest effect of interest is a share of: `` (1 % of ...)``."""
    whole = report.stake or abs(report.base)
    if not report.smallest or not whole:
        return ""
    what = (
        f"the {report.metric} on the full model"
        if report.stake is None
        else f"the {report.stake:.3g} that the repetition is worth"
    )
    return f" ({100 * report.smallest / whole:.3g} % of {what})"


def largest(changes: Sequence[Change]) -> str:
    """The share of the largest text in the first of the changes; empty for none."""
    share = changes[0].largest
    return "" if share is None else percent(share) if share <= 1 else "> 100 %"


def together(report: Ablation) -> bool:
    """Whether there are intervals that hold for all groups and methods at once."""
    known = any(effect.first.joint_low is not None for effect in report.effects)
    return known and holds("ablate: all at once", report.clusters)


def mean(change: Change) -> str:
    """The mean over all positions with an interval of its own; empty where it is the figure."""
    if change.mean is None or change.mean == change.change:
        return ""
    if change.mean_low is None or change.mean_high is None:
        return signed(change.mean)
    return f"{signed(change.mean)} ({signed(change.mean_low)} to {signed(change.mean_high)})"


def often(report: Ablation, effect: Effect) -> str:
    """``worse in 34 % or more``: of the texts, by the smallest effect of interest; empty for no."""
    change, told = effect.first, []
    for way, found in (("worse", change.often_worse), ("better", change.often_better)):
        if found is not None and found.least >= _OFTEN:
            told.append(f"{way} in {percent(found.least)} or more")
    return ", ".join(told) if report.texts > 1 else ""


def worse(effect: Effect) -> str:
    """The share of the texts that got worse; empty for a distance."""
    return "" if effect.first.worse is None else f"{100 * effect.first.worse:.0f} %"


def role(effect: Effect) -> str:
    """What a head does and where it rests, in a few words."""
    place = effect.rests if effect.rests in ("", "diffuse") else f"sink: {effect.rests}"
    return ", ".join(part for part in (effect.does, place) if part)


def measure(report: Ablation) -> str:
    """What was measured, on what and how, in one line."""
    known = f" ({report.low:.3g} to {report.high:.3g})" if report.low is not None else ""
    texts, positions = counted(report.texts, "text"), counted(report.positions, "position")
    what = {"loss": "loss", "kl": "KL(full ‖ ablated)", "hidden": "change of hidden states"}
    base = f": {report.base:.3g}{known} on the full model"
    parts = [
        f"{what.get(report.metric, report.metric)} in {report.unit}"
        f"{'' if report.distance else base}",
        f"{texts}, {positions}{f' at {report.at}' if report.at else ''}",
        f"heads replaced by: {report.method}",
        _AVERAGES[report.average] if report.texts > 1 else "",
    ]
    if report.family > 1 and together(report):
        parts.append(f"95 % intervals for all {report.family} at once")
    if report.smallest:
        parts.append(
            f"smallest effect of interest {signed(report.smallest).lstrip('+')}{of(report)}"
        )
    return " · ".join(part for part in parts if part)
