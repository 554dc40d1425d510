"""The checkpoints of a run, one after the other or in several processes; what is done is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attnviz.captures.look import load
from attnviz.corpus.executors import Inline, Processes
from attnviz.corpus.running import Executor, answered
from attnviz.corpus.stopping import Stopping
from attnviz.corpus.texts import Text
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.features.film import kept
from attnviz.features.film.kept import FilmAsked, MeasuredStep
from attnviz.features.film.measure import measure, prepare, shown_name
from attnviz.features.film.series import Checkpoint
from attnviz.models.identity import identity


@dataclass(frozen=True)
class FilmStudy:
    """What is measured at every checkpoint.

    Attributes:
        texts: to run.
        asked: what to measure.
        files: that the texts are from.
        device: where to run, ``dtype`` in which precision.
        dtype: see ``device``.
    """

    texts: tuple[Text, ...]
    asked: FilmAsked
    files: tuple[str, ...]
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True)
class FilmWorker:
    """Measures a checkpoint, which is in memory no longer than that takes."""

    study: FilmStudy

    def __call__(self, checkpoint: Checkpoint) -> MeasuredStep:
        """Load it, run every text, forget it."""
        study = self.study
        source = load(checkpoint.model, device=study.device, dtype=study.dtype)
        return measure(
            source,
            prepare(source, study.texts, study.asked),
            study.asked,
            step=checkpoint.step,
            name=shown_name(checkpoint.model),
            identity=dict(identity(checkpoint.model)),
            files=study.files,
        )


def run(
    checkpoints: Sequence[Checkpoint],
    study: FilmStudy,
    *,
    jobs: int = 1,
    keep: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> tuple[MeasuredStep, ...]:
    """Measure every checkpoint.

    Args:
        checkpoints: in their order.
        study: what to measure.
        jobs: processes, a checkpoint each at a time; the result is the same, bit by bit.
        keep: a folder for what is done. What it holds of the same checkpoints, texts and settings
            is not done again.
        progress: called after every checkpoint.

    Returns:
        In their order; fewer after an interruption.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    done = {} if keep is None else _done(checkpoints, study, keep)
    todo = [one for one in checkpoints if one.step not in done]
    progress("checkpoints", len(done), len(checkpoints))
    with Stopping() as stop, _executor(study, jobs, len(todo)) as workers:
        for task, found in answered(workers, todo, "a checkpoint"):
            done[task.step] = found
            if keep is not None:
                kept.write(keep, found)
            progress("checkpoints", len(done), len(checkpoints))
            if stop.asked():
                break
    return tuple(done[step] for step in sorted(done))


def _executor(
    study: FilmStudy, jobs: int, tasks: int
) -> AbstractContextManager[Executor[Checkpoint, MeasuredStep]]:
    if min(jobs, tasks) <= 1:
        return Inline(FilmWorker(study))
    return Processes(partial(FilmWorker, study), min(jobs, tasks))


def _done(
    checkpoints: Sequence[Checkpoint], study: FilmStudy, folder: Path
) -> dict[int, MeasuredStep]:
    """What the folder holds of this run; UsageError for steps of another one."""
    with system_errors(InputError, f"cannot use {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for one in checkpoints:
        path = kept.path_of(folder, one.step)
        if not path.exists():
            continue
        known = kept.read(path)
        same = known.header.asked == study.asked.document() and known.header.files == list(
            study.files
        )
        if not same or known.header.identity != dict(identity(one.model)):
            raise UsageError(
                "{} is of other texts, settings or weights than this run; name another folder for "
                "{keep}, or delete it",
                path,
                keep=...,
            )
        found[one.step] = known
    return found
