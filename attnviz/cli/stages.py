"""A progress bar on standard error for work in stages: what, how far, how long still."""

from __future__ import annotations

import sys
from typing import Any

from attnviz.cli import console
from attnviz.cli.logged import Log


class Stages:
    """A bar for each stage, one at a time; in a log a line now and then."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._log = Log(quiet)
        self._noting = console.noting(quiet)
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Stages:
        self._noting.__enter__()
        if self._shown:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            self._progress = Progress(
                "{task.description}",
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console.stderr(),
                transient=True,
            )
        return self

    def __exit__(self, *error: Any) -> None:
        self._noting.__exit__(*error)
        if self._progress is not None:
            self._progress.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """So much of a stage is done."""
        self._log.tell(f"({stage})", done, total)
        if self._progress is None:
            return
        self._progress.start()  # only now: until then a text may grow; again it does nothing
        if stage not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)
