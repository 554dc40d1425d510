"""The words and figures that every picture of an ablation shares, and what must not be missed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import median

from attnviz.captures.trials import Trial
from attnviz.core.split import EVERYTHING, HALVES
from attnviz.drawing.grid import signed
from attnviz.drawing.labels import counted, in_part, known_decimals, percent
from attnviz.features.ablation.fills import LEAST, Reference
from attnviz.features.ablation.result import LARGEST_SHARE, Ablation, Change, Effect, Kept
from attnviz.statistics.clusters import FEW
from attnviz.statistics.coverage import holds
from attnviz.statistics.order import too_few

_AVERAGES = {
    "mean": "",
    "trimmed": "trimmed means of the texts",
    "median": "in the typical text (median)",
}


def most(report: Ablation) -> float:
    """Return the end of the scale: the largest effect of a single head."""
    effects = report.single.values() or report.effects
    return max((abs(effect.change) for effect in effects), default=0.0)


def measured(change: Change) -> str:
    """Return the change with the digits that its interval leaves known."""
    low, high = change.low, change.high
    if low is None or high is None or high <= low:
        return signed(change.change)
    text = f"{change.change:+.{known_decimals(low, high)}f}"
    return "0" if float(text) == 0 else text


def interval(change: Change) -> str:
    """``6.1 to 6.6``, the interval that holds together with all others; empty for none."""
    if change.joint_low is None or change.joint_high is None:
        return ""
    decimals = known_decimals(change.joint_low, change.joint_high)
    return f"{change.joint_low:+.{decimals}f} to {change.joint_high:+.{decimals}f}"


def verdict(report: Ablation, effect: Effect) -> str:
    """Say whether it is needed and by which methods, or what would have shown; may be empty."""
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
    methods = [c.method for c in effect.by if c.sure]
    named = "" if len(methods) == len(effect.by) else f" by {' and '.join(methods)}"
    unsure = f", not surely by {size}" if effect.verdict in ("worse", "better") else ""
    return f"{effect.verdict}{named}{unsure}"


def nothing(effect: Effect) -> str:
    """``nothing (0.12 would show)``: by any method, in four of five such samples."""
    sizes = [c.detectable for c in effect.by if c.detectable is not None]
    return f"nothing ({signed(max(sizes)).lstrip('+')} would show)" if sizes else "nothing"


def _depends(report: Ablation, sure: Sequence[Change]) -> str:
    """``worse by zero only``; ``worse by mean, better by zero``: it is so without the heads."""
    words = {
        word: [c.method for c in sure if c.change * report.worse * sign > 0]
        for word, sign in (("worse", 1), ("better", -1))
    }
    text = ", ".join(f"{word} by {' and '.join(names)}" for word, names in words.items() if names)
    return f"{text} only" if len(sure) == 1 else text


def of(report: Ablation) -> str:
    """Return what the smallest effect of interest is a share of: `` (1 % of ...)``."""
    total = report.stake or abs(report.base)
    if not report.smallest or not total:
        return ""
    basis = (
        f"the {report.metric} on the full model"
        if report.stake is None
        else f"the {report.stake:.3g} that the repetition is worth"
    )
    return f" ({100 * report.smallest / total:.3g} % of {basis})"


def largest(changes: Sequence[Change]) -> str:
    """Return the share of the largest text in the first of the changes; empty for none."""
    share = changes[0].largest
    return "" if share is None else percent(share) if share <= 1 else "> 100 %"


def together(report: Ablation) -> bool:
    """Whether there are intervals that hold for all groups and methods at once."""
    joint = any(effect.first.joint_low is not None for effect in report.effects)
    return joint and holds("ablate: all at once", report.clusters)


def mean(change: Change) -> str:
    """Get the mean over all positions with an interval of its own; empty where it is the figure."""
    if change.mean is None or change.mean == change.change:
        return ""
    if change.mean_low is None or change.mean_high is None:
        return signed(change.mean)
    return f"{signed(change.mean)} ({signed(change.mean_low)} to {signed(change.mean_high)})"


def often(report: Ablation, effect: Effect) -> str:
    """``worse in 34 % or more``: of the texts, by the smallest effect of interest; empty for no."""
    change = effect.first
    ways = (("worse", change.often_worse), ("better", change.often_better))
    return in_part(ways) if report.texts > 1 else ""


def kept_share(ruled: Kept) -> str:
    """``99 % [98, 100]``; empty where the effect is too small to be shared out."""
    if ruled.share is None:
        return ""
    ends = ""
    if ruled.low is not None and ruled.high is not None:
        ends = f" [{100 * ruled.low:.0f}, {100 * ruled.high:.0f}]"
    return f"{percent(ruled.share)}{ends}"


def worse(effect: Effect) -> str:
    """Return the share of the texts that got worse; empty for a distance."""
    return "" if effect.first.worse is None else f"{100 * effect.first.worse:.0f} %"


def role(effect: Effect) -> str:
    """Return what a head does and where it rests, in a few words."""
    sink = effect.rests if effect.rests in ("", "diffuse") else f"sink: {effect.rests}"
    return ", ".join(part for part in (effect.does, sink) if part)


def measure(report: Ablation) -> str:
    """Return what was measured, on what and how, in one line."""
    ends = f" ({report.low:.3g} to {report.high:.3g})" if report.low is not None else ""
    texts, positions = counted(report.texts, "text"), counted(report.positions, "position")
    names = {"loss": "loss", "kl": "KL(full ‖ ablated)", "hidden": "change of hidden states"}
    base = f": {report.base:.3g}{ends} on the full model"
    parts = [
        f"{names.get(report.metric, report.metric)} in {report.unit}"
        f"{'' if report.distance else base}",
        f"{texts}, {positions}{f' at {report.position}' if report.position else ''}",
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
RULED = (
    "A rule gives a head's weights; values and W_O stay its own. It keeps 1 - Σ change with the "
    "rule / Σ change by {}, over all positions, each with an interval of its own (Fieller); at "
    "random: the same weights at positions drawn anew. Unless a rule is named, it is that of the "
    "role on the reference texts, not on those measured; heads of a group that have none are "
    "replaced by {}."
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
) -> Iterator[str]:
    """Yield what to say of a report."""
    if report.partial:
        yield f"Interrupted: only {counted(report.texts, 'text')} measured."
    yield from _texts(report)
    if reference is not None:
        yield from _reference(report, reference, tested)
    yield from _method(report)
    yield from _rounding(report, noise)
    yield from _disagreements(report)
    yield from _tails(report)
    if any(effect.kept for effect in report.effects):
        yield RULED.format(report.methods[0], report.methods[0])
    for effect in report.effects:
        if effect.members is None or effect.name not in roles:
            continue
        change, members = effect.change, effect.members
        if abs(change - members) > max(abs(members), abs(change)) / 2:
            yield (
                f"The {len(effect.heads)} heads of {effect.name} together change it by "
                f"{change:+.2g}; the sum of single effects is {members:+.2g}."
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
    summaries, unlike = [], ""
    for number, method in enumerate(report.methods):
        changes = [effect.by[number] for effect in report.effects if len(effect.heads) == 1]
        distances = [change.apart for change in changes if change.apart is not None]
        off = [change.off for change in changes if change.off is not None]
        if distances:
            rows = f", {_percent(median(off))} of the rows" if off else ""
            unlike = UNLIKE if off else unlike
            summaries.append(f"{method} {median(distances):.2f}{rows}")
    if summaries:
        yield f"{NEARNESS}{unlike}, for the median head: {'; '.join(summaries)}."


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
        elif warning := too_few(report.clusters, report.family, "effects"):
            yield warning


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
        start = f"{len(small)} of {len(report.effects)} effects are within rounding error "
        if len(small) == len(report.effects):
            start = "No effect is larger than rounding error "
        yield f"{start}(below {noise:.1g}){' and are not ranked' * start[0].isdigit()}."
    if report.smallest is not None and abs(report.base) <= noise:
        yield f"With all heads the {report.metric} is 0 within rounding error."


def _disagreements(report: Ablation) -> Iterator[str]:
    effects = [effect for effect in report.ranked() if disagree(report, effect)]
    for effect in effects[:_NAMED]:
        values = ", ".join(f"{change.change:+.2g} by {change.method}" for change in effect.by)
        share = effect.mean_share
        cause = ""
        if share is not None and "zero" in report.methods:
            cause = f"; its mean output is {_percent(share)} of its size, and zero removes that too"
        yield f"Methods disagree on {effect.name}: {values}{cause}."
    if len(effects) > _NAMED:
        yield f"The same holds for {len(effects) - _NAMED} more."


def disagree(report: Ablation, effect: Effect) -> bool:
    """Whether some methods show an effect of interest and others do not, or a far larger one."""
    if effect.verdict in (None, "", "small", "worse", "better"):
        return False
    smallest = report.smallest or 0.0
    of_interest = [c.sure and abs(c.change) >= smallest for c in effect.by]
    sizes = [abs(c.change) for c in effect.by]
    return effect.verdict == "depends" or not all(of_interest) or max(sizes) > _APART * min(sizes)


def _tails(report: Ablation) -> Iterator[str]:
    if report.clusters < _TELLING or report.average != "mean":
        return
    dominated = [
        (effect, change)
        for effect in report.ranked()
        for change in effect.by
        if (change.largest or 0.0) > LARGEST_SHARE
    ]
    if dominated:
        ordered = sorted(dominated, key=lambda item: not item[1].sure)[:_NAMED]
        listed = ", ".join(
            f"{_percent(change.largest or 0.0)} of {effect.name} ({change.method})"
            for effect, change in ordered
        )
        if len(dominated) > _NAMED:
            listed += f", {len(dominated) - _NAMED} more"
        count = sum(len(effect.by) for effect in report.effects)
        yield (
            f"One text makes up more than {_percent(LARGEST_SHARE)} of {len(dominated)} of {count} "
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


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
