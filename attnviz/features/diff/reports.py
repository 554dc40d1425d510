"""Two reports, figure by figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.core.findings import Figures
from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo
from attnviz.core.record import Record
from attnviz.core.result import Result
from attnviz.drawing.forms import Renderable
from attnviz.drawing.labels import counted
from attnviz.errors import InputError
from attnviz.features.diff.result import Diff, FigureChange, HeadChange


@dataclass(frozen=True)
class Report:
    """A result as it is compared.

    Attributes:
        name: of its file, or what stands for it.
        kind: the command that made it.
        source: its model; ``layout`` its heads, ``identity`` what no other model shares.
        layout: see ``source``, as for ``identity``.
        identity: see there.
        texts: how many it is from; ``corpus`` a hash of them.
        corpus: see ``texts``.
        figures: of its heads.
    """

    name: str
    kind: str
    source: SourceInfo
    layout: Layout
    identity: Mapping[str, Any]
    texts: int
    corpus: str
    figures: Figures


def report(result: Record, name: str) -> Report:
    """A typed result as it is compared."""
    if not isinstance(result, Result) or not isinstance(result, Renderable):
        raise InputError(f"{name} holds no result about heads; give one that a command measured")
    return Report(
        name, result.command, result.source, result.layout, result.identity, result.texts,
        result.corpus, result.compared(),
    )  # fmt: skip


def compare(first: Report, other: Report) -> Diff:
    """What differs between two reports."""
    if first.kind != other.kind:
        raise InputError(
            f"{first.name} is of {first.kind}, {other.name} of {other.kind}; compare two of one "
            "kind"
        )
    for key, value in first.figures.settings.items():
        if value != other.figures.settings.get(key):
            second = other.figures.settings.get(key)
            raise InputError(f"{key} is {value} in {first.name}, {second} in {other.name}")
    before, after = first.figures.values, other.figures.values
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise InputError(f"only one of the two reports has {', '.join(odd[:5])}")
    known = [_names(run) for run in (first, other)]
    if not known[0] & known[1] and all(known):
        told = " and ".join(", ".join(sorted(some)[:5]) for some in known)
        raise InputError(f"the two reports have no figure in common ({told})")
    heads = [_changed(name, first.figures, other.figures) for name in before]
    heads.sort(key=lambda head: -head.largest())
    return Diff(
        source=first.source,
        layout=first.layout,
        identity=first.identity,
        texts=first.texts,
        corpus=first.corpus if first.corpus == other.corpus else "",
        notes=tuple(_notes(first, other)),
        other=other.source,
        other_identity=other.identity,
        before=f"{first.source.model} ({first.name})",
        after=f"{other.source.model} ({other.name})",
        kind=first.kind,
        heads=tuple(heads),
    )


def _notes(first: Report, other: Report) -> Iterator[str]:
    if first.texts:
        yield "Reports keep no figures of single texts: their differences have no paired interval."
    if first.texts != other.texts:
        texts = counted(first.texts, "text")
        yield f"The first report is of {texts}, the second of {other.texts:,}."
    elif first.corpus != other.corpus:
        yield "The two reports are of other texts, so that what differs may be of them."
    if odd := sorted(_names(first) ^ _names(other)):
        yield f"Only one of the two reports has {', '.join(odd[:5])}."


def _names(report: Report) -> frozenset[str]:
    """The names of its figures."""
    return frozenset(key for values in report.figures.values.values() for key in values)


def _changed(name: str, earlier: Figures, later: Figures) -> HeadChange:
    before, after = earlier.values[name], later.values[name]
    changes = [
        _change(key, first, second)
        for key in before
        if (first := before[key]) is not None and (second := after.get(key)) is not None
    ]
    had, has = (run.roles.get(name, frozenset()) for run in (earlier, later))
    return HeadChange(
        name, None, tuple(changes), tuple(sorted(has - had)), tuple(sorted(had - has))
    )


def _change(name: str, before: float, after: float) -> FigureChange:
    if not (math.isfinite(before) and math.isfinite(after)):
        raise InputError(f"{name} is {before} in one report and {after} in the other")
    return FigureChange(name, before, after, after - before)
