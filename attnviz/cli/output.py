"""What a command does with its result: print it, as JSON or CSV or for people, and write files."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from attnviz import files
from attnviz.cli import console
from attnviz.cli.console import Stages
from attnviz.cli.options import Quiet
from attnviz.core.settings import Progress, Settings, like, number_or, setting
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.drawing.renderable import Renderable
    from attnviz.web.written import Page


OUTPUT = "Output"
_ALL = "--top all says more"
ROWS = 10
"""Of a table that ranks, where nothing is said."""


@dataclasses.dataclass(frozen=True)
class FilesOutput(Quiet):
    """Which files a result goes to."""

    out: tuple[Path, ...] | None = setting(
        None,
        "Also save the result: .png, .svg, .pdf, .csv, .parquet, .json or .html. The suffix says "
        "which form, and not every result has a page (.html). A folder takes the page, and an "
        "index of its pages; repeatable.",
        short="o",
        panel=OUTPUT,
        common=True,
    )

    @property
    def forms(self) -> frozenset[str]:
        """What is asked for: ``page``, ``graph``, ``figure``, ...; a folder is for a page."""
        from attnviz.drawing.renderable import FORMS

        paths = self.out or ()
        return frozenset(
            "page" if isdir(path) else FORMS.get(path.suffix.lower(), "") for path in paths
        )

    def check_written(self, *kinds: type[Renderable]) -> None:
        """Refuse what could not be written, before any work is done."""
        for out in self.out or ():
            paged = bool(kinds) and all(".html" in kind.suffixes() for kind in kinds)
            path = out / "index.html" if paged and isdir(out) else out
            for kind in kinds:
                kind.check_suffix(path)
            files.check_writable(path)

    def check_pictures(self, *suffixes: str) -> None:
        """Save what has no form but a picture, and ``suffixes``."""
        from attnviz.drawing.renderable import picture_suffixes

        for path in self.out or ():
            files.check_suffix(path, (*picture_suffixes(), *suffixes))
        self.check_written()

    def save(self, result: Any, **figure: Any) -> None:
        """Write the files that were asked for; ``figure`` is of pictures."""
        for path in self.out or ():
            with console.noting(self.quiet):
                if isdir(path):  # its page, with an index of the pages there
                    from attnviz.web.folder import keep

                    keep(path, result.command.split()[0], result.save)
                else:
                    result.save(path, **figure)

    def say_written(self) -> None:
        """Name the files that were written."""
        if not self.quiet:
            for path in self.out or ():
                say = console.wrote_page if isdir(path) else console.wrote
                say(path)


@dataclasses.dataclass(frozen=True)
class Output(FilesOutput, panel=OUTPUT):
    """Where a result goes."""

    json: bool = setting(False, "Print JSON.", common=True)
    csv: bool = setting(False, "Print CSV.", common=True)

    def check(self) -> None:
        """Raise UsageError for JSON and CSV at once."""
        if self.json and self.csv:
            raise UsageError("--json and --csv exclude each other; give one of them")

    @property
    def machine(self) -> bool:
        """Whether standard output is for programs."""
        return self.json or self.csv

    @contextlib.contextmanager
    def running(self, *kinds: type[Renderable]) -> Iterator[Progress]:
        """Work that ends in a result of one of some kinds: what it tells is drawn as bars."""
        self.check_written(*kinds)
        with Stages(self.quiet) as stages:
            yield stages.show

    def deliver(
        self, result: Any, figure: Mapping[str, Any] | None = None, *parts: Any, **options: Any
    ) -> None:
        """Write the files that were asked for, then print."""
        self.save(result, **(figure or {}))
        self.show(result, *parts, **options)

    def show(
        self, result: Any, *parts: Any, everything: bool | None = None, **options: Any
    ) -> None:
        """Print a result, its notes, and what was written.

        Where a terminal shows a result in short, or ``everything``, notes follow it.
        """
        if self.machine:
            console.put(result.to_json() if self.json else result.to_csv())
            return
        notes: tuple[str, ...] = result.notes
        if everything is not None:
            options["everything"] = everything
            if not everything:
                remaining = f"{len(notes) - 1} more: --top all" if len(notes) > 1 else _ALL
                notes = (f"{notes[0]} ({remaining})",) if notes else (_ALL,)
        screen = console.stdout()
        for part in result.for_terminal(*parts, **options):
            screen.print(part)
        console.note(notes, self.quiet)
        self.say_written()


@dataclasses.dataclass(frozen=True)
class TableOptions(Settings):
    """How much of a table stands on the terminal."""

    top: int | Literal["all"] | None = setting(
        None,
        "List the first N rows of the table. Or all of them.",
        panel=OUTPUT,
        metavar="N|all",
        parser=number_or("all"),
        least=1,
        common=True,
    )

    @property
    def everything(self) -> bool:
        """Whether all that there is to say is shown, and not what fits a screen."""
        return self.top == "all"

    @property
    def first(self) -> int | None:
        """How many rows were asked for; None where the table knows best."""
        return sys.maxsize if self.top == "all" else self.top

    @property
    def rows(self) -> int:
        """How many rows of a ranking are listed."""
        return self.first or ROWS


@dataclasses.dataclass(frozen=True)
class SortOptions(TableOptions, panel=OUTPUT):
    """Which heads a table lists, and in which order."""

    role: str | None = setting(
        None,
        "List the heads with this role: induction, or obj from {evidence}.",
        metavar="ROLE",
        common=True,
    )
    sort: str = setting(
        "layer",
        "Sort the table by layer, role, a score, or a relation from {evidence}.",
        metavar="BY",
        common=True,
    )
    top: int | Literal["all"] | None = like(
        TableOptions,
        "top",
        help="List the first N rows of the table. Or all, also heads that do nothing.",
    )


_STARTS = 5.0  # seconds after which a browser that is still starting counts as there


@dataclass(frozen=True)
class PageOutput(Quiet):
    """Where a page goes."""

    out: tuple[Path, ...] | None = like(
        FilesOutput, "out", help="The .html file; without it a temporary one opens in the browser."
    )

    def check_page(self) -> None:
        """Before any work: UsageError or OutputError where the page cannot be written."""
        from attnviz.web.folder import INDEXES
        from attnviz.web.written import page_path

        for out in self.out or ():
            path = out / INDEXES[0] if isdir(out) else out
            page_path(path)
            files.check_writable(path)

    def deliver(self, page: Page | Renderable, *, show: bool = True) -> None:
        """Write the page, or a temporary file of it that the browser is asked to open."""
        from attnviz.web.folder import keep

        for path in self.out or (_temporary(),):
            saved = keep(path, page.command, page.save) if isdir(path) else page.save(path)
            if not self.quiet or self.out is None:
                console.wrote(saved)
            if self.out is None and show and not open_page(saved):
                console.note(["no browser could be opened; open the file yourself"], self.quiet)


@dataclass(frozen=True)
class SpaceOutput(PageOutput):
    """Where a page goes, which may also be a Space."""

    space: Path | None = setting(
        None,
        "Write the page as a static Space of Hugging Face: index.html, and README.md with the "
        "header and a card.",
        metavar="FOLDER",
        panel=OUTPUT,
    )

    def check_page(self) -> None:
        """Before any work: also OutputError for a folder with files of something else."""
        super().check_page()
        check_space(self)

    def deliver(self, page: Page | Renderable, *, show: bool = True) -> None:
        """Write the page, and the Space."""
        if self.out is not None or self.space is None:
            super().deliver(page, show=show)
        write_space(self, page)


def check_space(output: Any) -> None:
    """Refuse the folder that ``output.space`` names where no Space can be written to."""
    from attnviz.web import folder

    if output.space is not None:
        folder.check_space(output.space)


def write_space(output: Any, page: Page | Renderable) -> None:
    """Write the Space that was asked for, if any, and say how it is published."""
    from attnviz.models.demo import DEMOS
    from attnviz.web import folder

    if output.space is None:
        return
    folder.space(output.space, page.command, page.save, dict.fromkeys(DEMOS, "apache-2.0"))
    if not output.quiet and not getattr(output, "machine", False):
        console.wrote(output.space)
        console.note([f"publish it: hf upload NAME/SPACE {output.space} --repo-type space"], False)


def open_page(page: Path) -> bool:
    """Whether a browser took the page; what its starter says is kept from the terminal."""
    import subprocess

    if sys.platform == "win32":
        return bool(typer.launch(page.as_uri()) == 0)
    starter = "open" if sys.platform == "darwin" else "xdg-open"
    try:
        started = subprocess.Popen(
            [starter, page.as_uri()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return started.wait(_STARTS) == 0
    except subprocess.TimeoutExpired:  # it has become the browser
        return True
    except OSError:
        return False


def _temporary() -> Path:
    """Return a new file that stays after the program ends, for the browser to read."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="attnviz-", suffix=".html", delete=False) as file:
        return Path(file.name)
