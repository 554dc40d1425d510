"""Who does the tasks: this process, several, or actors on Ray; the answers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attnviz.core.source import Source
from attnviz.corpus.executors import Inline, Processes, WorkerFailure
from attnviz.errors import AttnvizError, UsageError

if TYPE_CHECKING:
    from attnviz.corpus.on_ray import OnRay

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Executor(Protocol[Task, Answer_co]):
    """Does tasks, each with its answer in order; see :mod:`attnviz.corpus.executors`."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer_co | WorkerFailure]]:
        """Every task with its answer."""


@dataclass(frozen=True)
class SetUp(Generic[Task, Answer]):
    """Gives the function of a task, in another process."""

    load: Callable[[], Source]  # loads the model
    worker: Callable[[Source], Callable[[Task], Answer]]  # makes the function, of the model

    def __call__(self) -> Callable[[Task], Reported[Answer]]:
        """Load the model."""
        source = self.load()
        return _Reporting(self.worker(source), source)


@dataclass(frozen=True, slots=True)
class Reported(Generic[Answer]):
    """An answer of another process, with the versions of what computed it."""

    answer: Answer
    versions: Mapping[str, str]


@dataclass(frozen=True)
class _Reporting(Generic[Task, Answer]):
    do: Callable[[Task], Answer]
    source: Source

    def __call__(self, task: Task) -> Reported[Answer]:
        return Reported(self.do(task), self.source.info.versions)


class Elsewhere(Generic[Task, Answer]):
    """Other processes; what computed there is added to what the model in this one says."""

    def __init__(
        self,
        workers: Processes[Task, Reported[Answer]] | OnRay[Task, Reported[Answer]],
        source: Source,
    ) -> None:
        self._workers, self._source = workers, source

    def __enter__(self) -> Elsewhere[Task, Answer]:
        self._workers.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._workers.__exit__(*error)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer."""
        add = getattr(self._source, "add_versions", None)
        for task, answer in self._workers.run(tasks):
            if isinstance(answer, WorkerFailure):
                yield task, answer
                continue
            if add is not None:
                add(answer.versions)
            yield task, answer.answer


def answered(
    running: Executor[Task, Answer], tasks: Iterable[Task], what: str
) -> Iterator[tuple[Task, Answer]]:
    """Every task with its answer, in order, where none may be missing."""
    for task, answer in running.run(tasks):
        if isinstance(answer, WorkerFailure):
            raise AttnvizError("{} cannot be run: {}", what, answer.reason)
        yield task, answer


def of_model(do: Callable[[Source, Task], Answer]) -> Callable[[Source], Callable[[Task], Answer]]:
    """A function of a model and a task as what :func:`executor` wants, where a task leaves nothing.

    Other processes get it by its name, so it stands in a module.
    """
    return partial(partial, do)


def executor(
    worker: Callable[[Source], Callable[[Task], Answer]],
    source: Source,
    load: Callable[[], Source] | None,
    jobs: int = 1,
    ray: str | None = None,
) -> AbstractContextManager[Executor[Task, Answer]]:
    """Who does the tasks; use in a ``with`` block."""
    if jobs == 1 and ray is None:
        return Inline(worker(source))
    if load is None:
        raise UsageError(
            "other processes load the model by its name, and this one is loaded already; leave "
            "out {jobs} and {ray}",
            jobs=...,
            ray=...,
        )
    if ray is None:
        return Elsewhere(Processes(SetUp(load, worker), jobs), source)
    from attnviz.corpus.on_ray import OnRay

    return Elsewhere(OnRay(SetUp(load, worker), ray, jobs if jobs > 1 else None), source)
