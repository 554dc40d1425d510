"""``attnviz profile``: what every head does over many texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnviz.captures.settings import Attaching
from attnviz.cli.console import IN_PART, Interrupted, TextsBar
from attnviz.cli.declared import changed, command
from attnviz.cli.options import FilesOptions, FreshOptions, texts_or_samples
from attnviz.cli.output import Output, SortOptions
from attnviz.core.settings import RUN, Settings, like, setting
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.profile.result import Profile, ProfileOptions

if TYPE_CHECKING:
    from attnviz.features.profile.run import Progress


STATE = ".profile"  # the suffix of states


def _check_page(out: Sequence[Path], select: str | None, files: Sequence[str]) -> None:
    """UsageError, before anything runs, for a page of no heads."""
    pages = [str(path) for path in out if path.suffix.lower() in (".html", ".htm") or path.is_dir()]
    if pages and select is None and not all(name.endswith(STATE) for name in files):
        raise UsageError(
            "{} would show heads row by row; name a few with {select}", pages[0], select="1.4, 3.0"
        )


def _effects_shown(output: Output, keeping: StateOptions) -> bool:
    """Whether something is written that has more of rows than the terminal and pictures show."""
    from attnviz.drawing.renderable import picture_suffixes

    files = (path.suffix.lower() for path in output.out or ())
    return output.machine or keeping.state is not None or not {*files} <= {*picture_suffixes()}


@dataclass(frozen=True)
class ProfileFiles(Settings):
    """The corpus."""

    files: tuple[str, ...] | None = like(
        FilesOptions,
        "files",
        default=None,
        help="Text (one text per line), .jsonl, .csv, .tsv or .parquet files. Also patterns, - for "
        "stdin; pictures or sounds, or a folder of them; or states of profiles, which are merged.",
    )


@dataclass(frozen=True)
class StateOptions(Settings):
    """What is kept of a run."""

    state: Path | None = setting(
        None,
        "Keep the run in this file. The same command resumes from it, attnviz show reads it, and "
        "profile FILE FILE merges several.",
        panel=RUN,
        common=True,
    )


@command
def profile(
    inputs: ProfileFiles,
    settings: ProfileOptions,
    attaching: Attaching,
    keeping: StateOptions,
    model: FreshOptions,
    table: SortOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Show what every head does over many texts, with 95 % intervals and what it looks at.

    [bold]Examples[/]

      attnviz profile

      attnviz profile sample_inputs/story.txt --whole -o story.png

      attnviz profile 'sample_inputs/*.txt' --limit 20 --state all.profile

      attnviz profile sample_inputs/english.txt --select 3.0 -o head-3.0.html
    """
    from attnviz.cli.listing import check_order, show_profile
    from attnviz.drawing.labels import counted
    from attnviz.features.profile import function
    from attnviz.features.profile.run import ProfileInterrupted

    output.check_written(Profile)
    check_order(table, attaching.evidence)
    files = texts_or_samples(inputs.files, output.quiet)
    _check_page(output.out or (), settings.select, files)
    if states := [name for name in files if name.endswith(STATE)]:
        if len(states) < len(files):
            raise UsageError(f"{states[0]} holds a profile, not texts; leave out other files")
        if extra := changed(model, settings, but=("stability",)):
            raise UsageError(f"profiles are merged as they are; leave out {', '.join(extra)}")
        result = function.merge_profiles(
            files, state=keeping.state, stability=settings.stability, attaching=attaching
        )
    else:
        bar = CorpusBar(files, settings, quiet=output.quiet)
        try:
            with bar:
                result = function.profile(
                    files,
                    state=keeping.state,
                    effects=_effects_shown(output, keeping),
                    progress=bar.show,
                    settings=settings,
                    attaching=attaching,
                    model=model.chosen(seed=settings.seed),
                )
        except ProfileInterrupted as stopped:
            progress = f"interrupted after {counted(stopped.texts, 'text')}; "
            if keeping.state is None:
                raise Interrupted(
                    f"{progress}none is kept; use --state to keep what has been done"
                ) from None
            raise Interrupted(
                f"{progress}{keeping.state} has them; the same command resumes from it"
            ) from None
    output.save(result, **paper.options())
    show_profile(result, table, output)
    if result.bad_count:
        raise typer.Exit(IN_PART)


class CorpusBar(TextsBar):
    """Progress on standard error: texts, tokens a second, time left."""

    def __init__(self, inputs: Sequence[str], settings: ProfileOptions, *, quiet: bool) -> None:
        from attnviz.features.profile.function import count

        total = partial(
            count, inputs, whole=settings.whole, limit=settings.limit, sample=settings.sample
        )
        columns = ("{task.fields[rate]:,.0f} tokens/s", "{task.fields[inside]}")
        super().__init__(
            "{task.completed:,.0f} texts", columns, total, quiet=quiet, cap=20, rate=0.0, inside=""
        )
        self._done = 0

    def show(self, update: Progress) -> None:
        """Draw what is done, and report texts that could not be used."""
        if update.inside is not None:
            self._log.tell("% of a long text", int(100 * update.inside), 100)
            inside = f" {100 * update.inside:.0f} % of a long text" if update.inside < 1 else ""
            self._draw(completed=self._done + min(update.inside, 0.999), inside=inside)
            return
        self.skipped(update.bad)
        rate = update.tokens / max(update.seconds, 1e-9)
        self.step("texts", update.texts, rate=rate, inside="")
        self._done = update.texts
