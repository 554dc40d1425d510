"""How far storing a model in few bits moves what its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.corpus.sentences import sentences


@dataclass(frozen=True, slots=True)
class RoundingErrors:
    """The largest changes over some texts: what was seen, and no bound on other texts.

    Attributes:
        weight: of an attention weight.
        score: of a score, which softmax is taken of.
        share: of a probability of the LM head; 0 without one.
        texts: how many.
    """

    weight: float
    score: float
    share: float
    texts: int


class _Blocks:
    """Keeps what goes by: weights, and scores where they are allowed."""

    def __init__(self) -> None:
        self.weights: list[Array] = []
        self.scores: list[Array] = []

    def observe(self, rows: Rows) -> None:
        assert rows.logits is not None
        on = arrays.of(rows.weights)
        self.weights.append(on.copied(rows.weights))
        scores = on.copied(rows.logits)
        if rows.allowed is not None:
            scores = on.xp.where(rows.allowed, scores, 0)
        self.scores.append(scores)


def moved(source: Source, original: Source, inputs: Inputs) -> RoundingErrors:
    """What changes on a text and on the sentences that ship with attnviz."""
    texts = [inputs, *(source.prepare(Prompt(text, truncate=True)) for text in sentences())]
    weight = score = share = 0.0
    for text in texts:
        (before, said), (after, heard) = (_run(model, text) for model in (source, original))
        weight = max(weight, _farthest(before.weights, after.weights))
        score = max(score, _farthest(before.scores, after.scores))
        share = max(share, _farthest(said, heard))
    return RoundingErrors(weight, score, share, len(texts))


def _run(source: Source, text: Inputs) -> tuple[_Blocks, list[Array]]:
    blocks = _Blocks()
    has_words = not source.no_logits
    request = ForwardRequest(hidden=False, logits=has_words)
    logits = source.forward([text], [blocks], request).logits
    return blocks, [] if logits is None else [arrays.of(logits).softmax(logits, None)]


def _farthest(before: Sequence[Array], after: Sequence[Array]) -> float:
    pairs = zip(before, after, strict=True)
    return max((float(abs(a - b).max()) for a, b in pairs), default=0.0)
