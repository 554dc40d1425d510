"""What a reader of an ablation must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from attnviz.drawing.labels import counted
from attnviz.features.ablation.fills import LEAST
from attnviz.features.ablation.result import LARGEST_SHARE, Ablation, Effect
from attnviz.statistics.clusters import FEW

SELF_REPAIR = (
    "Other heads can make up for one that is missing; effects of single heads then understate what "
    "groups do (Wang et al. 2022, arXiv:2211.00593)."
)
ZERO_ALONE = (
    "Zero also removes the mean of a head's output: later layers may be missing no "
    "more than a constant. Compare with the methods mean and resample."
)
ONE_METHOD = "A head is called needed only where two methods agree; this is one."
DISTANCE = (
    "This metric is a distance, which is never negative: heads are ranked by it, and "
    "none is called needed."
)
_NAMED = 4
_APART = 5
"""Effects of two methods that are so many times as large as each other disagree."""
_TELLING = 10
"""From so many texts on, no single one should make up much of an effect."""


def notes(report: Ablation, roles: Collection[str], beyond: float, noise: float) -> tuple[str, ...]:
    """What to say of a report.

    Args:
        report: all of it but its notes.
        roles: names of the groups that nobody asked for by name.
        beyond: the share of positions that have no mean of their own.
        noise: the size of what is no more than rounding.
    """
    return tuple(_notes(report, roles, beyond, noise))


def _notes(report: Ablation, roles: Collection[str], beyond: float, noise: float) -> Iterator[str]:
    if report.partial:
        yield f"Interrupted: only {counted(report.texts, 'text')} measured."
    yield from _texts(report)
    if beyond:
        yield (
            f"At {_percent(beyond)} of the positions fewer than {LEAST} reference "
            "texts are long enough: there the mean over all their tokens is used."
        )
    yield from _method(report)
    yield from _rounding(report, noise)
    yield from _disagreements(report)
    yield from _tails(report)
    for effect in report.effects:
        if effect.members is None or effect.name not in roles:
            continue
        together, apart = effect.change, effect.members
        if abs(together - apart) > max(abs(apart), abs(together)) / 2:
            yield (
                f"The {len(effect.heads)} heads of {effect.name} together change it by "
                f"{together:+.2g}; the sum of single effects is {apart:+.2g}."
            )
    if report.curve:
        yield _halves(report)
    yield SELF_REPAIR


def _texts(report: Ablation) -> Iterator[str]:
    if report.texts == 1:
        yield "A single text: there is no interval, and nothing is known about other texts."
    elif report.clusters == 1:
        yield f"{report.texts:,} texts of one group, or the same text: there is no interval."
    else:
        if report.clusters < report.texts:
            yield (
                f"{report.texts:,} texts count as {report.clusters:,}: those of one group and "
                "those that are the same are not independent."
            )
        if all(effect.low is None for effect in report.effects):
            yield f"From {report.clusters} independent texts there is no interval; use {FEW}."
        elif report.clusters < FEW:
            yield (
                f"Intervals from {report.clusters} texts cover less than 95 %; use {FEW} or more."
            )


def _method(report: Ablation) -> Iterator[str]:
    if report.methods == ("zero",):
        yield ZERO_ALONE
    if report.smallest is None:
        yield DISTANCE
    elif len(report.methods) == 1 and report.clusters > 1:
        yield ONE_METHOD


def _rounding(report: Ablation, noise: float) -> Iterator[str]:
    small = [effect for effect in report.effects if effect.rank is None]
    if small:
        yield (
            f"{len(small)} of {len(report.effects)} effects are within rounding error "
            f"(below {noise:.1g}) and are not ranked."
        )
    if report.smallest is not None and abs(report.base) <= noise:
        yield f"With all heads the {report.metric} is 0 within rounding error."


def _disagreements(report: Ablation) -> Iterator[str]:
    found = [effect for effect in report.ranked() if disagree(report, effect)]
    for effect in found[:_NAMED]:
        told = ", ".join(f"{change.change:+.2g} by {change.method}" for change in effect.by)
        share = effect.mean_share
        why = ""
        if share is not None and "zero" in report.methods:
            why = f"; its mean output is {_percent(share)} of its size, and zero removes that too"
        yield f"Methods disagree on {effect.name}: {told}{why}."
    if len(found) > _NAMED:
        yield f"The same holds for {len(found) - _NAMED} more."


def disagree(report: Ablation, effect: Effect) -> bool:
    """Whether some methods show an effect of interest and others do not, or a far larger one."""
    if effect.verdict in (None, "", "small"):
        return False
    smallest = report.smallest or 0.0
    shown = [c.sure and abs(c.change) >= smallest for c in effect.by]
    sizes = [abs(c.change) for c in effect.by]
    return effect.verdict == "depends" or not all(shown) or max(sizes) > _APART * min(sizes)


def _tails(report: Ablation) -> Iterator[str]:
    if report.clusters < _TELLING or report.average != "mean":
        return
    told = [
        (effect, change)
        for effect in report.ranked()
        for change in effect.by
        if change.sure and (change.largest or 0.0) > LARGEST_SHARE
    ]
    if told:
        listed = _listed(
            [f"{_percent(change.largest or 0.0)} of {effect.name} ({change.method})"
             for effect, change in told]
        )  # fmt: skip
        yield (
            f"One text makes up more than {_percent(LARGEST_SHARE)} of some effects ({listed}): "
            "compare trimmed means or medians."
        )


def _halves(report: Ablation) -> str:
    if report.clusters == 1:
        return "The order of the curve was chosen on the same text that its cost is measured on."
    return "The curve's order was chosen on one half of the texts, its cost is that on the other."


def _listed(parts: Sequence[str]) -> str:
    more = f", {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
