"""Who does the tasks: this process, several, or actors on Ray; the answers are the same.

Tasks done by actors on Ray, on this machine or a cluster, with the answers in order.

Ray Data moves the tasks: every actor loads the model once, one that dies is started again and its
task repeated. Ray would repeat it without end, so one more actor counts how often each task was
begun, and one that was deadly twice is not begun again. Tasks go in rounds, so that the list of
them never needs much memory.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from attnviz.core.source import Source
from attnviz.corpus.executors import ATTEMPTS, Inline, Known, Processes, WorkerFailure
from attnviz.errors import AttnvizError, Setting, UsageError, missing

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
    return Elsewhere(OnRay(SetUp(load, worker), ray, jobs if jobs > 1 else None), source)


LOCAL = "local"
ROUND = 1024
"""Tasks that Ray Data gets at a time; between two rounds the actors load their model again."""


class OnRay(Generic[Task, Answer]):
    """Actors do the tasks, each with one thread; use in a ``with`` block."""

    def __init__(
        self,
        set_up: Callable[[], Callable[[Task], Answer]],
        address: str = LOCAL,
        actors: int | None = None,
    ) -> None:
        try:
            import ray.data
        except ImportError:
            raise missing("ray", Setting("ray")) from None
        self._ray: Any = ray
        self._set_up = pickle.dumps(Known.of(set_up), protocol=5)
        self._address, self._actors = address, actors
        self._own = False

    def __enter__(self) -> OnRay[Task, Answer]:
        ray = self._ray
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        for name in ("ray", "ray.data"):  # what goes wrong is told by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._own = not ray.is_initialized()
        if self._own:
            more = {} if self._address != LOCAL else {"num_cpus": self._actors}
            more |= {"include_dashboard": False} if self._address == LOCAL else {}
            try:
                ray.init(self._address, log_to_driver=False, logging_level="CRITICAL", **more)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise AttnvizError(
                    f"cannot start or reach Ray at {self._address}: {' '.join(str(error).split())}"
                ) from None
        return self

    def __exit__(self, *error: object) -> None:
        """End the Ray that was started, or the connection to the cluster."""
        if self._own:
            self._ray.shutdown()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer, in order."""
        waiting = iter(tasks)
        while some := list(islice(waiting, ROUND)):
            yield from self._round(some)

    def _round(self, tasks: list[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """A dataset of a block for each task, so that one that is lost is one task."""
        data = self._ray.data
        context = data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.max_errored_blocks = -1  # it would give up on all of them
        resources = self._ray.cluster_resources()
        gpus = resources.get("GPU", 0)
        actors = self._actors or int(gpus or resources.get("CPU", 1))
        begun = self._ray.remote(num_cpus=0)(_Begun).remote()
        rows = [{"number": n, "task": pickle.dumps(t, protocol=5)} for n, t in enumerate(tasks)]
        answers = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Actor,
            fn_constructor_args=(self._set_up, begun),
            compute=data.ActorPoolStrategy(size=min(actors, len(tasks))),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if gpus else None,
        )
        expected = 0
        for row in answers.iter_rows():
            for number in range(expected, row["number"]):
                yield tasks[number], _LOST
            expected = row["number"] + 1
            went_well, answer = pickle.loads(row["answer"])
            if not went_well:
                raise answer
            yield tasks[row["number"]], answer
        for number in range(expected, len(tasks)):
            yield tasks[number], _LOST


_LOST = WorkerFailure(f"{ATTEMPTS} actors crashed on it; was there enough memory?")


class _Begun:
    """Counts how often each task was begun; lives longer than the actors that begin them."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def again(self, number: int) -> int:
        """Count one more; how often it is now."""
        self._times[number] += 1
        return self._times[number]


class _Actor:
    """Loads what it needs once, and then does tasks."""

    def __init__(self, set_up: bytes, begun: Any) -> None:
        import ray
        import torch

        torch.set_num_threads(1)
        self._do, self._begun, self._get = pickle.loads(set_up)(), begun, ray.get

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Rows with tasks to rows with answers, or with the errors of our own that came instead."""
        answers: list[tuple[bool, Any]] = []
        for number, task in zip(batch["number"], batch["task"], strict=True):
            if self._get(self._begun.again.remote(int(number))) > ATTEMPTS:
                answers.append((True, _LOST))
                continue
            try:
                answers.append((True, self._do(pickle.loads(task))))
            except AttnvizError as error:
                answers.append((False, error))
        pickled = [pickle.dumps(answer, protocol=5) for answer in answers]
        return {"number": batch["number"], "answer": pickled}
