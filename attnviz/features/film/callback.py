"""``attnviz.HeadsCallback``: what heads do while transformers' Trainer trains their model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from attnviz.core.interface import interface
from attnviz.errors import UsageError
from attnviz.features.film.log_pictures import trackers
from attnviz.features.film.track import SCORED, Tracker, checked_settings, folder_for, warned


class HeadsCallback(TrainerCallback):  # type: ignore[misc]
    """Measures heads while transformers' ``Trainer`` trains, see :func:`attnviz.track`.

        trainer = Trainer(model=model, ...)
        av.HeadsCallback(texts, every=100).attach(trainer)
        trainer.train()

    Args:
        texts: some tens, or lists of ids.
        every: steps between two measurements; the beginning and the end are measured too.
        scores: those to measure; None for all.
        log: gets the numbers, a dictionary; after :meth:`attach` the Trainer's own loggers have
            them (TensorBoard, W&B, MLflow, ...: whatever is on), under ``heads/``. If it raises,
            that is a warning, and it is not called again.
        state: a folder for what every step gave; by default ``heads`` in the Trainer's output
            folder.
        each: also log the scores of every head.
        log_pictures: also hand the grid of heads, the map of each score's highest head and a table
            of roles to what the Trainer reports to, of TensorBoard, W&B, trackio, MLflow and aim;
            needs :meth:`attach`. See :func:`attnviz.track` for others.

    Raises:
        UsageError, InputError, OutputError: see :func:`attnviz.track`.
    """

    @interface
    def __init__(
        self,
        texts: Sequence[str | Sequence[int]],
        every: int = 100,
        scores: Sequence[str] | None = SCORED,
        log: Callable[[dict[str, float]], object] | None = None,
        *,
        state: str | Path | None = None,
        each: bool = False,
        log_pictures: bool = False,
    ) -> None:
        checked_settings(texts, every, scores)
        folder_for(state)
        self._texts, self._every, self._scores = texts, every, scores
        self._log, self._state, self._each = log, state, each
        self._log_pictures, self._done = log_pictures, -1
        self._trainer: Any = None
        self._tracker: Tracker | None = None

    def attach(self, trainer: Any) -> HeadsCallback:
        """Let a Trainer call this, and its loggers have the numbers.

        Args:
            trainer: before it trains; its model and tokenizer are looked at now.

        Raises:
            UsageError: no Trainer; AttnvizError: see :func:`attnviz.track`.
        """
        if not all(callable(getattr(trainer, name, None)) for name in ("add_callback", "log")):
            raise UsageError(
                "{trainer} takes transformers' Trainer, not {}", type(trainer).__name__, trainer=...
            )
        tokenizer = getattr(trainer, "processing_class", None)
        self._made(trainer.args, trainer.model, tokenizer)  # refused now
        trainer.add_callback(self)
        self._log, self._trainer = self._log or trainer.log, trainer
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the model as training finds it."""
        self._tracker = None
        if not state.is_world_process_zero:
            return
        self._tracker = self._made(args, kwargs["model"], kwargs.get("processing_class"))
        if self._log_pictures and self._trainer is None:
            warned("no pictures are logged: log_pictures needs attach(trainer)")
        self._measure(state, control)
        self._stand(first=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure where it is time, and the end before a better model is loaded in its place."""
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._measure(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the end of a training that stops early, before another model is loaded."""
        if control.should_training_stop:
            self._measure(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure what came out, unless it is the model of an earlier step that was better."""
        if not getattr(args, "load_best_model_at_end", False):
            self._measure(state, control)
        self._stand(first=False)
        self._tracker = None

    def _stand(self, *, first: bool) -> None:
        """Be called before trackers, which close their runs at the end, or after they open them."""
        if self._trainer is not None:
            handler = self._trainer.callback_handler
            callbacks = [callback for callback in handler.callbacks if callback is not self]
            handler.callbacks = [self, *callbacks] if first else [*callbacks, self]

    def _made(self, args: Any, model: Any, tokenizer: Any) -> Tracker:
        state = Path(args.output_dir) / "heads" if self._state is None else self._state
        folder_for(state)
        if tokenizer is None and any(isinstance(text, str) for text in self._texts):
            raise UsageError(
                "the Trainer has no tokenizer to read the texts; make it with "
                "processing_class=tokenizer, or give lists of ids"
            )
        return Tracker(model, tokenizer, self._texts, 1, self._scores, state, each=self._each)

    def _measure(self, state: Any, control: Any) -> None:
        if self._tracker is None or state.global_step == self._done:
            return
        self._done = state.global_step
        numbers: Mapping[str, float] = self._tracker.measure(state.global_step)
        if not numbers:
            return
        self._logged(state, control, numbers)
        if self._log_pictures and self._trainer is not None:
            reported = trackers(self._trainer.callback_handler.callbacks)
            if not reported:
                warned("the Trainer reports to nothing that takes pictures, see log_pictures")
            self._log_pictures = bool(reported) and self._tracker.picture(reported)

    def _logged(self, state: Any, control: Any, numbers: Mapping[str, float]) -> None:
        """Hand a step's numbers to what logs them; what that raises is a warning, once."""
        if self._log is None:
            return
        logging = control.should_log  # of the loss at this step, which logging would take back
        try:
            self._log(dict(numbers))
        except Exception as error:  # whatever a logger raises
            self._log = None
            name = type(error).__name__
            warned(f"numbers are not logged from step {state.global_step} on: {name}: {error}")
        finally:
            control.should_log = logging
