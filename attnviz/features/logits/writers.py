"""Writers and cancellers described: two lists, rows, what is found of every head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from attnviz.core.findings import RAISES, Finding, Interval, Measure, known
from attnviz.drawing.description import Column, Listing, estimate_column
from attnviz.drawing.labels import closing, counted, percent
from attnviz.drawing.signed import signed
from attnviz.drawing.terminal import Line
from attnviz.features.logits.result import Push, Writers

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
    ]
    return Listing(columns, pushes)


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
    how = (
        f"What it adds by itself: {measured(result)}; in brackets a 95 % interval. Signs are "
        "judged over texts, Holm over all parts; what it makes later layers write counts as theirs."
    )
    values = known({head: push.mean for head, push in result.heads().items()})
    measure = Measure("push", f"what it adds to the {result.of}", "logits", UP, values, RAISES)
    return Finding.of("logits", name, "Does it write or cancel?", how, said, [measure])
