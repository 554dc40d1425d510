"""What a split logit says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure
from attnviz.drawing.labels import quoted, visible
from attnviz.drawing.signed import signed
from attnviz.features.logits.result import Logits
from attnviz.features.logits.words import UP

_SEEN = 3
"""Tokens that a head is told to vote through."""
_TAIL = 12
"""Tokens of a text that say which one it was."""


def finding(found: Logits, name: str) -> Finding:
    """What every head adds to the logit.

    Args:
        found: the result.
        name: of its file.
    """
    of = quoted(found.token) + (f" minus that of {quoted(found.against)}" if found.against else "")
    values = {found.layout.name(head): sum(row) for head, row in (found.by_token or {}).items()}
    ranked = sorted(values, key=lambda head: -abs(values[head]))
    said = {
        head: [f"{signed(values[head])} logits for {of}, number {rank} of {len(values)} by size"]
        for rank, head in enumerate(ranked, start=1)
    }
    for vote in found.votes:
        seen = [
            f"{quoted(one.token)} {signed(one.value)} (weight {one.weight:.2f})"
            for one in vote.seen[:_SEEN]
        ]
        raises, lowers = (" ".join(map(quoted, words)) for words in (vote.raises, vote.lowers))
        said[found.layout.name(vote.head)] += [
            f"through {', '.join(seen)}",
            f"raises {raises}; lowers {lowers}",
        ]
    end = found.position + 1
    text = visible("".join(found.tokens[max(0, end - _TAIL) : end]).strip())
    how = (
        f"What it adds by itself to the logit of {of} ({found.logit:.3g} in all) at the last token "
        f"of “{'… ' if end > _TAIL else ''}{text}”, token {found.position}; what it makes later "
        "layers write counts as theirs."
    )
    if not values:
        how = f"No logit is split by head: {found.reason}."
    plain = {head: (value, None, None) for head, value in values.items()}
    measure = Measure("vote", f"what it adds to the logit of {of}", "logits", UP, plain)
    lines = {head: tuple(some) for head, some in said.items()}
    return Finding("logits", name, "What it writes", how, lines, (measure,) if values else ())
