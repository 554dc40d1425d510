"""How a run over many texts shows what it does: a bar on a terminal, and bad texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnviz.cli import console, option_names
from attnviz.cli.logged import Log
from attnviz.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.features.profile.run import Progress

_NAMED = 20
"""So many bad texts are named; more are only counted."""


class CorpusBar:
    """Progress on standard error: texts, tokens a second, time left."""

    def __init__(
        self,
        inputs: Sequence[str],
        whole: bool,
        limit: int | None,
        sample: int | None,
        *,
        quiet: bool,
    ) -> None:
        self._inputs, self._whole, self._limit, self._sample = inputs, whole, limit, sample
        self._shown = not quiet and sys.stderr.isatty()
        self._log, self._all = Log(quiet), None if quiet else self._total()
        self._progress: Any = None
        self._task: Any = None
        self._told = self._done = 0

    def __enter__(self) -> CorpusBar:
        if self._shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.completed:,.0f} texts"),
                BarColumn(),
                TextColumn("{task.fields[rate]:,.0f} tokens/s"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[inside]}"),
                console=console.stderr(),
                transient=True,
            )
            self._task = self._progress.add_task("", total=self._all, rate=0.0, inside="")
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, done: Progress) -> None:
        """Draw what is done, and report texts that could not be used."""
        if done.inside is not None:
            self._log.tell("% of a long text", int(100 * done.inside), 100)
            if self._progress is not None:
                said = f" {100 * done.inside:.0f} % of a long text" if done.inside < 1 else ""
                self._progress.update(
                    self._task, completed=self._done + min(done.inside, 0.999), inside=said
                )
            return
        for bad in done.bad:
            self._told += 1
            if self._told <= _NAMED:
                self._say(f"{bad.place}: {option_names.words(bad.reason)}; skipped")
            elif self._told == _NAMED + 1:
                self._say("more texts cannot be used; they are counted")
        self._log.tell("texts", done.texts, self._all)
        if self._progress is not None:
            rate = done.tokens / max(done.seconds, 1e-9)
            self._progress.update(self._task, completed=done.texts, rate=rate, inside="")
        self._done = done.texts

    def _say(self, message: str) -> None:
        text = console.one_line(message)
        if self._progress is not None:
            self._progress.console.print(f"attnviz: {text}", soft_wrap=True)
        else:
            sys.stderr.write(f"attnviz: {text}\n")

    def _total(self) -> int | None:
        """About how many texts will come."""
        from attnviz.features.profile.function import count

        try:
            return count(self._inputs, whole=self._whole, limit=self._limit, sample=self._sample)
        except AttnvizError:
            return None  # the run itself says what is wrong
