"""Progress on standard error: a bar over texts, or one for each of several stages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from attnviz.cli import console
from attnviz.cli.logged import Log
from attnviz.errors import AttnvizError


class TextsBar:
    """A bar over many texts, which says what cannot be used; in a log a line now and then.

    ``columns``: of the bar, behind how many texts are done; ``fields`` of them at the start;
    ``count`` says about how many texts will come.
    """

    def __init__(
        self, unit: str, columns: Sequence[str], count: Callable[[], int | None], *, quiet: bool,
        **fields: Any,
    ) -> None:  # fmt: skip
        self._columns, self._fields, self._total = (unit, *columns), fields, None
        with suppress(AttnvizError):  # the run itself says what is wrong
            self._total = None if quiet else count()
        self._shown, self._log = not quiet and sys.stderr.isatty(), Log(quiet)
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            unit, rate, *more = map(TextColumn, self._columns)
            self._progress = Progress(
                unit, BarColumn(), rate, TimeRemainingColumn(), *more,
                console=console.stderr(), transient=True,
            )  # fmt: skip
            self._task = self._progress.add_task("", total=self._total, **self._fields)
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _say(self, message: str) -> None:
        text = console.one_line(message)
        if self._progress is not None:
            self._progress.console.print(f"attnviz: {text}", soft_wrap=True)
        else:
            sys.stderr.write(f"attnviz: {text}\n")


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
