"""The sentences that every form of an explanation shares."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.labels import listing, model_name, percent, quoted, visible
from attnviz.drawing.signed import signed
from attnviz.features.ablation.result import Effect
from attnviz.features.explain.result import Explain, ExplainedHead

UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""

LIMITS = (
    "Votes are direct: what a head adds to the lead itself, with the last normalization's scale "
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


def title(result: Explain) -> str:
    """The question that its heads answer: why the word is said, or what there is for it."""
    model, answer = model_name(result.source), quoted(result.answer)
    if result.lead <= 0:
        return f"What in {model} speaks for {answer}, though {quoted(result.against)} leads?"
    if result.prediction(result.answer).rank > 1:
        return f"Why does {model} rank {answer} before {quoted(result.against)}?"
    return f"Why does {model} say {answer}?"


def headline(result: Explain) -> str:
    """Which heads speak for it, and what is left of its lead without them; else the question."""
    names = [result.layout.name(head.head) for head in result.heads]
    if not names or (result.chosen_by == "votes" and (result.heads[0].vote or 0.0) <= 0):
        return title(result)
    first = result.prediction(result.answer)
    of = f"{quoted(result.answer)} ({percent(first.probability)})"
    many = len(names) > 1
    heads = f"{'Heads' if many else 'Head'} {listing(names)}"
    lead = f"lead of {result.lead:.2f} logits changes by {changes(result.together)}"
    if result.chosen_by != "votes":
        return f"Without {heads[0].lower()}{heads[1:]} the {lead}: they count most for {of}"
    speak, them = ("speak", "them") if many else ("speaks", "it")
    return f"{heads} {speak} most for {of}; without {them} its {lead}"


def said(result: Explain) -> str:
    """The prediction and the runner-up."""
    first, other = result.prediction(result.answer), result.prediction(result.against)
    where = f"{'at' if result.masked else 'after'} {visible(result.tokens[result.position])}"
    return (
        f"{where} ({result.position}): {quoted(first.token)} {percent(first.probability)} (rank "
        f"{first.rank:,}), {quoted(other.token)} {percent(other.probability)} "
        f"(rank {other.rank:,}); the first {_ahead(result.lead)}"
    )


def _ahead(lead: float) -> str:
    return f"leads by {lead:.2f} logits" if lead > 0 else f"lies {-lead:.2f} logits behind"


def token(result: Explain, position: int) -> str:
    """A token with its position."""
    return f"{visible(result.tokens[position])} ({position})"


def summary(result: Explain) -> Iterator[str]:
    """What was found, in full sentences."""
    names = [result.layout.name(head.head) for head in result.heads]
    if result.chosen_by == "votes":
        yield from _votes(result, names)
    else:
        yield (
            f"Logits of {model_name(result.source)} are no sum over heads: {result.reason}. So its "
            f"heads were ablated, each alone: the lead falls most without {listing(names)}."
        )
    places: dict[int, list[str]] = {}
    for head, name in zip(result.heads, names, strict=True):
        places.setdefault(head.position, []).append(
            f"{name} ({percent(head.weights[head.position])})"
        )
    looks = "; ".join(f"{listing(some)} at {token(result, n)}" for n, some in places.items())
    yield f"They look most at: {looks}."
    if result.feeder is not None:
        feeder = result.layout.name(result.feeder.heads[0])
        shares = [
            f"{100 * share:.0f} % for {name}"
            for head, name in zip(result.heads, names, strict=True)
            if (share := share_of(head, result.feeder)) is not None
        ]
        keys = "that key" if len(places) == 1 else "these keys"
        yield (
            f"Of what sets {keys} apart from the other keys, head {feeder} wrote {listing(shares)}."
        )
    yield " ".join(_without(result, names))


def _votes(result: Explain, names: list[str]) -> Iterator[str]:
    """Which heads speak for the answer and which most against it, and through which token."""
    pair = f"{quoted(result.answer)} over {quoted(result.against)}"
    votes = [head.vote or 0.0 for head in result.heads]
    if votes[0] > 0:
        speak = "heads that speak most for" if len(names) > 1 else "head that speaks most for"
        said = f"The {speak} {pair} {'are' if len(names) > 1 else 'is'} {listing(names)}, with "
        said += f"{listing(list(map(signed, votes)))} logits"
    else:
        said = f"No head speaks for {pair}; least against it does {names[0]}, {signed(votes[0])}"
    if result.negative is not None:
        name = result.layout.name(result.negative.head)
        said += f"; {name} speaks most against it, {signed(result.negative.vote or 0.0)}"
    yield f"{said}."
    sums = result.through_tokens()
    place, value = max(sums, key=lambda item: item[1])
    if value > 0:
        yield f"All heads together add most through {token(result, place)}, {signed(value)}."
    else:
        yield "Through no token do all heads together add to it."


def share_of(head: ExplainedHead, feeder: Effect) -> float | None:
    """How much of a head's key the feeder wrote; None where sources nearly cancel."""
    return next((key.share for key in head.keys if key.origin.head == feeder.heads[0]), None)


def _without(result: Explain, names: list[str]) -> Iterator[str]:
    lead = f"the lead of {result.lead:.2f} changes by {changes(result.together)}"
    if result.feeder is None:
        yield f"Without {listing(names)} {lead}."
    else:
        feeder = result.layout.name(result.feeder.heads[0])
        alone = changes(result.feeder)
        yield f"Without {listing(names)} {lead}; without {feeder} alone by {alone}."


def changes(effect: Effect) -> str:
    """What happens to the lead, by each method."""
    return ", ".join(f"{signed(change.change)} ({change.method})" for change in effect.by)


def measured(result: Explain) -> str:
    """How the last part was measured."""
    return (
        f"Change of the lead of {quoted(result.answer)} over {quoted(result.against)} in logits, "
        f"with the head's mean output or its output on another text in its place, from "
        f"{result.reference}."
    )
