"""The sentences that every form of an explanation shares."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.labels import model_name, percent, quoted, visible
from attnviz.drawing.signed import signed
from attnviz.features.ablation.result import Effect
from attnviz.features.explain.result import Explain, ExplainedHead

UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""

LIMITS = (
    "Votes are direct: what a head adds to the logit itself, with the last normalization's scale "
    "as it is. What it makes later layers do counts as theirs.",
    "A weight says where a head looks, not that what stands there matters.",
    "Where keys come from is algebra on this text, with the scales of all normalizations held; it "
    "says what a score is made of, not what the score would be without it.",
    "An ablation says what happens without a head as the others are; others can make up for one "
    "that is missing, so a small effect does not show that it does nothing.",
    "This is one text. Whether heads do the same elsewhere, attnviz profile, patch and ablate "
    "measure over many.",
)
"""What none of it proves."""


def title(found: Explain) -> str:
    """The question."""
    return f"Why does {model_name(found.source)} say {quoted(found.answer)}?"


def said(found: Explain) -> str:
    """The prediction and the runner-up."""
    one, other = found.prediction(found.answer), found.prediction(found.against)
    where = f"{'at' if found.masked else 'after'} {visible(found.tokens[found.position])}"
    return (
        f"{where} ({found.position}): {quoted(one.token)} {percent(one.probability)} (rank "
        f"{one.rank:,}), {quoted(other.token)} {percent(other.probability)} (rank {other.rank:,}); "
        f"the first leads by {found.lead:.2f} logits"
    )


def token(found: Explain, position: int) -> str:
    """A token with its position."""
    return f"{visible(found.tokens[position])} ({position})"


def summary(found: Explain) -> Iterator[str]:
    """What was found, in full sentences."""
    names = [found.layout.name(one.head) for one in found.heads]
    if found.chosen_by == "votes":
        top = found.through_tokens()[0]
        yield (
            f"The heads that vote most for it are {_listed(names)}, with "
            f"{_listed([signed(one.vote or 0.0) for one in found.heads])} logits of "
            f"{found.logit:.2f}; all heads together add most through {token(found, top[0])}, "
            f"{signed(top[1])}."
        )
    else:
        yield (
            f"Logits of {model_name(found.source)} are no sum over heads: {found.reason}. So its "
            f"heads were ablated, each alone: the lead falls most without {_listed(names)}."
        )
    places: dict[int, list[str]] = {}
    for one, name in zip(found.heads, names, strict=True):
        places.setdefault(one.position, []).append(f"{name} ({percent(one.weights[one.position])})")
    looks = "; ".join(f"{_listed(some)} at {token(found, n)}" for n, some in places.items())
    yield f"They look most at: {looks}."
    if found.feeder is not None:
        feeder = found.layout.name(found.feeder.heads[0])
        shares = [
            f"{100 * share:.0f} % for {name}"
            for one, name in zip(found.heads, names, strict=True)
            if (share := share_of(one, found.feeder)) is not None
        ]
        keys = "that key" if len(places) == 1 else "these keys"
        yield (
            f"Of what sets {keys} apart from the other keys, head {feeder} wrote {_listed(shares)}."
        )
    yield " ".join(_without(found, names))


def share_of(one: ExplainedHead, feeder: Effect) -> float | None:
    """How much of a head's key the feeder wrote."""
    return next((key.share for key in one.keys if key.origin.head == feeder.heads[0]), None)


def _without(found: Explain, names: list[str]) -> Iterator[str]:
    lead = f"the lead of {found.lead:.2f} changes by {changes(found.together)}"
    if found.feeder is None:
        yield f"Without {_listed(names)} {lead}."
    else:
        feeder = found.layout.name(found.feeder.heads[0])
        yield f"Without {_listed(names)} {lead}; without {feeder} alone by {changes(found.feeder)}."


def changes(effect: Effect) -> str:
    """What happens to the lead, by each method."""
    return ", ".join(f"{signed(one.change)} ({one.method})" for one in effect.by)


def measured(found: Explain) -> str:
    """How the last part was measured."""
    return (
        f"Change of the lead of {quoted(found.answer)} over {quoted(found.against)} in logits, "
        f"with the head's mean output or its output on another text in its place, from "
        f"{found.reference}."
    )


def closing(found: Explain) -> str:
    """The model and how it ran, in one line."""
    info = found.source
    return f"{model_name(info)} · {info.backend} backend · {info.device} {info.dtype}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
