"""The five stops of the guided tour: what is asked, the command that answers, and why to care."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import RenderableType

from attnviz import files
from attnviz.captures.inputs import capture
from attnviz.core.capture import Capture
from attnviz.corpus.texts import samples
from attnviz.drawing import terminal
from attnviz.drawing.grid import heads_grid, signed_grid
from attnviz.drawing.terminal import Line
from attnviz.errors import OutputError, system_errors
from attnviz.features.explain import description
from attnviz.features.explain.description import heads_explained, token_votes
from attnviz.features.explain.function import explain
from attnviz.features.explain.result import Explain
from attnviz.features.heads.function import heads
from attnviz.features.heads.result import Heads
from attnviz.features.heatmap.function import heatmap
from attnviz.features.logits.description import UP

MODEL = "demo-gpt2"
SENTENCE = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
WORDS = "the cat river moon stone bread the cat river moon stone"
"""Words that demo-gpt2 has whole, repeated, so that there is one word to go on with."""
PREVIOUS, INDUCTION = "1.4", "3.3"


class Measured:
    """What the stops show, each measured once, when the first stop that needs it is reached."""

    @cached_property
    def roles(self) -> Heads:
        """What each head does with the sentence."""
        return heads(SENTENCE, model=MODEL)

    @cached_property
    def repeated(self) -> Capture:
        """The weights on the repeated words."""
        return capture(WORDS, model=MODEL)

    @cached_property
    def reason(self) -> Explain:
        """Why the model goes on with the word that it says."""
        return explain(WORDS, model=MODEL)

    def map(self, name: str) -> Iterator[RenderableType]:
        """Yield the map of a head on the repeated words."""
        picture = heatmap(self.repeated, name)
        for head, weights, sides in picture.maps:
            yield terminal.heatmap(weights, sides, title=picture.title(head))


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour."""

    asks: str  # the question
    command: str  # the name of the one that shows the same and more, on ``text``
    text: str  # what the model reads
    show: Callable[[Measured], Iterator[RenderableType]]  # draws the answer
    why: str  # what to look at, and what it is good for
    head: str = ""  # the one that is looked at, where it is one


def _roles(measured: Measured) -> Iterator[RenderableType]:
    yield heads_grid(measured.roles)


def _reason(measured: Measured) -> Iterator[RenderableType]:
    reason = measured.reason
    votes = reason.votes()
    yield Line(description.said(reason))
    yield Line(description.account(reason))
    yield ""
    yield signed_grid(reason.layout, votes, max(map(abs, votes.values())), UP)
    yield token_votes(reason)


def _needs(measured: Measured) -> Iterator[RenderableType]:
    yield heads_explained(measured.reason)
    yield Line(description.measured(measured.reason), "dim")


STOPS = (
    Stop(
        "What does each head do?",
        "heads",
        SENTENCE,
        _roles,
        "A row for each layer, a cell for each head, named after what it does with this sentence. "
        "Nobody gave the heads these roles; the only loss was that of the next token.",
    ),
    Stop(
        "What does one of them look at?",
        "heatmap",
        WORDS,
        lambda measured: measured.map(PREVIOUS),
        "Every word looks at the one before it: a line just under the diagonal. Later heads need "
        "this to know what came before each word.",
        PREVIOUS,
    ),
    Stop(
        "How does it go on with what it saw once?",
        "heatmap",
        WORDS,
        lambda measured: measured.map(INDUCTION),
        "The second time round cat, river, moon and stone look at the word that followed them the "
        "first time: an induction head. Where nothing repeats, most of its weight is on the first "
        "position, its sink, for softmax has to spend it all somewhere.",
        INDUCTION,
    ),
    Stop(
        "Why did it say that?",
        "explain",
        WORDS,
        _reason,
        "Where the lead of the next word over the second most probable one comes from: most is "
        "the last MLP's, which reads what heads wrote. Each head's vote is what it adds itself: "
        "blue for it, orange against it. Most comes through the word that followed last time.",
    ),
    Stop(
        "Does a head matter?",
        "explain",
        WORDS,
        _needs,
        "A vote is not a need. Of three heads with votes as large, one costs nearly all of the "
        "lead when ablated and the others no more than a third; and the heads that look at the "
        "token before, whose own votes are next to nothing, are needed most: one wrote the keys "
        "that the others look for. attnviz ablate asks the same over many texts.",
    ),
)


_NOT = {".pyc", ".part"}


def copy(to: Path) -> Path:
    """Copy them all into a folder."""
    origin = samples()
    names = [
        path.relative_to(origin)
        for path in sorted(origin.rglob("*"))
        if path.is_file() and path.suffix not in _NOT
    ]
    with system_errors(OutputError, f"cannot write to {to}"):
        existing = next((to / name for name in names if (to / name).exists()), None)
        if existing is not None:
            raise OutputError(f"{existing} is there already; name another folder")
        for name in names:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            files.write(to / name, (origin / name).read_bytes())
    return to
