"""``attnviz.track``: what heads do while their model is trained, in any loop."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.captures.loading import load
from attnviz.core.arguments import check
from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.corpus.texts import Text
from attnviz.errors import (
    AttnvizError,
    AttnvizWarning,
    InputError,
    OutputError,
    UsageError,
    system_errors,
)
from attnviz.features.film import steps
from attnviz.features.film.log_pictures import named, report
from attnviz.features.film.measure import Prepared, measure, prepare
from attnviz.features.film.result import MAP_TOKENS, FilmSettings
from attnviz.features.film.steps import MeasuredStep

SCORED = ("previous", "induction")  # what is measured unless something else is asked for


class Tracker:
    """See :func:`track`.

    Attributes:
        last: what was measured last; None before that.
    """

    @interface
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        texts: Sequence[str | Sequence[int]],
        every: int = 1,
        scores: Sequence[str] | None = SCORED,
        state: str | Path | None = None,
        map_tokens: int = MAP_TOKENS,
        each: bool = False,
        seed: int = 0,
        log_pictures: Any = (),
    ) -> None:
        if map_tokens < 0:
            raise UsageError("{map_tokens} must be 0 or more", map_tokens=map_tokens)
        self._texts, chosen = checked_settings(texts, every, scores)
        self._model, self._tokenizer, self.every = model, tokenizer, every
        self._trackers = named(log_pictures)
        kept_tokens = 0 if state is None and not self._trackers else map_tokens
        self._settings = FilmSettings(scores=chosen, map_tokens=kept_tokens, seed=seed)
        self._state, self._each = folder_for(state), each
        self._ready: tuple[Source, Prepared, object] | None = None
        self._unmeasured = False
        self.last: MeasuredStep | None = None
        body = inside(model)
        if not hasattr(body, "modules"):
            raise UsageError(
                "{model} takes the transformers model that is trained, not {}",
                type(model).__name__,
                model=...,
            )
        if first_rank():  # refused now, not after hours
            with undisturbed(body):
                self._prepared(body)

    def __call__(self, step: int) -> dict[str, float]:
        """Measure if it is time."""
        if _checked_step(step) % self.every or not first_rank():
            return {}
        return self.measure(step)

    def measure(self, step: int) -> dict[str, float]:
        """Return the same at any step."""
        step = _checked_step(step)
        try:
            model = inside(self._model)
            with undisturbed(model):
                source, prepared = self._prepared(model)
                name = f"step-{step}"
                self.last = measure(source, prepared, self._settings, step=step, name=name)
        except AttnvizError as error:
            if not self._unmeasured:
                warned(f"step {step} is not measured, nor others like it: {error}")
            self._unmeasured = True
            return {}
        if self._state is not None:
            try:
                steps.write(self._state, self.last)
            except OutputError as error:
                self._state = None
                warned(f"steps are not kept from step {step} on: {error}")
        if self._trackers:
            self.picture(self._trackers)
        return scalars(self.last, each=self._each)

    def picture(self, trackers: Sequence[Any]) -> bool:
        """Hand what was measured last as pictures to trackers; False, warned, if one fails."""
        assert self.last is not None
        try:
            report(self.last, trackers)
        except Exception as error:  # whatever a tracker raises
            self._trackers, step = (), self.last.header.step
            warned(f"pictures are not logged from step {step} on: {type(error).__name__}: {error}")
            return False
        return True

    def _prepared(self, model: Any) -> tuple[Source, Prepared]:
        """Return the model as a source, made anew where it has moved."""
        location = getattr(model, "device", None), getattr(model, "dtype", None)
        if self._ready is None or self._ready[2] != location:
            source = load(model, tokenizer=self._tokenizer)
            self._ready = source, prepare(source, self._texts, self._settings), location
        return self._ready[:2]


@interface
def track(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str | Sequence[int]],
    *,
    every: int = 1,
    scores: Sequence[str] | None = SCORED,
    state: str | Path | None = None,
    map_tokens: int = MAP_TOKENS,
    each: bool = False,
    seed: int = 0,
    log_pictures: Any = (),
) -> Tracker:
    """Measure heads while a model is trained.

        heads = av.track(model, tokenizer, texts, every=100, state="run/heads")
        for step in range(steps):
            ...
            log(heads(step))

    Training is bit-identical with and without: weights, gradients, buffers, modes and random
    numbers are as they were, and only rank 0 of several measures. What cannot be measured is
    refused here; from here on nothing that fails ends the training: a step that cannot be measured
    (weights that are no numbers) or kept (a full disk) is left out, with one warning.

    Args:
        model: a transformers model, or what ``DistributedDataParallel`` or ``torch.compile`` made
            of one; it runs uncompiled, in evaluation mode, in the precision of its weights.
        tokenizer: its tokenizer; None for texts that are ids.
        texts: some tens are enough to see heads form; their number is the cost. Longer ones than
            the model takes are cut into windows.
        every: steps between two measurements; a call at another step does nothing.
        scores: those to measure; None for all, see :func:`attnviz.profile`.
        state: a folder for what every step gave, which ``attnviz film FOLDER`` and
            :func:`attnviz.read` put together.
        map_tokens: maps of so many tokens of the first text are kept with it; 0 for none.
        each: also give the scores of every head, and not of the highest alone.
        seed: of the bootstrap of the film.
        log_pictures: what keeps the log of the training, or several: TensorBoard's SummaryWriter,
            ``wandb``, ``trackio``, ``mlflow`` or a Run of aim. They get the grid of heads and, for
            every score, the map of its highest head as pictures, and the roles as a table.

    Returns:
        What is to be called with every step.

    Raises:
        UsageError: no transformers model, one whose weights are spread over processes, no texts,
            no score or one that there is not. InputError: no text can be used. ModelError: texts
            without the tokenizer. OutputError: ``state`` cannot be a folder.
    """
    return Tracker(
        model, tokenizer, texts, every, scores, state, map_tokens, each, seed, log_pictures
    )


def scalars(step: MeasuredStep, *, each: bool = False) -> dict[str, float]:
    """Return what a step gave, in numbers for a log; see :meth:`Tracker.__call__`."""
    numbers: dict[str, float] = {}
    rows, values = step.rows.sum(0), step.values.sum(0)
    heads = [step.layout.name(head) for head in step.layout]
    for column, score in enumerate(step.header.scores):
        means = {
            name: float(values[row, column] / rows[row, column])
            for row, name in enumerate(heads)
            if rows[row, column]
        }
        if means:
            numbers[f"heads/{score}"] = max(means.values())
        if each:
            numbers |= {f"heads/{score}/{name}": value for name, value in means.items()}
    if step.predicted.sum():
        numbers["heads/loss"] = float(step.loss.sum() / step.predicted.sum())
    if step.windows.sum():
        numbers["heads/in_context"] = float(step.contexts.sum() / step.windows.sum())
    return numbers


def inside(model: Any) -> Any:
    """Return the model in what wraps it for several processes or compiles it."""
    wrappers = ("_orig_mod", "module")
    while any(hasattr(model, name) for name in wrappers) and not hasattr(model, "config"):
        model = next(getattr(model, name) for name in wrappers if hasattr(model, name))
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

    running = distributed.is_available() and distributed.is_initialized()
    return not running or distributed.get_rank() == 0


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
        with torch.random.fork_rng(sorted(devices, key=str)), torch.autocast(kind, enabled=False):
            yield
    finally:
        for module, call in compiled:
            module._compiled_call_impl = call
        for module, saved in buffers:
            module._buffers.clear()
            module._buffers.update(saved)
        random.setstate(python)
        np.random.set_state(numpy)


def checked_settings(
    texts: Sequence[str | Sequence[int]], every: int, scores: Sequence[str] | None
) -> tuple[tuple[Text, ...], tuple[str, ...]]:
    """Return the texts, and the scores in the order of the table; see :func:`track`."""
    if every < 1:
        raise UsageError("{every} must be 1 or more", every=every)
    (settings := FilmSettings(scores=scores)).check()
    if not texts:
        raise UsageError("no {texts}; give some tens", texts=...)
    prompts = []
    for number, text in enumerate(texts, 1):
        prompt = Prompt(text) if isinstance(text, str) else Prompt(ids=tuple(map(int, text)))
        if not (text.strip() if isinstance(text, str) else prompt.ids):
            raise InputError(f"text {number} is empty; leave it out")
        if (least := min(prompt.ids or (0,))) < 0:
            raise InputError(f"text {number} has the token id {least}; ids go from 0")
        prompts.append(Text(number, f"text {number}", prompt))
    return tuple(prompts), settings.measured


def folder_for(state: str | Path | None) -> Path | None:
    """Return the folder that steps are kept in, made; OutputError where it cannot be one."""
    if state is None:
        return None
    folder = Path(state)
    with system_errors(OutputError, f"cannot keep steps in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return folder


def warned(message: str) -> None:
    """Say what has failed beside a training, which goes on."""
    warnings.warn(f"{message}. Training goes on.", AttnvizWarning, stacklevel=3)


def _checked_step(step: int) -> int:
    """Return a number of steps; UsageError for anything else."""
    check("step", step, int)
    if step < 0:
        raise UsageError("{step} must be 0 or more", step=step)
    return int(step)
