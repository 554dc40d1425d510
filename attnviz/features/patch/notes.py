"""What a reader of patching must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.features.patch.result import Patch
from attnviz.statistics.clusters import FEW, LEAST

CHANCE = 0.5
"""Of an answer that is held against one other token."""

MEANS_DIFFER = 0.1
"""A difference of two faithfulnesses that deserves a word."""

BOTH_WAYS = (
    "Denoising shows what is enough to restore the answer, noising what the answer needs: they "
    "differ where heads back each other up (Heimersheim & Nanda 2024, arXiv:2404.15255)."
)


def notes(result: Patch) -> tuple[str, ...]:
    """What to say of a result."""
    return tuple(_notes(result))


def _notes(result: Patch) -> Iterator[str]:
    yield from _task(result)
    if result.clusters < result.pairs:
        yield (
            f"{result.pairs:,} pairs count as {result.clusters:,}: those of one group and those "
            "with the same clean prompt are not independent."
        )
    if result.clusters < LEAST:
        yield (
            f"From {result.clusters} independent pair{'s' * (result.clusters != 1)} there is no "
            f"interval, and nothing is known about others; give {FEW} or more."
        )
    elif result.clusters < FEW:
        yield f"Intervals from {result.clusters} pairs cover less than 95 %; give {FEW} or more."
    if result.metric == "kl":
        yield "KL to the clean run does not add up: shares of heads need not sum to a group's."
    if result.circuit is not None:
        yield (
            "Heads are in the circuit where single patches show them: those that back each other "
            "up can be missing, which completeness would show."
        )
        if abs(result.circuit.faithful.share - result.circuit.faithful_mean.share) > MEANS_DIFFER:
            yield (
                "Corrupted runs and means disagree: what both prompts share stays with corrupted "
                "values and goes with means, and this circuit needs it."
                if result.circuit.faithful_mean.share < result.circuit.faithful.share
                else "Corrupted runs and means disagree: with corrupted values the heads outside "
                "pull towards the other answer, with means they do not."
            )
    if result.estimated:
        yield (
            f"The {len(result.edges)} paths were chosen by estimates on the pairs that they are "
            "measured on."
        )
    if result.mlps == "frozen":
        yield (
            "MLPs between the ends of a path are held: what they make of a head's output on the "
            "way is not in its share."
        )
    if len(result.directions) == 2:
        yield BOTH_WAYS


def _task(result: Patch) -> Iterator[str]:
    """Whether the model does the task at all."""
    clean = result.clean
    wins = clean.wins
    if wins is not None and wins <= CHANCE:
        yield (
            f"The model does not do this task: the answer wins in {_percent(wins)} of the clean "
            "prompts, and a coin would in 50 %."
        )
    elif (
        wins is not None
        and clean.low is not None
        and clean.low <= 0
        and result.metric == ("logit-diff")
    ):
        yield (
            "The model hardly does this task: the interval of the clean prompts' mean logit "
            "difference holds 0."
        )
    elif wins is None and clean.top == 0:
        yield "The model does not do this task: the answer is never its most probable token."
    wins = result.corrupted.wins
    if wins is not None and wins > CHANCE:
        yield (
            f"In {_percent(wins)} of the corrupted prompts the answer wins too: there, patching "
            "moves how far it leads, and not whether it does. Other corrupted prompts tell more."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
