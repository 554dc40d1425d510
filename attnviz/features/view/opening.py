"""What the page says of the head that it opens on, and how sure that is."""

from __future__ import annotations

from typing import Any

from attnviz.core.capture import Capture
from attnviz.core.scores import HeadScores, Role
from attnviz.drawing.labels import counted
from attnviz.features.view.quantize import rounded
from attnviz.scoring.scores import SCORES
from attnviz.scoring.strongest import strongest_pair

_PLAIN = {
    "previous": "looks at the previous token",
    "next": "looks at the next token",
    "self": "looks at the token itself",
    "first": "puts its weight on the first token, an attention sink",
    "separator": "puts its weight on separators, as attention sinks",
    "punctuation": "looks at punctuation",
    "local": "looks at nearby tokens",
    "duplicate": "looks at earlier copies of the token",
    "induction": "looks at what followed the same token before",
    "monotonic": "moves along the keys in order",
    "registers": "puts its weight on registers, as attention sinks",
    "diffuse": "spreads its weight over all tokens",
}
"""What a head of a role does, in a plain sentence."""


def see(capture: Capture, scored: HeadScores, among: str) -> dict[str, Any] | None:
    """What the head that the page opens on shows most clearly, and the pair of tokens to see it at.

    The role is the one that puts the head first; its pair is None where the role is about no
    single keys, or comes from other texts. With it comes its doubt: ``hedge`` stands before what
    is said, ``doubt`` behind it, with the figure.
    """
    roles = [role for role in scored.roles if not role.rests] or list(scored.roles)
    if not roles:
        return None
    role = max(roles, key=lambda other_role: other_role.evidence.lift or 0.0)
    pair = strongest_pair(capture, scored.head, role.score) if role.score in SCORES else None
    verb = "sink:" if role.rests else "does"
    said = "is diffuse" if role.name == "diffuse" else f"{verb} {role.title}"
    weight = None if pair is None else rounded(float(capture[scored.head][pair]))
    hedge, doubt = _doubt(role, among, random=capture.source.untrained)
    return {
        "said": _PLAIN.get(role.name, said),
        "pair": pair,
        "weight": weight,
        "hedge": hedge,
        "doubt": doubt,
    }


def _doubt(role: Role, among: str, *, random: bool) -> tuple[str, str]:
    """How sure a role is of the head chosen for it: before what is said of it, and after."""
    score = role.evidence
    chosen = f"the clearest of {among}"
    if random:
        return "by chance ", f"the weights are random, nothing was learned; it is {chosen}"
    rows = counted(score.rows, "row")
    if role.few_rows:
        return "perhaps ", f"on {rows} of this text, too few to tell; {chosen}"
    mean = "" if score.mean is None else f"{score.mean:.2f} on average over {rows}"
    if score.mean is not None and score.chance is not None:
        mean += f", by chance {score.chance:.2f}"
    return "", "; ".join(part for part in (mean, f"{chosen}, in this text alone") if part)
