"""The stops of the guided tour: a sentence, the role to look for in it, and why."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.inputs import capture as look_at
from attnviz.core.scores import HeadScores, Role
from attnviz.errors import ModelError
from attnviz.features.ablation.function import ablate
from attnviz.features.ablation.result import Ablation
from attnviz.features.heads.function import heads
from attnviz.features.heatmap.function import heatmap
from attnviz.features.heatmap.result import Heatmap
from attnviz.features.patch.function import patch
from attnviz.features.patch.result import Patch


@dataclass(frozen=True, slots=True)
class Stop:
    """One sentence of the tour.

    Attributes:
        text: the sentence; it is also in sample_inputs/sentences.txt.
        model: which bundled model to run.
        role: the role to show, on the head with the strongest evidence for it.
        title: what the head is called.
        why: what to look at, and what it is good for.
    """

    text: str
    model: str
    role: str
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
        "The kettle sang and the candle burned while the kettle sang and the candle burned.",
        "demo-gpt2",
        "induction",
        "an induction head",
        "The second time round each word looks at the word that followed it the first time: a line "
        "parallel to the diagonal. That is how the model continues a pattern that it saw once. "
        "Where there is nothing to repeat, the head attends to the first position, its sink.",
    ),
    Stop(
        "When the nurse called the doctor, she asked him to bring her notes.",
        "demo-gpt2",
        "diffuse",
        "a diffuse head",
        "Every word looks at all words before it, nearly evenly: it takes the average of what is "
        "there, whatever the order. Not every head has a sharp job.",
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


def visit(stop: Stop) -> tuple[HeadScores, Role, Heatmap]:
    """Run a stop's sentence; the head that shows its role best, the evidence, and its map.

    Raises:
        ModelError: the bundled model has no such head, which the tests rule out.
    """
    capture = look_at(stop.text, model=stop.model)
    scored = heads(capture)
    shown = [
        (role, scores) for scores in scored.heads for role in scores.roles if role.name == stop.role
    ]
    if not shown:
        raise ModelError(f"no {stop.role} head in {stop.model}; install attnviz again")
    role, best = max(shown, key=lambda pair: pair[0].evidence.mean or 0.0)
    return best, role, heatmap(capture, scored.layout.name(best.head))


CIRCUIT = 7

WHY_CIRCUIT = (
    "These heads do it together: with all others as they are in a text whose words are swapped, "
    "the seven keep most of the answer, on texts that they were not found on, and random sets of "
    "seven keep next to nothing on average. The two that look at the token before feed the keys of "
    "those that find what followed it: found by intervention, and the same that attnviz circuits "
    "reads off the weights."
)


def circuit() -> Patch:
    """The heads of demo-gpt2 that go on with a repeated sequence: the last stop of the tour."""
    return patch(task="induction-swap", count=24, circuit=CIRCUIT, model="demo-gpt2")


NEEDED = "0.5, 1.4, 2.0, 2.4, 3.0, 3.1, 3.3, 3.5, 3.0+3.1+3.3+3.5"
"""The heads of demo-gpt2 that look at the token before, and those that do induction."""

WHY_NEEDED = (
    "A head that looks at something need not matter. Here random tokens are repeated, and what a "
    "head hands on is replaced: by its mean over other texts, or by what it hands on in another. "
    "Without one of the two that look at the token before (0.5, 1.4) most of the repetition is "
    "forgotten, and without 2.0, which finds what followed that token, some of it. 2.4 looks at "
    "the same place and is hardly missed. Nor is any one head of layer 3; all four together are."
)


def needed() -> Ablation:
    """Which of those heads repetition needs."""
    return ablate(probe=True, select=NEEDED, model="demo-gpt2")
