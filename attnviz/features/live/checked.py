"""Lessons held against the model that the page will run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.corpus.lines import sentences
from attnviz.features.live.lesson import Lesson, LessonStep
from attnviz.features.live.seen import LessonPass
from attnviz.models.native.source import Native
from attnviz.scoring.observe import Recorder


def holding(lessons: Iterable[Lesson], source: Native) -> tuple[Lesson, ...]:
    """Those lessons of which every step says what is so."""
    passes = LessonPasses(source)
    return tuple(
        lesson for lesson in lessons if all(step.holds(passes.of(step)) for step in lesson.steps)
    )


class LessonPasses:
    """Runs a model as steps of lessons ask."""

    def __init__(self, source: Native) -> None:
        self._source = source
        whole = source.portable()
        self._texts = whole.vocabulary.texts
        self._root = 1 / whole.scales[0]
        positions = whole.tensors["positions"]

        def level(numbers: Array) -> Array:
            if not np.array_equal(arrays.to_numpy(numbers), positions):
                return numbers
            on = arrays.of(numbers)
            same: Array = on.copied(on.xp.broadcast_to(numbers.mean(0), numbers.shape))
            return same

        self._level = source.rounded(level)
        self._run = cache(self._pass)

    def of(self, step: LessonStep) -> LessonPass:
        """What a step shows once it has been told."""
        plain = self._run(step.text, (), True)
        if not step.off and step.places and step.other is None:
            return plain
        return replace(self._run(step.other or step.text, step.off, step.places), plain=plain)

    def _pass(self, text: str, off: tuple[str, ...], places: bool) -> LessonPass:
        source = self._source if places else self._level
        inputs = source.prepare(Prompt(text))
        recorder = Recorder([inputs])
        with source.gated(dict.fromkeys(off, 0.0)):
            logits = source.forward([inputs], [recorder], ForwardRequest(logits=True)).logits
        assert logits is not None
        (sides,) = inputs.sides.values()
        return LessonPass(
            sides.queries.texts,
            np.stack(list(recorder.maps().values())),
            arrays.to_numpy(arrays.of(logits).softmax(logits[0, -1], None)),
            self._texts,
            self._root,
        )


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
