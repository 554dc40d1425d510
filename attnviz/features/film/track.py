"""``attnviz.track``: what heads do while their model is trained, in any loop."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.captures.look import load
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.corpus.texts import Text
from attnviz.errors import InputError, UsageError
from attnviz.features.film import kept
from attnviz.features.film.kept import FilmAsked, MeasuredStep
from attnviz.features.film.measure import Prepared, measure, prepare
from attnviz.scoring.scores import SCORES

SCORED = ("previous", "induction")
"""What is measured unless something else is asked for."""


def track(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str | Sequence[int]],
    *,
    every: int = 1,
    scores: Sequence[str] | None = SCORED,
    out: str | Path | None = None,
    show: int = 24,
    each: bool = False,
    seed: int = 0,
) -> Tracker:
    """Measure heads while a model is trained.

        heads = av.track(model, tokenizer, texts, every=100, out="run/heads")
        for step in range(steps):
            ...
            log(heads(step))

    Training is bit-identical with and without: weights, gradients, buffers, modes and random
    numbers are as they were, and only rank 0 of several measures.

    Args:
        model: a transformers model, or what ``DistributedDataParallel`` or ``torch.compile`` made
            of one; it runs uncompiled, in evaluation mode, in the precision of its weights.
        tokenizer: its tokenizer; None for texts that are ids.
        texts: some tens are enough to see heads form; their number is the cost. Longer ones than
            the model takes are cut into windows.
        every: steps between two measurements; a call at another step does nothing.
        scores: those to measure; None for all, see :func:`attnviz.profile`.
        out: a folder for what every step gave, which ``attnviz film FOLDER`` and
            :func:`attnviz.read_film` put together.
        show: maps of so many tokens of the first text are kept with it; 0 for none.
        each: also give the scores of every head, and not of the highest alone.
        seed: of the bootstrap of the film.

    Returns:
        What is to be called with every step.

    Raises:
        UsageError: no transformers model, one whose weights are spread over processes, no texts,
            or a score that there is not.
    """
    return Tracker(model, tokenizer, texts, every, scores, out, show, each, seed)


class Tracker:
    """See :func:`track`.

    Attributes:
        last: what was measured last; None before that.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        texts: Sequence[str | Sequence[int]],
        every: int = 1,
        scores: Sequence[str] | None = SCORED,
        out: str | Path | None = None,
        show: int = 24,
        each: bool = False,
        seed: int = 0,
    ) -> None:
        if every < 1:
            raise UsageError("{every} must be 1 or more", every=every)
        for name in scores or ():
            if name not in SCORES:
                raise UsageError("no score is called {!r}; choose {}", name, ", ".join(SCORES))
        self._model, self._tokenizer, self.every = model, tokenizer, every
        self._texts = _texts(texts)
        chosen = tuple(name for name in SCORES if scores is None or name in scores)
        self._asked = FilmAsked(chosen, show=show if out is not None else 0, seed=seed)
        self._out, self._each = None if out is None else Path(out), each
        self._ready: tuple[Source, Prepared, object] | None = None
        self.last: MeasuredStep | None = None
        if not hasattr(inside(model), "config"):  # refused now, not after hours
            load(inside(model), tokenizer=tokenizer)
        if self._out is not None:
            self._out.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: int) -> dict[str, float]:
        """Measure if it is time.

        Args:
            step: how many steps are done.

        Returns:
            ``heads/<score>``, the highest of all heads; ``heads/loss`` and ``heads/in_context`` on
            the texts; with ``each`` also ``heads/<score>/<head>``. Empty where it is not time, and
            on other ranks than 0.
        """
        if step % self.every or not first_rank():
            return {}
        return self.measure(step)

    def measure(self, step: int) -> dict[str, float]:
        """The same at any step."""
        model = inside(self._model)
        with undisturbed(model):
            source, prepared = self._prepared(model)
            name = f"step-{step}"
            self.last = measure(source, prepared, self._asked, step=step, name=name)
        if self._out is not None:
            kept.write(self._out, self.last)
        return scalars(self.last, each=self._each)

    def _prepared(self, model: Any) -> tuple[Source, Prepared]:
        """The model as a source, made anew where it has moved."""
        where = model.device, model.dtype
        if self._ready is None or self._ready[2] != where:
            source = load(model, tokenizer=self._tokenizer)
            self._ready = source, prepare(source, self._texts, self._asked), where
        return self._ready[:2]


def scalars(found: MeasuredStep, *, each: bool = False) -> dict[str, float]:
    """What a step gave, in numbers for a log; see :meth:`Tracker.__call__`."""
    numbers: dict[str, float] = {}
    rows, values = found.rows.sum(0), found.values.sum(0)
    heads = [found.layout.name(head) for head in found.layout]
    for column, score in enumerate(found.header.scores):
        known = {
            name: float(values[place, column] / rows[place, column])
            for place, name in enumerate(heads)
            if rows[place, column]
        }
        if known:
            numbers[f"heads/{score}"] = max(known.values())
        if each:
            numbers |= {f"heads/{score}/{name}": value for name, value in known.items()}
    if found.predicted.sum():
        numbers["heads/loss"] = float(found.loss.sum() / found.predicted.sum())
    if found.windows.sum():
        numbers["heads/in_context"] = float(found.contexts.sum() / found.windows.sum())
    return numbers


def inside(model: Any) -> Any:
    """The model in what wraps it for several processes or compiles it.

    Raises:
        UsageError: its weights are spread over processes.
    """
    known = ("_orig_mod", "module")
    while any(hasattr(model, name) for name in known) and not hasattr(model, "config"):
        model = next(getattr(model, name) for name in known if hasattr(model, name))
    while hasattr(model, "_orig_mod"):
        model = model._orig_mod
    for parameter in getattr(model, "parameters", list)():
        if not parameter.numel() or type(parameter.data).__name__ == "DTensor":
            raise UsageError(
                "the weights of this model are spread over processes; heads can be followed where "
                "every process holds all of them"
            )
    return model


def first_rank() -> bool:
    """Whether this process is the one that measures."""
    from torch import distributed

    there = distributed.is_available() and distributed.is_initialized()
    return not there or distributed.get_rank() == 0


@contextlib.contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put back what a pass could change of training: random numbers, buffers, compiled calls.

    Modes, gradients' switches, hooks and the attention function are put back by every pass.
    """
    import torch

    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    modules = list(model.modules())
    buffers = [(module, dict(module._buffers)) for module in modules]
    compiled = [
        (module, module._compiled_call_impl)
        for module in modules
        if getattr(module, "_compiled_call_impl", None) is not None
    ]
    python, numpy = random.getstate(), np.random.get_state()
    kind = next((p.device.type for p in model.parameters()), "cpu")
    try:
        for module, _ in compiled:
            module._compiled_call_impl = None
        with (
            torch.random.fork_rng(sorted(devices, key=str)),
            torch.autocast(kind, enabled=False),
        ):
            yield
    finally:
        for module, call in compiled:
            module._compiled_call_impl = call
        for module, before in buffers:
            module._buffers.clear()
            module._buffers.update(before)
        random.setstate(python)
        np.random.set_state(numpy)


def _texts(texts: Sequence[str | Sequence[int]]) -> tuple[Text, ...]:
    found = []
    for number, one in enumerate(texts, 1):
        prompt = Prompt(one) if isinstance(one, str) else Prompt(ids=tuple(map(int, one)))
        if not (one.strip() if isinstance(one, str) else prompt.ids):
            raise InputError(f"text {number} is empty; leave it out")
        found.append(Text(number, f"text {number}", prompt))
    if not found:
        raise UsageError("no {texts}; give some tens", texts=...)
    return tuple(found)
