"""The words and figures that every picture of an ablation shares."""

from __future__ import annotations

import math

from attnviz.effects import DISTANCES, AblationReport, Effect
from attnviz.render.signed import signed


def most(report: AblationReport) -> float:
    """The end of the scale: the largest effect of a single head."""
    alone = [abs(effect.change) for effect in report.effects if len(effect.heads) == 1]
    return max(alone or [abs(effect.change) for effect in report.effects], default=0.0)


def measured(effect: Effect) -> str:
    """The change with the digits that its interval leaves known."""
    if effect.low is None or effect.high is None:
        return signed(effect.change)
    half = (effect.high - effect.low) / 2
    if half <= 0:
        return signed(effect.change)
    decimals = max(0, min(4, 1 - math.floor(math.log10(half))))
    text = f"{effect.change:+.{decimals}f}"
    return "0" if float(text) == 0 else text


def interval(effect: Effect) -> str:
    """``6.1 to 6.6``; empty where there is none."""
    if effect.low is None or effect.high is None:
        return ""
    half = (effect.high - effect.low) / 2
    decimals = max(0, min(4, 1 - math.floor(math.log10(half)))) if half > 0 else 4
    return f"{effect.low:+.{decimals}f} to {effect.high:+.{decimals}f}"


def role(effect: Effect) -> str:
    """What a head does and where it rests, in a few words."""
    place = effect.rests if effect.rests in ("", "diffuse") else f"rests on {effect.rests}"
    return ", ".join(part for part in (effect.does, place) if part)


def measure(report: AblationReport) -> str:
    """What was measured, on what and how, in one line."""
    known = f" ({report.low:.3g} to {report.high:.3g})" if report.low is not None else ""
    texts = "1 text" if report.texts == 1 else f"{report.texts:,} texts"
    what = {"loss": "loss", "kl": "KL(full ‖ ablated)", "hidden": "change of hidden states"}
    base = f": {report.base:.3g}{known} on the full model"
    return (
        f"{what.get(report.metric, report.metric)} in {report.unit}"
        f"{'' if report.metric in DISTANCES else base} · {texts}, {report.positions:,} positions · "
        f"heads replaced by: {report.method}"
    )
