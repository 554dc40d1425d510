"""The sentences of an explanation, each with how it was measured; every form shows these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attnviz.core.heads import Head
from attnviz.drawing.labels import model_name, percent, visible
from attnviz.drawing.signed import signed
from attnviz.features.ablation.result import Effect
from attnviz.features.explain.result import ExplainedHead, Explanation

UP = -1
"""What speaks for the answer is blue, what speaks against it orange: the sign that is orange."""

SUPPLIERS = 3
"""Sources of a key that are told."""
SMALL = 0.05
"""Of a contrast: smaller ones are not."""

PROVES_NOT = (
    "A vote is direct: a head that only feeds other heads may have none, and what a head makes "
    "later layers write counts as theirs.",
    "Weights and shares say what the model computed here, with the scale of every normalization "
    "held; they do not say that it could not have done without.",
    "Ablation changes more than one path, and other heads may take over; two methods that agree "
    "are evidence, and one text is an anecdote: attnviz ablate and attnviz sources take many.",
    "A word's logit is compared with one other word; another comparison has other heads.",
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Something that was found.

    Attributes:
        said: a sentence.
        how: it was measured, as a sentence.
    """

    said: str
    how: str


def title(report: Explanation) -> str:
    """The question."""
    return f"{model_name(report.source)}: why {visible(report.answer)} {place(report)}?"


def place(report: Explanation) -> str:
    """Where the word is said: ``after ·blue (19)``."""
    return f"{'at' if report.masked else 'after'} {token(report, report.position)}"


def token(report: Explanation, position: int) -> str:
    """A token and where it stands."""
    return f"{visible(report.tokens[position])} ({position})"


def prediction(report: Explanation) -> Sentence:
    """What the model says, and what comes next."""
    answer, against = report.word(report.answer), report.word(report.against)
    far = f"{abs(report.difference):.2f} logits {'ahead' if report.difference >= 0 else 'behind'}"
    said = (
        f"{place(report)[0].upper()}{place(report)[1:]} the model gives {visible(answer.token)} "
        f"{percent(answer.probability)} (rank {answer.rank:,}), {far} of "
        f"{visible(against.token)} with {percent(against.probability)} (rank {against.rank:,})."
    )
    return Sentence(said, "Softmax over the whole vocabulary, as attnviz logits gives it.")


def split(report: Explanation) -> Sentence:
    """What parts of the model add to the difference."""
    if report.sum is None:
        return Sentence(
            "This model's logits are no sum over its heads, so that heads have no votes.",
            f"It was tried on the model: {report.reason}. Heads are those whose ablation "
            "changes the difference most, of all heads.",
        )
    kinds = {"head": "heads", "mlp": "MLPs", "embedding": "embeddings", "bias": "biases"}
    parts = ", ".join(f"{name} {signed(report.total(kind), 3)}" for kind, name in kinds.items())
    by = sorted(range(len(report.by_token)), key=lambda n: -abs(report.by_token[n]))[:2]
    through = " and ".join(f"{token(report, n)} {signed(report.by_token[n], 2)}" for n in by)
    return Sentence(
        f"The difference of {signed(report.difference, 3)} is made of {parts}; of what heads add, "
        f"most comes through {through}.",
        f"Direct logit attribution (attnviz logits): the parts add up to {report.sum:.4f}, the "
        f"model says {report.difference:.4f}. By token: weight × value × W_O, all heads.",
    )


def head(report: Explanation, one: ExplainedHead) -> Sentence:
    """What a head does for the word."""
    name, weight = report.layout.name(one.head), percent(one.weights[one.key])
    if one.value is None:
        return Sentence(
            f"Head {name} has {weight} of its weight on {token(report, one.key)}.",
            f"Its attention weight from position {report.position}, the largest of the row.",
        )
    rank = 1 + sum(abs(v) > abs(one.value) for v in report.votes().values())
    raises = ", ".join(map(visible, one.raises[:3]))
    return Sentence(
        f"Head {name} adds {signed(one.value, 2)}, {signed(one.through or 0.0, 2)} of it through "
        f"{token(report, one.key)}, which has {weight} of its weight; by itself it raises {raises} "
        "most.",
        f"Direct logit attribution; number {rank} by size of {len(report.votes())} heads.",
    )


def key(report: Explanation, one: ExplainedHead) -> Sentence | None:
    """Where a head's key comes from; None for a head that was asked nothing."""
    name = report.layout.name(one.head)
    if one.found is None:
        return Sentence(f"Where the key of {name} comes from cannot be told.", f"{one.reason}.")
    found = one.found
    top = ", ".join(f"{name} {share}" for name, share in supplied(report, one))
    reads = ""
    if found.lead is not None and found.reads is not None:
        reads = (
            f"; {report.layout.name(found.lead)} itself reads there {visible(found.reads.token)} "
            f"({found.reads.position}), {percent(found.reads.weight)} of its weight"
        )
    return Sentence(
        f"That {name} finds {token(report, one.key)} comes from {top or 'many small sources'}"
        f"{reads}.",
        f"Sources of the key (attnviz sources): shares of {found.contrast:.3g}, its score before "
        "softmax less the mean of all other keys; parts against it are why shares may pass 100 %.",
    )


def without(report: Explanation, effect: Effect) -> Sentence:
    """What happens without some heads."""
    names = [report.layout.name(one) for one in effect.heads]
    which = f"head {names[0]}" if len(names) == 1 else f"heads {', '.join(names)} together"
    found = " and ".join(
        f"{signed(report.difference + one.change, 3)} ({one.method})" for one in effect.by
    )
    flips = all((report.difference + one.change) * report.difference < 0 for one in effect.by)
    wins = report.against if report.difference > 0 else report.answer
    end = f": {visible(wins)} is ahead" if flips else ""
    return Sentence(
        f"Without {which} the difference is {found}, not {signed(report.difference, 3)}{end}.",
        f"Ablation (attnviz ablate) on this text alone, so without intervals: {report.method}.",
    )


def feeders(report: Explanation) -> tuple[Head, ...]:
    """Earlier heads that keys of the told heads come from."""
    leads = (one.found.lead for one in report.heads if one.found is not None)
    return tuple(dict.fromkeys(lead for lead in leads if lead is not None))


def sentences(report: Explanation) -> Iterator[Sentence]:
    """All of them, in the order in which they are told."""
    yield prediction(report)
    yield split(report)
    for one in report.heads:
        yield head(report, one)
        told = key(report, one)
        if told is not None:
            yield told
    for effect in report.effects:
        yield without(report, effect)


def supplied(report: Explanation, one: ExplainedHead) -> tuple[tuple[str, str], ...]:
    """The sources that add most to a head's key, and their shares of the contrast."""
    if one.found is None:
        return ()
    found = one.found
    return tuple(
        (
            origin_name(side.origin.head, side.origin.name(report.layout)),
            f"{100 * found.share(side):.0f} %" if found.contrast > 0 else signed(side.value),
        )
        for side in found.origins[:SUPPLIERS]
        if abs(found.share(side)) >= SMALL
    )


def origin_name(head: Head | None, name: str) -> str:
    """Of a source: heads say that they are heads."""
    return name if head is None else f"head {name}"


def closing(report: Explanation) -> str:
    """The model and how it ran, in one line."""
    info = report.source
    return (
        f"{model_name(info)} · {info.backend} backend · {len(report.tokens)} tokens · "
        f"{info.device} {info.dtype}"
    )
