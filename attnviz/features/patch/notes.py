"""What a reader of patching must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.features.patch.result import Patch, TaskScore
from attnviz.statistics.clusters import FEW, LEAST
from attnviz.statistics.order import too_few

CHANCE = 0.5
"""Of an answer that is held against one other token."""

MEANS_DIFFER = 0.1
"""A difference of two faithfulnesses that deserves a word."""

BOTH_WAYS = (
    "Denoising shows what is enough to restore the answer, noising what the answer needs: they "
    "differ where heads back each other up (Heimersheim & Nanda 2024, arXiv:2404.15255)."
)


def not_done(score: TaskScore, metric: str) -> str:
    """Why a model does not do a task, as the end of a sentence; empty where it does."""
    if score.wins is not None and score.wins <= CHANCE:
        return (
            f"the answer wins in {_percent(score.wins)} of the clean prompts, and a coin would in "
            "50 %"
        )
    if score.wins is None and score.top == 0:
        return "the answer is never its most probable token"
    if metric == "logit-diff" and score.low is not None and score.low <= 0:
        return "the interval of the clean prompts' mean logit difference holds 0"
    return ""


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
    elif said := too_few(result.clusters, result.family, "shares", "pairs"):
        yield said
    if result.metric == "kl":
        yield "KL to the clean run does not add up: shares of heads need not sum to a group's."
    if result.circuit is not None:
        if not result.circuit.enough:
            yield (
                f"No size up to {result.circuit.curve[-1].heads} came within the distance from all "
                "of the gap that was asked for, where heads were chosen: this is the largest."
            )
        yield (
            "Heads are in the circuit where single patches show them: those that back each other "
            "up can be missing, which completeness would show."
        )
        share, by_mean = result.circuit.faithful, result.circuit.faithful_mean
        if by_mean is not None and abs(share.share - by_mean.share) > MEANS_DIFFER:
            yield (
                "Corrupted runs and means disagree: what both prompts share stays with corrupted "
                "values and goes with means, and this circuit needs it."
                if by_mean.share < share.share
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
    if why := not_done(result.clean, result.metric):
        yield f"The model does not do this task: {why}."
    wins = result.corrupted.wins
    if wins is not None and wins > CHANCE:
        yield (
            f"In {_percent(wins)} of the corrupted prompts the answer wins too: there, patching "
            "moves how far it leads, and not whether it does. Other corrupted prompts tell more."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
