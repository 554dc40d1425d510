"""Who does the tasks: this process, several, or actors on Ray; the answers are the same.

Tasks done by actors on Ray, on this machine or a cluster, with the answers in order.

Ray Data moves the tasks, as one dataset that streams: it begins with what the desk has, an actor to
which this process brings tasks as answers come. Every actor loads the model once, one that dies is
started again and its task repeated. Ray would repeat it without end, so the desk counts how often
each task was begun, and one that was deadly twice is not begun again.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count, islice
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

from attnviz.core.source import Source
from attnviz.corpus.executors import ATTEMPTS, Inline, PortableSetUp, Processes, WorkerFailure
from attnviz.errors import AttnvizError, Setting, UsageError, missing

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Executor(Protocol[Task, Answer_co]):
    """Does tasks, each with its answer in order; see :mod:`attnviz.corpus.executors`."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer_co | WorkerFailure]]:
        """Every task with its answer."""


Versions = Mapping[str, str]
"""Of what computed an answer in another process."""


@dataclass(frozen=True)
class SetUp(Generic[Task, Answer]):
    """Gives the function of a task, in another process."""

    load: Callable[[], Source]  # loads the model
    worker: Callable[[Source], Callable[[Task], Answer]]  # makes the function, of the model

    def __call__(self) -> Callable[[Task], tuple[Answer, Versions]]:
        """Load the model."""
        source = self.load()
        do = self.worker(source)
        return lambda task: (do(task), source.info.versions)


class Elsewhere(Generic[Task, Answer]):
    """Other processes; what computed there is added to what the model in this one says."""

    def __init__(
        self,
        workers: Processes[Task, tuple[Answer, Versions]] | OnRay[Task, tuple[Answer, Versions]],
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
            result, versions = answer
            if add is not None:
                add(versions)
            yield task, result


def answered(
    running: Executor[Task, Answer], tasks: Iterable[Task], subject: str
) -> Iterator[tuple[Task, Answer]]:
    """Every task with its answer, in order, where none may be missing."""
    for task, answer in running.run(tasks):
        if isinstance(answer, WorkerFailure):
            raise AttnvizError("{} cannot be run: {}", subject, answer.reason)
        yield task, answer


def of_model(do: Callable[[Source, Task], Answer]) -> Callable[[Source], Callable[[Task], Answer]]:
    """Make a function of a model and a task what :func:`executor` wants; a task leaves nothing.

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
AHEAD = 64
"""Tasks that are handed out at most before the first of them is answered, or 4 for each actor."""

_LIBRARIES = ("attnviz", "numpy", "torch", "transformers", "tokenizers", "safetensors")
_USAGE = "RAY_USAGE_STATS_ENABLED"


class OnRay(Generic[Task, Answer]):
    """Actors do the tasks, each with one thread; use in a ``with`` block.

    ``address`` may end in ``?gpus=0.5``, the share of a GPU that each actor gets; by default a
    whole one where the cluster has any.
    """

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
        self._set_up = pickle.dumps(PortableSetUp.of(set_up), protocol=5)
        self._address, self._gpus = read_address(address)
        self._actors, self._around = actors, ExitStack()

    def __enter__(self) -> OnRay[Task, Answer]:
        ray = self._ray
        usage = os.environ.get(_USAGE)
        os.environ[_USAGE] = "0"
        restore = partial(os.environ.__setitem__, _USAGE, usage or "")
        self._around.callback(restore if usage is not None else partial(os.environ.pop, _USAGE))
        for name in ("ray", "ray.data"):  # what goes wrong is told by us
            logger = logging.getLogger(name)
            self._around.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        if not ray.is_initialized():
            options = {} if self._address != LOCAL else {"num_cpus": self._actors}
            options |= {"include_dashboard": False} if self._address == LOCAL else {}
            try:
                ray.init(self._address, log_to_driver=False, logging_level="CRITICAL", **options)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                self._around.close()
                raise AttnvizError(
                    f"cannot start or reach Ray at {self._address}: {' '.join(str(error).split())}"
                ) from None
            self._around.callback(ray.shutdown)
        return self

    def __exit__(self, *error: object) -> None:
        """End the Ray that was started, or the connection to the cluster; all else is as before."""
        self._around.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer, in order."""
        ray, waiting = self._ray, iter(tasks)
        gpus = self._gpus or float(ray.cluster_resources().get("GPU", 0) > 0)
        room = self._room(ray.cluster_resources(), gpus)
        if not room:
            resource = f"{gpus:g} of a GPU" if gpus else "CPU"
            raise AttnvizError(f"Ray at {self._address} has no {resource} for an actor")
        limit = self._actors or room
        ahead = max(AHEAD, 4 * limit)
        first = list(islice(waiting, ahead))
        if not first:
            return
        limit = max(1, min(limit, len(first)))
        least = max(1, min(limit, self._room(ray.available_resources(), gpus)))
        desk = ray.remote(num_cpus=0)(_Desk).remote()
        self._around.callback(ray.kill, desk)  # where nobody takes all answers
        try:
            yield from self._streamed(desk, chain(first, waiting), ahead, limit, least, gpus)
        finally:
            if ray.is_initialized():  # the answers may be given up behind the block
                ray.kill(desk)

    def _streamed(
        self, desk: Any, tasks: Iterable[Task], ahead: int, limit: int, least: int, gpus: float
    ) -> Iterator[tuple[Task, Answer | WorkerFailure]]:
        """Every task with its answer; ``ahead`` are with Ray, unless no more come.

        Of one Ray Data would wait for the next before it gave the answer.
        """
        waiting, out, answered = iter(tasks), deque[Task](), 0

        def bring(number: int) -> None:
            for task in islice(waiting, number):
                out.append(task)
                self._ray.get(desk.bring.remote(pickle.dumps(task, protocol=5), answered))
            if len(out) < ahead:
                self._ray.get(desk.bring.remote(None, answered))

        bring(ahead)
        for row in self._answers(desk, limit, least, gpus):
            while answered < row["number"]:
                answered += 1
                yield out.popleft(), _LOST
            went_well, answer = pickle.loads(row["answer"])
            if not went_well:
                raise answer
            answered += 1
            yield out.popleft(), answer
            bring(ahead - len(out))
        if next(waiting, None) is not None:
            raise AttnvizError("Ray ended before all was done; is a machine of it gone?")
        for task in out:
            yield task, _LOST

    def _room(self, resources: Mapping[str, float], gpus: float) -> int:
        """Actors that there is room for."""
        if gpus:
            total = resources.get("GPU", 0)
            return int(total * int(1 / gpus + 1e-9) if gpus < 1 else total / gpus)
        return int(resources.get("CPU", 1))

    def _answers(self, desk: Any, limit: int, least: int, gpus: float) -> Iterator[dict[str, Any]]:
        """Rows of what the actors answered; each block is one row, so that a lost one is one."""
        data = self._ray.data
        kind = data.DataContext
        current = kind.get_current()
        context = copy.deepcopy(current)
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.max_errored_blocks = -1  # it would give up on all of them
        context.target_max_block_size = 1
        kind._set_current(context)
        try:
            answers = data.from_items([0]).map_batches(
                _handed_on, fn_args=(desk,), batch_size=None, num_cpus=0
            ).map_batches(
                _Actor, batch_size=1, num_cpus=1, num_gpus=gpus or None,
                fn_constructor_args=(self._set_up, desk, _versions()),
                compute=data.ActorPoolStrategy(min_size=least, max_size=limit),
            )  # fmt: skip
        finally:
            kind._set_current(current)  # a dataset keeps the one that it was made with
        yield from answers.iter_rows()


def read_address(text: str) -> tuple[str, float]:
    """Read where Ray is, and the share of a GPU that each actor gets; 0 where none is said."""
    address, _, query = text.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    with suppress(ValueError):
        gpus = float(options.pop("gpus", 0))
        if not options and (query == "" or 1e-4 <= gpus <= 1 or (gpus > 1 and gpus.is_integer())):
            return address or LOCAL, gpus
    raise UsageError("{} takes an address, and behind it ?gpus=0.5, ?gpus=2 or the like, not {!r}",
                     Setting("ray"), text)  # fmt: skip


def _versions() -> dict[str, str]:
    """Of the libraries that compute."""
    versions = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name).partition("+")[0]  # built for a CPU or for CUDA
    return versions


_LOST = WorkerFailure(f"{ATTEMPTS} actors crashed on it; was there enough memory?")


class _Desk:
    """Tasks that were brought and are not yet fetched, and how often each was begun."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()
        self._tasks: dict[int, bytes | None] = {}
        self._brought, self._more = 0, asyncio.Condition()

    async def bring(self, task: bytes | None, answered: int) -> None:
        """Put one more behind the others; None for the end. So many are answered."""
        async with self._more:
            self._tasks[self._brought] = task
            self._brought += 1
            for number in [number for number in self._tasks if number < answered]:
                del self._tasks[number]
            self._more.notify_all()

    async def fetch(self, number: int) -> bytes | None:
        """Get a task, once it is there; nothing where it is answered, and all are asked anew."""
        async with self._more:
            await self._more.wait_for(lambda: number < self._brought)
            return self._tasks.get(number, b"")

    async def again(self, number: int) -> int:
        """Count one more time that a task is begun; how often it is now."""
        self._times[number] += 1
        return self._times[number]


def _handed_on(batch: Any, desk: Any) -> Iterator[dict[str, Any]]:
    """Every task that is brought, as a row."""
    import ray

    for number in count():
        task = ray.get(desk.fetch.remote(number))
        if task is None:
            return
        yield {"number": [number], "task": [task]}


class _Actor:
    """Loads what it needs once, and then does tasks."""

    def __init__(self, set_up: bytes, desk: Any, versions: Mapping[str, str]) -> None:
        import ray
        import torch

        torch.set_num_threads(1)
        self._desk, self._get, self._fault = desk, ray.get, None
        local = _versions()
        wrong = [f"{name} {local.get(name, 'missing')} and not {required}"
                 for name, required in versions.items() if local.get(name) != required]  # fmt: skip
        try:
            if wrong:
                raise AttnvizError(
                    f"a machine of Ray's has {', '.join(wrong)}; install the same versions there"
                )
            self._do = pickle.loads(set_up)()
        except AttnvizError as error:
            self._fault = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Rows with tasks to rows with answers, or with the errors of our own that came instead."""
        pairs = zip(batch["number"], batch["task"], strict=True)
        answers = [self._answer(int(number), task) for number, task in pairs]
        pickled = [pickle.dumps(answer, protocol=5) for answer in answers]
        return {"number": batch["number"], "answer": pickled}

    def _answer(self, number: int, task: bytes) -> tuple[bool, Any]:
        """Whether a task went well, and its answer or error."""
        if self._fault is not None:
            return False, self._fault
        if self._get(self._desk.again.remote(number)) > ATTEMPTS:
            return True, _LOST
        try:
            return True, self._do(pickle.loads(task))
        except AttnvizError as error:
            return False, error
        except Exception as error:  # a row that is lost would end the stream
            return True, WorkerFailure(
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            )
