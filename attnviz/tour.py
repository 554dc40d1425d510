"""The stops of the guided tour: a sentence, the role to look for in it, and why."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz import api
from attnviz.notebook import Heatmap
from attnviz.records import HeadScores


@dataclass(frozen=True, slots=True)
class Stop:
    """One sentence of the tour.

    Attributes:
        text: the sentence; it is also in sample_inputs/sentences.txt.
        model: which bundled model to run.
        score: the score whose best head is shown.
        title: what the head is called.
        why: what to look at, and what it is good for.
    """

    text: str
    model: str
    score: str
    title: str
    why: str


STOPS = (
    Stop(
        "The keys to the cabinet are on the table.",
        "demo-gpt2",
        "previous",
        "a previous-token head",
        "Every word looks at the one before it: a bright line just under the diagonal. Later heads "
        "need this to know what came before each word.",
    ),
    Stop(
        "The author of the books that the critics praised lives by the sea.",
        "demo-gpt2",
        "first",
        "an attention sink",
        "Nearly every word looks at the first position: one bright column. It is a place to rest "
        "when a head has nothing to add, for softmax has to spend its whole weight somewhere.",
    ),
    Stop(
        "one two three four one two three four one two three four",
        "demo-gpt2",
        "induction",
        "an induction head",
        "From the second round on, each word looks at the word that followed it last time: a line "
        "parallel to the diagonal. That is how the model copies a pattern it saw once.",
    ),
    Stop(
        "The red fox saw the grey owl, and the red fox saw the grey owl again.",
        "demo-gpt2",
        "duplicate",
        "a duplicate-token head",
        "A repeated word looks back at its own earlier occurrence. Compare with induction: "
        "such a head looks one word further.",
    ),
    Stop(
        "The animal didn't cross the street because it was too tired.",
        "demo-bert",
        "next",
        "a next-token head",
        "A BERT reads in both directions, so a head can look ahead: the line is above the "
        "diagonal. The GPT-2 before could not do that.",
    ),
)


def visit(stop: Stop) -> tuple[HeadScores, Heatmap]:
    """Run a stop's sentence; the head with the highest score there, and its map."""
    capture = api.capture(stop.text, model=stop.model)
    report = api.heads(capture)
    best = max(report.heads, key=lambda head: head.scores[stop.score].mean or 0.0)
    return best, api.heatmap(capture, report.layout.name(best.head))
