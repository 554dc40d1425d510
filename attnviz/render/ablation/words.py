"""The words and figures that every picture of an ablation shares."""

from __future__ import annotations

import math

from attnviz.effects import AblationReport, Effect
from attnviz.render.palette import mix

HARM, HELP, NONE = "#b35806", "#2166ac", "#f7f7f7"
"""Ends and middle of the colours for effects: orange is worse, blue better; safe for the
colour-blind (PuOr and RdBu of Brewer 2003, whose ends differ in lightness and hue)."""


def color(change: float, most: float, worse: int, middle: str = NONE) -> str:
    """The colour of a change; its strength grows with the square root, so that small ones show."""
    strength = math.sqrt(min(abs(change) / most, 1.0)) if most > 0 else 0.0
    return mix(middle, HARM if change * worse > 0 else HELP, strength)


def most(report: AblationReport) -> float:
    """The end of the scale: the largest effect of a single head."""
    alone = [abs(effect.change) for effect in report.effects if len(effect.heads) == 1]
    return max(alone or [abs(effect.change) for effect in report.effects], default=0.0)


def signed(value: float, digits: int = 2) -> str:
    """A change with its sign, to so many significant digits and never more than four decimals."""
    if value == 0 or abs(value) < 5e-5:
        return "0"
    decimals = max(0, min(4, digits - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:+.{decimals}f}"


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
    return (
        f"{what.get(report.metric, report.metric)} in {report.unit}: {report.base:.3g}{known} on "
        f"the full model · {texts}, {report.positions:,} positions · heads replaced by: "
        f"{report.method}"
    )
