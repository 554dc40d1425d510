"""One run over many texts, from beginning to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

from attnviz.core.source import Source
from attnviz.corpus import running
from attnviz.corpus.executors import Stopping, WorkerFailure
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, UsageError
from attnviz.features.profile import saved
from attnviz.features.profile.state import About, Run, State
from attnviz.features.profile.tally import Tally
from attnviz.features.profile.tasks import ProfileTask, tasks
from attnviz.features.profile.work import Inside, Part, Worker, part_of

SAVE_EVERY = 30.0  # seconds between two writings of the state file, or more where one takes long
_SAVING = 0.05  # the share of the time that writing it may take


@dataclass(slots=True)
class Progress:
    """How far a run has come, for those who wait."""

    texts: int  # how many are done, with those of earlier runs; ``tokens`` of this run alone
    tokens: int
    bad: tuple[InvalidRecord, ...]  # what could not be used, as far as it is new
    seconds: float  # since the first text
    # how much is done of the long texts that run now, as a share; None between texts
    inside: float | None = None


class ProfileInterrupted(KeyboardInterrupt):
    """Somebody stopped the run; the state file, if there is one, has what was done."""

    def __init__(self, texts: int) -> None:
        super().__init__("interrupted")
        self.texts = texts  # how many were done


def executor(
    load: Callable[[], Source],
    source: Source,
    about: About,
    jobs: int | None,
    ray: str | None,
    inside: Inside | None = None,
    *,
    effects: bool = True,
) -> AbstractContextManager[running.Executor[ProfileTask, Part]]:
    """Return this process, or several, or actors on Ray."""
    worker = partial(Worker, settings=about.settings, seed=about.seed, effects=effects)
    if ray is not None:
        return running.Elsewhere(running.OnRay(running.SetUp(load, worker), ray, jobs), source)
    if (jobs or 1) == 1:
        worker = partial(worker, inside=inside)
    return running.executor(worker, source, load, jobs or 1)


def run(
    texts: Iterable[Text | InvalidRecord],
    names: tuple[str, ...],
    about: About,
    executor: AbstractContextManager[running.Executor[ProfileTask, Part]],
    *,
    out: Path | None = None,
    strict: bool = False,
    progress: Callable[[Progress], None] = lambda update: None,
) -> State:
    """Run texts and add up what they say."""
    state = _begin(out, about, names)
    todo = _left(tasks(texts, about.settings.segment), state, out)
    saved_at = started = time.monotonic()
    pause, tokens = SAVE_EVERY, state.tally.tokens
    with Stopping() as stop:
        try:
            with executor as workers:
                for task, answer in workers.run(takewhile(lambda _: not stop.asked(), todo)):
                    part = (
                        _lost(task, answer, about) if isinstance(answer, WorkerFailure) else answer
                    )
                    if strict and part.bad:
                        raise InputError(f"{part.bad[0].place}: {part.bad[0].reason}")
                    state.add(task, part)
                    now = time.monotonic()
                    fresh_tokens = state.tally.tokens - tokens
                    progress(Progress(state.tally.texts, fresh_tokens, part.bad, now - started))
                    if out is not None and now - saved_at > pause:
                        saved.write(out, state)
                        saved_at = time.monotonic()
                        pause = max(SAVE_EVERY, (saved_at - now) / _SAVING)
                    if stop.asked():
                        break
        except BaseException:
            if out is not None and state.runs[0].tasks:
                saved.write(out, state)
            raise
        if not stop.asked():
            state.finish()
        if out is not None:
            saved.write(out, state)
        if stop.asked():
            raise ProfileInterrupted(state.tally.texts)
    return state


def _begin(out: Path | None, about: About, names: tuple[str, ...]) -> State:
    """Return the state to go on from: of the file, if it is there."""
    if out is None or not out.exists():
        return State.begin(about, names)
    state = saved.read(out)
    if len(state.runs) > 1:
        raise UsageError(f"{out} was merged from {len(state.runs)} profiles; name another file")
    mine, theirs = about.comparable(), state.about.comparable()
    for name, value in mine.items():
        if value != theirs[name]:
            raise UsageError(
                f"{out} has {name} {theirs[name]}, not {value}; name another file, or delete it"
            )
    return state


def _left(planned: Iterator[ProfileTask], state: State, out: Path | None) -> Iterator[ProfileTask]:
    """Yield the tasks that are not done; checks on the way that the done ones were the same."""
    (run,) = state.runs
    finished_tasks, digest, finished = run.tasks, run.digest, run.finished
    repeated = Run(run.names)
    for task in planned:
        if repeated.tasks < finished_tasks:
            repeated.follow(task)
        elif finished or repeated.digest != digest:
            break
        else:
            yield task
    else:
        if repeated.digest == digest:
            return
    raise InputError(
        f"{out} was made from other texts, or they have changed; name another file, or delete it"
    )


def _lost(task: ProfileTask, lost: WorkerFailure, about: About) -> Part:
    """Return what is left of a task that no process survived."""
    bad = [InvalidRecord(piece.text.number, piece.text.place, lost.reason) for piece in task.pieces]
    return part_of(Tally(about.layout), [], [*task.bad, *bad])
