"""How an export shows what it does: a bar on a terminal, bad inputs, the closing line."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnviz.cli import console, option_names
from attnviz.cli.logged import Log, pace
from attnviz.drawing.labels import counted
from attnviz.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.features.export.run import Exported

_EVERY = 0.1
"""Seconds between two drawings of the bar."""


class ExportBar:
    """Progress on standard error: sentences, pictures, rate, time left."""

    def __init__(
        self, inputs: Sequence[str], *, recorded: bool, limit: int | None, quiet: bool
    ) -> None:
        self._inputs, self._recorded, self._limit = inputs, recorded, limit
        self._shown = not quiet and sys.stderr.isatty()
        self._log, self._all = Log(quiet), None if quiet else self._total()
        self._progress: Any = None
        self._told, self._drawn = 0, 0.0
        self._task: Any = None

    def __enter__(self) -> ExportBar:
        if self._shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.completed} sentences"),
                BarColumn(),
                TextColumn("{task.fields[pictures]} pictures, {task.fields[rate]:.0f}/s"),
                TimeRemainingColumn(),
                console=console.stderr(),
                transient=True,
            )
            self._task = self._progress.add_task("", total=self._all, pictures=0, rate=0.0)
            self._progress.start()
            self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, result: Exported) -> None:
        """Draw what is done, and report inputs that could not be used."""
        for bad in result.bad[self._told :]:
            self._told += 1
            text = console.one_line(f"{bad.place}: {option_names.words(bad.reason)}; skipped")
            if self._progress is not None:
                self._progress.console.print(f"attnviz: {text}", soft_wrap=True)
            else:
                sys.stderr.write(f"attnviz: {text}\n")
        self._log.tell("inputs", result.inputs + len(result.bad), self._all)
        now = time.perf_counter()
        if self._progress is not None and now - self._drawn > _EVERY:
            self._drawn = now
            self._progress.update(
                self._task,
                completed=result.inputs + len(result.bad),
                pictures=result.pictures + result.kept,
                rate=result.pictures / max(now - self._start, 1e-9),
            )

    def closing(self, result: Exported) -> str:
        """What was done, in one line."""
        rate = result.pictures / max(result.seconds, 1e-9)
        parts = [f"wrote {counted(result.pictures, 'file')} to {result.out}"]
        parts.append(f"{counted(result.inputs, 'input')} in {result.seconds:.1f} s")
        parts.append(pace(rate))
        if result.kept:
            parts.append(f"{result.kept:,} were there already")
        parts.append(f"{len(result.bad):,} skipped")
        return " · ".join(filter(None, [*parts, result.model]))

    def _total(self) -> int | None:
        """About how many inputs will come."""
        from attnviz.corpus import texts

        try:
            known = None if self._recorded else texts.count(texts.resolve(self._inputs))
        except AttnvizError:
            return None  # the export itself says what is wrong
        if known is None:
            return self._limit
        return min(known, self._limit or known)
