"""What a reader of an ablation must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import median

from attnviz.captures.trials import Trial
from attnviz.core.split import EVERYTHING, HALVES
from attnviz.drawing.labels import counted
from attnviz.features.ablation.fills import LEAST
from attnviz.features.ablation.reference import Reference
from attnviz.features.ablation.result import LARGEST_SHARE, Ablation, Effect
from attnviz.statistics.clusters import FEW
from attnviz.statistics.order import too_few

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
NOT_TOGETHER = (
    "Intervals of means hold each by itself and not for many heads at once, so that no head is "
    "called needed: medians of the texts have such."
)
SHARED = (
    "Mean and resample come from the same reference texts: where both are off, they are off "
    "together, so their agreement counts for less than that of two independent methods."
)
NEARNESS = (
    "What takes a head's place is not what the head gives. Its distance from that, as a share of "
    "the output's size"
)
UNLIKE = ", and the rows where it is like no output of the head"
_NAMED = 4
_APART = 5
"""Effects of two methods that are so many times as large as each other disagree."""
_TELLING = 10
"""From so many texts on, no single one should make up much of an effect."""


def notes(
    report: Ablation,
    roles: Collection[str],
    reference: Reference | None,
    tested: Sequence[Trial],
    noise: float,
) -> tuple[str, ...]:
    """What to say of a report."""
    return tuple(_notes(report, roles, reference, tested, noise))


def _notes(
    report: Ablation,
    roles: Collection[str],
    reference: Reference | None,
    tested: Sequence[Trial],
    noise: float,
) -> Iterator[str]:
    if report.partial:
        yield f"Interrupted: only {counted(report.texts, 'text')} measured."
    yield from _texts(report)
    if reference is not None:
        yield from _reference(report, reference, tested)
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


def _reference(report: Ablation, reference: Reference, tested: Sequence[Trial]) -> Iterator[str]:
    if beyond := reference.beyond(tested):
        yield (
            f"At {_percent(beyond)} of the positions fewer than {LEAST} reference "
            "texts are long enough: there the mean over all their tokens is used."
        )
    if reference.alone:
        yield (
            f"{counted(reference.alone, 'text')} of groups with fewer than {2 * LEAST} different "
            "texts filled from any text."
        )
    if {"mean", "resample"} <= set(report.methods) and not reference.disjoint:
        yield SHARED
    told, unlike = [], ""
    for number, method in enumerate(report.methods):
        by = [effect.by[number] for effect in report.effects if len(effect.heads) == 1]
        apart = [change.apart for change in by if change.apart is not None]
        off = [change.off for change in by if change.off is not None]
        if apart:
            rows = f", {_percent(median(off))} of the rows" if off else ""
            unlike = UNLIKE if off else unlike
            told.append(f"{method} {median(apart):.2f}{rows}")
    if told:
        yield f"{NEARNESS}{unlike}, for the median head: {'; '.join(told)}."


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
        elif report.average != "median":
            yield NOT_TOGETHER
        elif said := too_few(report.clusters, report.family, "effects"):
            yield said


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
        some = f"{len(small)} of {len(report.effects)} effects are within rounding error "
        if len(small) == len(report.effects):
            some = "No effect is larger than rounding error "
        yield f"{some}(below {noise:.1g}){' and are not ranked' * some[0].isdigit()}."
    if report.smallest is not None and abs(report.base) <= noise:
        yield f"With all heads the {report.metric} is 0 within rounding error."


def _disagreements(report: Ablation) -> Iterator[str]:
    effects = [effect for effect in report.ranked() if disagree(report, effect)]
    for effect in effects[:_NAMED]:
        told = ", ".join(f"{change.change:+.2g} by {change.method}" for change in effect.by)
        share = effect.mean_share
        why = ""
        if share is not None and "zero" in report.methods:
            why = f"; its mean output is {_percent(share)} of its size, and zero removes that too"
        yield f"Methods disagree on {effect.name}: {told}{why}."
    if len(effects) > _NAMED:
        yield f"The same holds for {len(effects) - _NAMED} more."


def disagree(report: Ablation, effect: Effect) -> bool:
    """Whether some methods show an effect of interest and others do not, or a far larger one."""
    if effect.verdict in (None, "", "small", "worse", "better"):
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
        if (change.largest or 0.0) > LARGEST_SHARE
    ]
    if told:
        listed = _listed(
            [f"{_percent(change.largest or 0.0)} of {effect.name} ({change.method})"
             for effect, change in sorted(told, key=lambda item: not item[1].sure)]
        )  # fmt: skip
        count = sum(len(effect.by) for effect in report.effects)
        yield (
            f"One text makes up more than {_percent(LARGEST_SHARE)} of {len(told)} of {count} "
            f"effects ({listed}): compare trimmed means or medians."
        )


def _halves(report: Ablation) -> str:
    if report.clusters == 1:
        return "The order of the curve was chosen on the same text that its cost is measured on."
    if report.split == EVERYTHING:
        return (
            "The curve's order was chosen on the texts that its cost is measured on: the cost on "
            "others is larger."
        )
    if report.split != HALVES:
        return f"The curve's order was chosen on {report.split}, its cost is that on the others."
    return "The curve's order was chosen on one half of the texts, its cost is that on the other."


def _listed(parts: Sequence[str]) -> str:
    more = f", {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
