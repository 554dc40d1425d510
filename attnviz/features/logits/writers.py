"""Writers and cancellers described: two lists, rows, what is found of every head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from attnviz.core.findings import RAISES, Finding, Interval, Measure, known
from attnviz.drawing import description
from attnviz.drawing.description import Column, Listing, estimate_column
from attnviz.drawing.labels import closing, counted, percent
from attnviz.drawing.labels import listing as joined
from attnviz.drawing.signed import signed
from attnviz.drawing.terminal import Line
from attnviz.features.logits.result import Push, Repair, Suppression, Writers

UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""

_SHOWN = 8  # parts of a list that the terminal shows in short
_LISTS = {
    "writer": "Writers, which push it up",
    "canceller": "Cancellers, which push it down",
    "": "Not told from chance",
}


def measured(result: Writers) -> str:
    """What was measured, in a sentence."""
    return (
        f"{result.of}, mean over {counted(result.texts, 'text')}: {signed(result.logit, 3)} = "
        f"heads and MLPs {signed(result.logit - result.rest, 3)}, embeddings and biases "
        f"{signed(result.rest, 3)}"
    )


def listing(pushes: Sequence[Push]) -> Listing:
    """What is said of each part."""
    columns = [
        Column("", "part", "part", left=True),
        *(Column(name, name) for name in ("kind", "layer")),
        Column("index", "head"),
        Column("head", lambda push: push.part if push.kind == "head" else None),
        estimate_column("mean", "mean", "logits", lambda mean: signed(mean.value, 3), _ends),
        Column("share", "share", "texts with that sign", percent),
        Column("adjusted", "adjusted", "p", "{:.2g}".format),
        Column("verdict", "verdict"),
        Column("suppression", lambda push: push.why and said_of(push.why)),
        *(estimate_column(name, _of("why", name)) for name in _TRIED),
        *(estimate_column(f"without_{name}", _of("repair", name)) for name in _CHANGES),
    ]
    return Listing(columns, pushes)


_TRIED = ("predicted", "predicted_others", "lowered", "lowered_others", "gone", "gone_others")
_CHANGES = {
    "total": "in all", "direct": "of it by itself", "heads": "other heads", "mlps": "MLPs",
    "scales": "scales",
}  # fmt: skip


def _of(part: str, name: str) -> Callable[[Push], Any]:
    """Take an estimate of what was looked into; None where nothing was."""
    return lambda push: (whole := getattr(push, part)) and getattr(whole, name)


def said_of(why: Suppression) -> str:
    """Whether it is copy suppression, and if not, what fails."""
    return f"no copy suppression ({', '.join(why.fails)})" if why.fails else "copy suppression"


def reasons(why: Suppression) -> str:
    """The same with its evidence, in a sentence."""

    def beside(share: Interval, null: Interval, of: str) -> str:
        ends = "" if share.low is None else f" [{description.interval(share)}]"
        return f"{description.percent(share)} %{ends} ({of} {description.percent(null)} %)"

    of = f"of {counted(why.texts, 'text')}"
    gone = "no other heads below it write or could be compared"
    if why.gone.value is not None:
        other = f"{counted(why.others, 'other head')} below it"
        without = f"of its push goes without {joined(why.writers)}"
        gone = f"{beside(why.gone, why.gone_others, other)} {without}"
    return (
        f"{said_of(why)}. The token that it reads is predicted below it in "
        f"{beside(why.predicted, why.predicted_others, 'other tokens')} {of}, and lowered in "
        f"{beside(why.lowered, why.lowered_others, 'others')}; {gone}"
    )


def repaired(pushes: Sequence[Push]) -> Listing:
    """What changes without each writer: all of it, and what adds up to it."""

    def most(push: Push) -> str:
        parts: Repair | Any = push.repair
        ranked = sorted(parts.by_part.items(), key=lambda item: -abs(item[1].value or 0.0))
        return ", ".join(f"{name} {signed(mean.value or 0.0)}" for name, mean in ranked[:_NAMED])

    columns = [Column("", "part", "without", left=True)]
    columns += [
        Column("", _of("repair", name), label, lambda mean: signed(mean.value or 0.0))
        for name, label in _CHANGES.items()
    ]
    return Listing([*columns, Column("", most, "most of all")], pushes)


_NAMED = 2  # parts that change most


def _ends(mean: Interval) -> str:
    if mean.low is None or mean.high is None:
        return "–"
    return f"{signed(mean.low, 3)} to {signed(mean.high, 3)}"


def parts(result: Writers, top: int | None, everything: bool) -> Iterator[RenderableType]:
    """Both lists, each with so many of its parts; the others as a number, or as a list too."""
    yield Line(measured(result), "bold")
    most = top or (len(result.pushes) if everything else _SHOWN)
    for verdict, heading in _LISTS.items():
        pushes = result.listed(verdict)
        yield ""
        yield Line(f"{heading}: {len(pushes) or 'none'}", "bold" if verdict else "")
        if pushes and (verdict or everything):
            yield listing(pushes).table(most)
            if len(pushes) > most:
                yield Line(f"{len(pushes) - most} more", "dim")
            yield from (Line(f"{push.part}: {reasons(push.why)}") for push in pushes if push.why)
        if replaced := [push for push in pushes if push.repair]:
            yield Line(
                "Without each, its mean over the other texts in its place, the logit changes"
            )
            yield repaired(replaced).table(most)
    yield Line(closing(result.source, counted(result.texts, "text")), "dim")


def finding(result: Writers, name: str) -> Finding:
    """What every head adds to the answers' logits, and whether it writes or cancels."""
    said = {
        head: [
            f"{signed(push.mean.value or 0.0)} logits ({_ends(push.mean)}), "
            f"{percent(push.share or 0.0)} of texts with that sign: "
            f"{push.verdict or 'not told from chance'}"
        ]
        for head, push in result.heads().items()
    }
    for head, push in result.heads().items():
        if push.why is not None:
            said[head].append(reasons(push.why))
        if push.repair is not None:
            means = ((name, _of("repair", name)(push)) for name in _CHANGES)
            adds = [f"{_CHANGES[name]} {signed(mean.value or 0.0)}" for name, mean in means]
            said[head].append(f"without it the logit changes {', '.join(adds)}")
    how = (
        f"What it adds by itself: {measured(result)}; in brackets a 95 % interval. Signs are "
        "judged over texts, Holm over all parts; what it makes later layers write counts as theirs."
    )
    values = known({head: push.mean for head, push in result.heads().items()})
    measure = Measure("push", f"what it adds to the {result.of}", "logits", UP, values, RAISES)
    return Finding.of("logits", name, "Does it write or cancel?", how, said, [measure])
