"""What taking heads away changed: frozen values that know their own JSON.

The schema is docs/ablate.schema.json. A figure that is not known is None and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from attnviz.records import Head, Layout, SourceInfo

SCHEMA = "attnviz.ablate/1"

DISTANCES = ("kl", "hidden")
"""Metrics of how far the ablated model is from the full one: 0 for that, and never below."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What happened to a metric without some heads.

    Attributes:
        name: of the group, ``5.1`` or ``3.0+3.1``.
        heads: the heads that were taken away.
        change: mean change of the metric over all positions, ablated minus full.
        low: of its 95 % interval over texts, None for a single text; ``high`` likewise.
        high: the other end of the interval.
        worse: share of the texts that got worse.
        gradient: mean over texts of |∂L/∂ξ|; None for groups, or where not asked for.
        signed: mean over texts of ∂L/∂ξ.
        does: what a single head does on these texts, in words; empty for nothing in particular.
        rests: where it rests.
        members: for a group, the sum of the effects of its heads alone, where those were measured.
    """

    name: str
    heads: tuple[Head, ...]
    change: float
    low: float | None
    high: float | None
    worse: float
    gradient: float | None = None
    signed: float | None = None
    does: str = ""
    rests: str = ""
    members: float | None = None

    @property
    def sure(self) -> bool:
        """Whether its interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The metric with so many heads taken away.

    Attributes:
        order: ``effect``, ``gradient``, ``role`` or ``random 1``, ...
        removed: how many heads.
        head: the one that went last; empty at the start.
        change: mean change of the metric.
        low: of its interval over texts, None for a single text.
        high: the other end.
    """

    order: str
    removed: int
    head: str
    change: float
    low: float | None
    high: float | None


def affordable_share(points: Sequence[CurvePoint], tolerance: float, worse: int) -> float | None:
    """The share of heads that can go, in a curve's own order, before it costs more than that."""
    order = points[0].order if points else ""
    mine = [point for point in points if point.order == order]
    kept = 0
    for point in mine:
        if point.change * worse > tolerance:
            break
        kept = point.removed
    return kept / mine[-1].removed if mine and mine[-1].removed else None


@dataclass(frozen=True)
class AblationReport:
    """Effects of taking heads away, and how they were measured.

    Attributes:
        source: the model.
        layout: its heads.
        metric: ``loss``, ``kl``, ``logit-diff`` or ``hidden``.
        unit: of the metric.
        method: what took a head's place, in words.
        worse: +1 if more of the metric is worse, -1 if less is.
        base: the metric on the full model; 0 for a distance from it.
        low: of its interval; ``high`` likewise.
        high: the other end.
        texts: how many texts.
        positions: how many positions in them counted.
        effects: in the order that was asked for.
        correlation: Spearman's between gradient and |effect| of single heads, None where not known.
        curve: see :class:`CurvePoint`; empty unless asked for.
        tolerance: how much a curve may cost, None without a curve.
        seed: of whatever was drawn.
        partial: whether it was interrupted; then only the texts that were done are in it.
        notes: full sentences that the reader must not miss.
        tokens: of a single text; empty for several.
        by_position: change at every token of a single text by name of the group, [T] with None
            where nothing is measured; empty unless asked for.
        identity: what no other model shares; empty where one was handed over loaded.
    """

    source: SourceInfo
    layout: Layout
    metric: str
    unit: str
    method: str
    worse: int
    base: float
    low: float | None
    high: float | None
    texts: int
    positions: int
    effects: tuple[Effect, ...]
    correlation: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    tolerance: float | None = None
    seed: int = 0
    partial: bool = False
    notes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    by_position: Mapping[str, tuple[float | None, ...]] | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)

    def ranked(self) -> tuple[Effect, ...]:
        """The effects, the most harmful first."""
        return tuple(sorted(self.effects, key=lambda effect: -effect.change * self.worse))

    def to_json(self) -> dict[str, Any]:
        """As docs/ablate.schema.json says."""
        facts = asdict(self.source)
        return {
            "schema": SCHEMA,
            **{name: facts[name] for name in ("model", "backend", "exactness", "device", "dtype")},
            "versions": dict(self.source.versions),
            "layout": {kind: list(heads) for kind, heads in self.layout.heads.items()},
            "identity": dict(self.identity),
            "metric": self.metric,
            "unit": self.unit,
            "method": self.method,
            "base": self.base,
            "base_low": self.low,
            "base_high": self.high,
            "texts": self.texts,
            "positions": self.positions,
            "seed": self.seed,
            "partial": self.partial,
            "correlation": self.correlation,
            "effects": [
                {
                    "name": effect.name,
                    "heads": [self.layout.name(head) for head in effect.heads],
                    "effect": effect.change,
                    "low": effect.low,
                    "high": effect.high,
                    "worse": effect.worse,
                    "gradient": effect.gradient,
                    "signed_gradient": effect.signed,
                    "does": effect.does,
                    "rests": effect.rests,
                    "members": effect.members,
                }
                for effect in self.effects
            ],
            "tolerance": self.tolerance,
            "curve": [asdict(point) for point in self.curve],
            "tokens": list(self.tokens),
            "by_position": {k: list(v) for k, v in (self.by_position or {}).items()},
            "notes": [str(note) for note in self.notes],
        }
