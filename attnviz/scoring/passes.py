"""One pass of a text, for what watches it: whole maps, scores, or how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import ForwardRequest, Observer, Rows, Source
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.totals import Sums


def observe(
    source: Source, batch: Sequence[Inputs], *observers: Observer, terms: bool = False
) -> None:
    """Run a batch for what observers see of it: the pass ends when the last layer has attended."""
    source.forward(batch, observers, ForwardRequest(hidden=False, terms=terms))


class ProgressObserver:
    """Watches how far a batch has come."""

    checks_numbers = True  # no look is taken at them

    def __init__(
        self, batch: Sequence[Inputs], layout: Layout, tell: Callable[[float], None]
    ) -> None:
        self._tell, self._done = tell, 0
        self._all = sum(
            max(len(inputs.sides[site.kind].queries) for inputs in batch) for site in layout.sites
        )

    def observe(self, rows: Rows) -> None:
        """Count the rows of a block."""
        self._done += rows.weights.shape[2]
        self._tell(self._done / self._all)


def following(
    inputs: Inputs, layout: Layout, progress: Progress | None
) -> tuple[ProgressObserver, ...]:
    """What counts the tokens of one text as they go through all layers, if anybody asks."""
    if progress is None:
        return ()
    all_ = inputs.length
    return (
        ProgressObserver(
            [inputs], layout, lambda share: progress("tokens", round(share * all_), all_)
        ),
    )


def score_batch(
    source: Source, batch: Sequence[Inputs], names: Sequence[str] | None = None
) -> ScoreObserver:
    """Run texts and score every head; the observer has the result, and the sums over them."""
    observer = ScoreObserver(batch, source.layout, names)
    observe(source, batch, observer)
    return observer


def score_texts(source: Source, batches: Iterable[Sequence[Inputs]]) -> tuple[HeadScores, ...]:
    """What every head does on texts that run batch by batch."""
    total = Sums.zero(len(source.layout))
    for batch in batches:
        total = total + score_batch(source, batch).total()
    return total.of(source.layout)
