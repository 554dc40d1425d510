"""Results on gold annotation as they would be of a model, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.provenance import SourceInfo
from attnviz.core.result import Interval
from attnviz.features.coref.result import AntecedentHead, Baseline, Coref, MentionKind, NameAccuracy
from attnviz.features.syntax.result import HeadAccuracy, Relation, RelationHead, Syntax

Ends = tuple[float, float, float]
"""A share and its interval."""


def head(name: str, kind: SiteKind = "encoder") -> Head:
    layer, _, index = name.partition(".")
    return Head(Site(kind, int(layer)), int(index))


def relation_head(
    name: str, relation: str, accuracy: Ends, margin: Ends, count: int, kind: SiteKind = "encoder"
) -> RelationHead:
    """A head that finds a relation, beside an offset that makes up the margin."""
    return RelationHead(
        head=head(name, kind), relation=relation, direction="to_head", accuracy=Interval(*accuracy),
        count=count, offset=1, offset_accuracy=accuracy[0] - margin[0], margin=Interval(*margin),
    )  # fmt: skip


def syntax(
    model: str = "demo-bert",
    kind: SiteKind = "encoder",
    *,
    roles: Sequence[RelationHead] = (),
    best: Sequence[RelationHead] = (),
    identity: Mapping[str, Any] | None = None,
) -> Syntax:
    """Four layers of six heads against a treebank, of which only the best heads are known."""
    layout = Layout({kind: (6,) * 4})
    nothing = tuple(HeadAccuracy(one, 0.0, 0.0) for one in layout)
    return Syntax(
        source=SourceInfo(model, "native", "exact"),
        layout=layout,
        identity=identity or {},
        texts=20,
        unit="documents",
        sentences=200,
        words=3000,
        skipped={},
        untokenized=0,
        split="halves",
        subtypes=False,
        punct=True,
        relations=tuple(
            Relation(one.relation, 2 * one.count, 1, 0.5, nothing, one) for one in best
        ),
        roles=tuple(roles),
    )


def antecedent_head(
    name: str, accuracy: Ends, margin: Ends, count: int = 90, kind: SiteKind = "encoder"
) -> AntecedentHead:
    """A head that finds antecedents, beside a baseline that makes up the margin."""
    return AntecedentHead(
        head=head(name, kind), direction="to_name", accuracy=Interval(*accuracy), count=count,
        baseline="nearest", baseline_accuracy=accuracy[0] - margin[0], margin=Interval(*margin),
    )  # fmt: skip


def coref(
    model: str = "demo-bert",
    kind: SiteKind = "encoder",
    *,
    ranked: Sequence[AntecedentHead] = (),
    roles: Sequence[AntecedentHead] = (),
    identity: Mapping[str, Any] | None = None,
) -> Coref:
    """Four layers of six heads against names, of which only some are known."""
    layout = Layout({kind: (6,) * 4})
    whole = MentionKind(
        name="all",
        count=180,
        baselines=(Baseline("nearest", 0.5, Interval(0.5, 0.4, 0.6)),),
        heads=tuple(NameAccuracy(one, 0.5, None) for one in layout),
        ranked=tuple(ranked),
    )
    return Coref(
        source=SourceInfo(model, "native", "exact"), layout=layout, identity=identity or {},
        texts=20, unit="documents", data="names", examples=180, skipped={}, split="halves",
        candidates="names", window=None, kinds=(whole,), roles=tuple(roles),
    )  # fmt: skip
