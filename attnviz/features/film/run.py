"""The checkpoints of a run, one after the other or in several processes; what is done is kept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attnviz.captures.settings import ModelSettings
from attnviz.core.settings import Progress
from attnviz.corpus.executors import Inline, Processes, Stopping
from attnviz.corpus.running import Executor, answered
from attnviz.corpus.texts import Text
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.features.film import steps
from attnviz.features.film.measure import measure, prepare, shown_name
from attnviz.features.film.result import FilmSettings
from attnviz.features.film.series import Checkpoint
from attnviz.features.film.steps import MeasuredStep
from attnviz.models.cache import identity


@dataclass(frozen=True)
class FilmStudy:
    """What is measured at every checkpoint."""

    texts: tuple[Text, ...]  # to run
    settings: FilmSettings  # what to measure
    files: tuple[str, ...]  # that the texts are from
    model: ModelSettings  # where to run, and in which precision; each checkpoint takes its place


@dataclass(frozen=True)
class FilmWorker:
    """Measures a checkpoint, which is in memory no longer than that takes."""

    study: FilmStudy

    def __call__(self, checkpoint: Checkpoint) -> MeasuredStep:
        """Load it, run every text, forget it."""
        study = self.study
        model = study.model.but(model=checkpoint.model)
        source = model.load()
        return measure(
            source,
            prepare(source, study.texts, study.settings),
            study.settings,
            step=checkpoint.step,
            name=shown_name(checkpoint.model),
            identity=dict(model.identity),
            files=study.files,
        )


def run(
    checkpoints: Sequence[Checkpoint], study: FilmStudy, progress: Progress
) -> tuple[MeasuredStep, ...]:
    """Measure every checkpoint."""
    state = None if study.settings.state is None else Path(study.settings.state)
    done = {} if state is None else _done(checkpoints, study, state)
    todo = [checkpoint for checkpoint in checkpoints if checkpoint.step not in done]
    progress("checkpoints", len(done), len(checkpoints))
    with Stopping() as stop, _executor(study, len(todo)) as workers:
        for task, step in answered(workers, todo, "a checkpoint"):
            done[task.step] = step
            if state is not None:
                steps.write(state, step)
            progress("checkpoints", len(done), len(checkpoints))
            if stop.asked():
                break
    return tuple(done[step] for step in sorted(done))


def _executor(
    study: FilmStudy, tasks: int
) -> AbstractContextManager[Executor[Checkpoint, MeasuredStep]]:
    jobs = min(study.settings.jobs, tasks)
    return Inline(FilmWorker(study)) if jobs <= 1 else Processes(partial(FilmWorker, study), jobs)


def _done(
    checkpoints: Sequence[Checkpoint], study: FilmStudy, folder: Path
) -> dict[int, MeasuredStep]:
    """What the folder holds of this run; UsageError for steps of another one."""
    with system_errors(InputError, f"cannot use {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    done = {}
    for checkpoint in checkpoints:
        path = steps.path_of(folder, checkpoint.step)
        if not path.exists():
            continue
        step = steps.read(path)
        header = step.header
        same = header.asked == study.settings.document() and header.files == list(study.files)
        if not same or header.identity != dict(identity(checkpoint.model)):
            raise UsageError(
                "{} is of other texts, settings or weights than this run; name another folder for "
                "{state}, or delete it",
                path,
                state=...,
            )
        done[checkpoint.step] = step
    return done
