"""Lessons held against the model that the page will run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
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
