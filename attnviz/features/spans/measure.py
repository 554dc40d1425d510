"""From texts with named parts to what every head gives to each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.core.spans import ELSEWHERE, EVERY, LAST, elsewhere
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.features.spans.observe import SpanObserver, SpanSums, by_name
from attnviz.features.spans.result import NamedSpan, SpanShare, SpanWeights
from attnviz.scoring.passes import observe
from attnviz.scoring.replay import blocks
from attnviz.statistics.clusters import ClusterSums, merge_copies
from attnviz.statistics.families import LEVEL
from attnviz.statistics.ratios import Ratios, ratios

Groups = Sequence[Sequence[int]]
"""Positions of every group."""
_TOLD = 4
"""Notes of many texts."""
_SHOWN = 200
"""Characters of a span that are kept."""


def shortened(notes: Iterable[str]) -> list[str]:
    """What to tell of many texts, each thing once, and of the same kind of thing the first few."""
    different = list(dict.fromkeys(notes))
    if len(different) <= _TOLD:
        return different
    return [*different[: _TOLD - 1], f"{len(different) - _TOLD + 1} more notes of this kind."]


def check_stack(model: str, layout: Layout) -> None:
    """Refuse models whose attention is not of one text alone."""
    if len(layout.kinds) > 1 or "cross" in layout.kinds:
        raise UsageError(
            "{} attends between two texts; spans need a {model} with a single stack",
            model,
            model=...,
        )


def tokens_of(inputs: Inputs) -> Tokens:
    """The tokens of a model with a single stack."""
    return next(iter(inputs.sides.values())).queries


def groups_of(tokens: Tokens) -> dict[str, tuple[int, ...]]:
    """Positions by the name of each span, and those in none."""
    groups = {span.name: span.positions for span in tokens.spans}
    return {**groups, ELSEWHERE: elsewhere(tokens.spans, len(tokens)).positions}


def watched(shown: Source, inputs: Inputs, rows: Groups, keys: Groups) -> SpanSums:
    """The sums of one text, from groups of rows to groups of keys."""
    length = len(tokens_of(inputs))
    observer = SpanObserver(rows, keys, length, shown.layout)
    observe(shown, [inputs], observer)
    return observer.result()


def replayed(capture: Capture, rows: Groups, keys: Groups) -> SpanSums:
    """The same of stored maps."""
    observer = SpanObserver(rows, keys, len(tokens_of(capture.inputs)), capture.layout)
    for block in blocks(capture):
        observer.observe(block)
    return observer.result()


@dataclass(frozen=True, eq=False, slots=True)
class Joint:
    """All heads and spans judged as one family, [N, K - 1].

    Attributes:
        shares: of the weight.
        excess: of the same less chance, against 0.
    """

    shares: Ratios
    excess: Ratios

    def of(self, at: tuple[int, int]) -> tuple[float | None, float | None, bool | None]:
        """Both ends of a share's interval and whether it differs from chance; None: not known."""
        if at[1] >= self.shares.value.shape[1]:
            return None, None, None
        low, high = float(self.shares.joint_low[at]), float(self.shares.joint_high[at])
        p = float(self.excess.adjusted[at])
        sure = None if np.isnan(p) else p <= 1 - LEVEL
        if np.isnan(low):
            return None, None, sure
        return max(low, 0.0), min(high, 1.0), sure


@dataclass
class Measuring:
    """Adds up texts, one at a time.

    Attributes:
        layout: the N heads.
        names: of the K spans, the tokens in none last.
        rows: ``last``, ``all`` or the name of a span.
    """

    layout: Layout
    names: tuple[str, ...]
    rows: str
    _texts: list[tuple[SpanSums, dict[str, tuple[int, ...]], Tokens]] = field(default_factory=list)

    def row_groups(self, tokens: Tokens) -> list[Sequence[int]]:
        """Those of each span, and in the end those that were asked for."""
        groups = groups_of(tokens)
        chosen = {LAST: (len(tokens) - 1,), EVERY: tuple(range(len(tokens)))}
        return [*by_name(groups, self.names), {**groups, **chosen}.get(self.rows, ())]

    def key_groups(self, tokens: Tokens) -> list[Sequence[int]]:
        """Those of each span."""
        return by_name(groups_of(tokens), self.names)

    def add(self, sums: SpanSums, tokens: Tokens) -> None:
        """Add a text: sums over :meth:`row_groups`, [N, K + 1, K]."""
        self._texts.append((sums, groups_of(tokens), tokens))

    def spans(self) -> tuple[NamedSpan, ...]:
        """What each span is."""
        named = []
        for name in self.names:
            held = [(groups[name], tokens) for _, groups, tokens in self._texts if groups.get(name)]
            shown = "" if not held else held[0][1].shown(name, held[0][0])
            mean = sum(len(places) for places, _ in held) / len(held) if held else 0.0
            named.append(NamedSpan(name, len(held), mean, shown[:_SHOWN]))
        return tuple(named)

    def heads(self) -> tuple[SpanWeights, ...]:
        """What every head gives to each span."""
        zero = np.zeros((len(self.layout), len(self.names) + 1, len(self.names)))
        values, chances, tokens = zero.copy(), zero.copy(), zero.copy()
        rows = np.zeros(zero.shape, np.int64)
        for sums, _, _ in self._texts:
            values += sums.values
            chances += sums.chances
            tokens += sums.per_token
            rows += sums.rows
        # texts of the same words with other spans are not independent
        own = [(sums.values[:, -1], sums.rows[:, -1]) for sums, _, _ in self._texts]
        asked = merge_copies(self._names, *(np.array(part) for part in zip(*own, strict=True)))
        half = ClusterSums.of(*asked).half()
        joint = self._joint()
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, chance, per_token = values / rows, chances / rows, tokens / rows
        weights = []
        for number, head in enumerate(self.layout):
            shares = tuple(
                _share(
                    mean[number, -1, k],
                    chance[number, -1, k],
                    per_token[number, -1, k],
                    int(rows[number, -1, k]),
                    half[number, k],
                    joint,
                    (number, k),
                )
                for k in range(len(self.names))
            )
            matrix = tuple(
                tuple(None if np.isnan(share) else float(share) for share in line)
                for line in mean[number, :-1]
            )
            weights.append(SpanWeights(head, shares, matrix))
        return tuple(weights)

    @property
    def _names(self) -> list[str]:
        """What tells texts apart."""
        return [str(tokens.identity) for _, _, tokens in self._texts]

    def _joint(self) -> Joint | None:
        """What holds for all heads and spans at once; None for a single text."""
        if len(self._texts) < 2:
            return None
        # the tokens in no span are what the others leave
        values, chances, rows = (
            np.array([getattr(sums, name)[:, -1, :-1] for sums, _, _ in self._texts])
            for name in ("values", "chances", "rows")
        )
        shares, excess = (
            ratios(a, rows, self._names, size=values, few=True) for a in (values, values - chances)
        )
        return Joint(shares, excess)


def _share(
    mean: float,
    chance: float,
    per_token: float,
    rows: int,
    half: float,
    joint: Joint | None,
    at: tuple[int, int],
) -> SpanShare:
    if not rows:
        return SpanShare(None, None, None, None, 0)
    mean, chance = float(mean), float(chance)
    sure = not np.isnan(half)
    return SpanShare(
        mean,
        chance,
        mean / chance if chance > 0 else None,
        float(per_token),
        rows,
        max(mean - float(half), 0.0) if sure else None,
        min(mean + float(half), 1.0) if sure else None,
        *(joint.of(at) if joint is not None else ()),
    )
