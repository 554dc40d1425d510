"""Heads row by row on the terminal: what they do, by rules, and which tokens meet."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from attnviz.drawing.labels import counted, said_alone, shorten, visible
from attnviz.drawing.renderable import table_of
from attnviz.drawing.terminal import Line
from attnviz.features.profile.parts import Behaviours, Distribution, HeadDistribution, RowShare
from attnviz.features.profile.result import Profile
from attnviz.features.profile.words import ONLY_POSITION, POSITIONS, relation, when

_PAIRS = 4
_TOKENS = 6


def row_parts(profile: Profile) -> Iterator[RenderableType]:
    """Of every head that was selected; nothing where none was."""
    distribution = profile.distribution
    if distribution is None:
        return
    for head in distribution.heads:
        yield from _head(profile.layout.name(head.head), head, distribution)


def _head(
    name: str, head: HeadDistribution, distribution: Distribution
) -> Iterator[RenderableType]:
    sampled = f"{distribution.sampled:,} of them looked at one by one"
    rows = f"{counted(distribution.rows, 'row')}, {sampled}"
    yield Line(f"{name}: what sets its strongest key apart, in {rows}", "bold")
    yield _rules(head.behaviours)
    if places := [relation(rule) for rule in head.behaviours.shares if rule in POSITIONS]:
        yield Line(f"{' and '.join(places)}: {ONLY_POSITION}", "")
    for calibration in head.calibrations:
        if calibration.holds.value is None:
            continue
        rest = ", ".join(
            f"{relation(group.name)} {_percent(group.share)}" for group in calibration.residue[:3]
        )
        yield Line(
            f"as its role {calibration.role} says in {_share(calibration.holds)} of the "
            f"{_percent(calibration.possible)} of rows where it could"
            + (f"; in the others {rest}" if rest else ""),
            "",
        )
    if head.pairs:
        pairs = ", ".join(
            f"{_token(pair.query)} → {_token(pair.key)} {pair.lift:.1f}×"
            for pair in head.pairs[:_PAIRS]
        )
        yield Line(f"tokens that meet more often than by chance: {pairs}", "")
    if head.specific:
        tokens = ", ".join(_token(token.text) for token in head.specific[:_TOKENS])
        yield Line(f"most weight for their frequency: {tokens}", "")
    top = head.deciles.get("norm", head.deciles.get("weight", ()))
    if top and top[-1].written is not None:
        yield Line(
            f"the tenth of rows with the largest α‖f(x)‖ has {_percent(top[-1].written)} of all "
            f"that it wrote, the lowest {_percent(top[0].written or 0.0)}",
            "",
        )
    yield Text("")


def _rules(behaviours: Behaviours) -> RenderableType:
    table = table_of("where", "strongest key", ">share", ">precision", ">chance")
    for leaf in behaviours.tree:
        for name, share in leaf.rules or ((None, None),):
            if name is None or share is None:
                cells = (when(leaf.path), "no rule", _percent(leaf.share), "", "")
            else:
                cells = (
                    when(leaf.path),
                    relation(name),
                    _percent(leaf.share * _of(share, behaviours, leaf.share)),
                    _share(share),
                    "" if share.chance is None else _percent(share.chance),
                )
            table.add_row(*(Text(cell) for cell in cells))
    left = _share(behaviours.unexplained)
    table.add_row(Text("by none of these"), Text(""), Text(left), Text(""), Text(""))
    return table


def _of(share: RowShare, behaviours: Behaviours, leaf: float) -> float:
    """The share of a leaf's rows in which a rule is the one that holds."""
    rows = leaf * behaviours.measured_on
    return (share.value or 0.0) * share.rows / rows if rows else 0.0


def _share(share: RowShare) -> str:
    if share.value is None:
        return "–"
    if share.low is None or share.high is None:
        return _percent(share.value)
    return f"{_percent(share.value)} ({100 * share.low:.0f}–{100 * share.high:.0f})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _token(text: str) -> str:
    return said_alone(shorten(visible(text), 14))
