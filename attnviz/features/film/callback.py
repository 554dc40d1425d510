"""``attnviz.HeadsCallback``: what heads do while transformers' Trainer trains their model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from attnviz.errors import UsageError
from attnviz.features.film.track import SCORED, Tracker


class HeadsCallback(TrainerCallback):
    """Measures heads while transformers' ``Trainer`` trains, see :func:`attnviz.track`.

        trainer = Trainer(model=model, ...)
        av.HeadsCallback(texts, every=100).attach(trainer)
        trainer.train()

    Args:
        texts: some tens, or lists of ids.
        every: steps between two measurements; the beginning and the end are measured too.
        scores: those to measure; None for all.
        log: gets the numbers, a dictionary; after :meth:`attach` the Trainer's own loggers have
            them (TensorBoard, W&B, MLflow, ...: whatever is on), under ``heads/``.
        out: a folder for what every step gave; by default ``heads`` in the Trainer's output folder.
        each: also log the scores of every head.

    Raises:
        UsageError: see :func:`attnviz.track`.
    """

    def __init__(
        self,
        texts: Sequence[str | Sequence[int]],
        every: int = 100,
        scores: Sequence[str] | None = SCORED,
        log: Callable[[dict[str, float]], object] | None = None,
        *,
        out: str | Path | None = None,
        each: bool = False,
    ) -> None:
        if every < 1:
            raise UsageError("{every} must be 1 or more", every=every)
        self._texts, self._every, self._scores = texts, every, scores
        self._log, self._out, self._each = log, out, each
        self._tracker: Tracker | None = None
        self._done = -1

    def attach(self, trainer: Any) -> HeadsCallback:
        """Let a Trainer call this, and its loggers have the numbers.

        Args:
            trainer: before it trains.
        """
        trainer.add_callback(self)
        self._log = self._log or trainer.log
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the model as training finds it."""
        self._tracker = None
        if not state.is_world_process_zero:
            return
        out = Path(args.output_dir) / "heads" if self._out is None else self._out
        self._tracker = Tracker(
            kwargs["model"], kwargs.get("processing_class"), self._texts, 1, self._scores, out,
            each=self._each,
        )  # fmt: skip
        self._measure(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure where it is time."""
        if state.global_step % self._every == 0:
            self._measure(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure what came out."""
        self._measure(state, control)
        self._tracker = None

    def _measure(self, state: Any, control: Any) -> None:
        if self._tracker is None or state.global_step == self._done:
            return
        self._done = state.global_step
        numbers: Mapping[str, float] = self._tracker.measure(state.global_step)
        if self._log is not None:
            wanted = control.should_log  # of the loss at this step, which logging would take back
            self._log(dict(numbers))
            control.should_log = wanted
