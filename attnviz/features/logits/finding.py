"""What a split logit says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import RAISES, Figures, Finding, Measure, bare
from attnviz.drawing.labels import quoted, visible
from attnviz.drawing.signed import signed
from attnviz.features.logits.result import Logits
from attnviz.features.logits.words import UP

_SEEN = 3
"""Tokens that a head is told to vote through."""
_TAIL = 12
"""Tokens of a text that say which one it was."""


def finding(result: Logits, name: str) -> Finding:
    """What every head adds to the logit."""
    of = quoted(result.token) + (
        f" minus that of {quoted(result.against)}" if result.against else ""
    )
    values = {result.layout.name(head): sum(row) for head, row in (result.by_token or {}).items()}
    ranked = sorted(values, key=lambda head: -abs(values[head]))
    said = {
        head: [f"{signed(values[head])} logits for {of}, number {rank} of {len(values)} by size"]
        for rank, head in enumerate(ranked, start=1)
    }
    for vote in result.votes:
        seen = [
            f"{quoted(source.token)} {signed(source.value)} (weight {source.weight:.2f})"
            for source in vote.seen[:_SEEN]
        ]
        raises, lowers = (" ".join(map(quoted, words)) for words in (vote.raises, vote.lowers))
        said[result.layout.name(vote.head)] += [
            f"through {', '.join(seen)}",
            f"raises {raises}; lowers {lowers}",
        ]
    end = result.position + 1
    text = visible("".join(result.tokens[max(0, end - _TAIL) : end]).strip())
    how = (
        f"What it adds by itself to the logit of {of} ({result.logit:.3g} in all) at the last "
        f"token of “{'… ' if end > _TAIL else ''}{text}”, token {result.position}; what it makes "
        "later layers write counts as theirs."
    )
    if not values:
        how = f"No logit is split by head: {result.reason}."
    title = f"what it adds to the logit of {of}"
    measure = Measure("vote", title, "logits", UP, bare(values), RAISES)
    return Finding.of("logits", name, "What it writes", how, said, [measure])


def figures(result: Logits) -> Figures:
    """Logits by head; none where a model's logits are no sum."""
    return Figures(
        {result.layout.name(head): {"logits": value} for head, value in result.heads().items()},
        settings={"token": visible(result.token), "against": visible(result.against)},
    )
