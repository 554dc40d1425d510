"""What a result can become: printed, a table, a picture, a page; as files, and in notebooks.

The forms of a result are the modules beside its own, each with one function: ``terminal.parts``,
``tables.rows``, ``figure.draw``, ``page.page``, ``graph.dot``, ``markdown.markdown``,
``finding.finding`` for what it says of every head, and ``finding.figures`` for what two runs are
compared by. A ``description.py`` may have these functions in place of such modules, and ``listing``
in place of rows (:mod:`attnviz.drawing.description`). A form that a feature's folder does not have
is one that its result does not have; nothing else lists them.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attnviz import files
from attnviz.core.provenance import Made, called_by, saying
from attnviz.core.record import Record
from attnviz.core.result import Finding
from attnviz.drawing import paper
from attnviz.drawing.tables import as_csv, dataset, frame, parquet, polars_frame
from attnviz.errors import PackageError, UsageError, encodable, named_packages, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.result import Figures

_WIDTH = 100  # columns of a printed result

FORMS = {
    ".json": "",
    ".csv": "tables",
    ".parquet": "tables",
    ".png": "figure",
    ".svg": "figure",
    ".pdf": "figure",
    ".html": "page",
    ".htm": "page",
    ".dot": "graph",
    ".md": "markdown",
}
"""The module that writes each kind of file; JSON is every record's own."""

DESCRIBED = {
    "terminal": ("parts",),
    "tables": ("listing", "rows"),
    "finding": ("finding", "figures"),
    "markdown": ("markdown",),
    "graph": ("dot",),
    "figure": ("draw",),
}
"""The forms that a ``description.py`` may have in their place, each by one of its functions."""


class _Drawn(ABC):
    """What has a picture, which notebooks show, with words for who cannot see it."""

    def figure(self, **options: Any) -> Figure:
        """Return the :class:`matplotlib.figure.Figure`; UsageError where there is none."""
        return self._drawn("figure", options)

    def described(self) -> str:
        """Return what its picture shows, in words, for those who cannot see it."""
        return repr(self)

    @abstractmethod
    def to_bytes(self, suffix: str, **options: Any) -> bytes:
        """Return what a file of that suffix holds, ``.png`` or ``png``."""

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write it in the form that the file's suffix means."""
        path = Path(path)
        self.check_suffix(path)
        files.write(path, self.to_bytes(path.suffix, **options))
        return path

    @classmethod
    def suffixes(cls) -> tuple[str, ...]:
        """Of the files that it can be written to."""
        return picture_suffixes()

    @classmethod
    def check_suffix(cls, path: Path) -> None:
        """UsageError for a file that a result of this kind cannot be written to."""
        files.check_suffix(path, cls.suffixes())
        if path.suffix.lower() == ".parquet":
            require("pyarrow", path.name)

    @abstractmethod
    def _drawn(self, format: str, options: dict[str, Any]) -> Any:
        """Return its figure, or the bytes of one, by the name of the format."""

    def _picture_png(self) -> bytes | None:
        return self.to_bytes("png")

    def _repr_html_(self) -> str | None:
        from attnviz.drawing import html

        with suppress(PackageError):  # a notebook prints it then
            if (png := self._picture_png()) is not None:
                return html.picture(png, self.described())
        return None


class Renderable(_Drawn, Record):
    """A record that prints, draws and saves itself, in whichever forms its feature has."""

    def __str__(self) -> str:
        """As the command line prints it, without colours."""
        terminal = self._form("terminal")
        return repr(self) if terminal is None else printed(*self.for_terminal())

    def for_terminal(self, *selection: Any, **options: Any) -> Iterable[Any]:
        """Return what a terminal shows, for rich to print; arguments as for ``terminal.parts``."""
        parts: Iterable[Any] = self._needed("terminal", "table").parts(self, *selection, **options)
        origin = paper.origin_of(self)
        if not origin:
            return parts
        from attnviz.drawing.terminal import Line

        return [*parts, Line(origin, "dim")]

    def terminal_options(self) -> frozenset[str]:
        """Return the names of what :meth:`for_terminal` takes."""
        return frozenset(signature(self._needed("terminal", "table").parts).parameters)

    def to_records(self) -> list[dict[str, Any]]:
        """Give the figures as a list of rows, None for what is not known; the columns are CSV's."""
        return self._listed()[0]

    def to_pandas(self) -> Any:
        """Return the same as a ``pandas.DataFrame``; UsageError where pandas is not installed."""
        return frame(self.to_records())

    def to_polars(self) -> Any:
        """Return the same as a ``polars.DataFrame``; UsageError where polars is not installed."""
        return polars_frame(self.to_records())

    def to_xarray(self) -> Any:
        """Return an ``xarray.Dataset`` with a dimension ``row``; UsageError without xarray.

        Names, flags and positions are coordinates, and what was measured are variables, so that
        ``.set_index(row=["layer", "index"]).unstack("row")`` gives them the model's dimensions.
        """
        return dataset(self.to_records())

    def to_csv(self, made: Made | None = None) -> str:
        """Return the same as CSV text, under a line with the names of the columns."""
        return as_csv(*self._listed(), made)

    def to_markdown(self, **options: Any) -> str:
        """As Markdown, for a comment on a pull request; UsageError where it has none."""
        return self._needed("markdown", "Markdown").markdown(self, **options)

    @named_packages()
    def _drawn(self, format: str, options: dict[str, Any]) -> Any:
        with paper.using(options) as kwargs, paper.below(paper.origin_of(self)), saying(self.made):
            return self._needed("figure", "picture").draw(self, format, **kwargs)

    @named_packages()
    def page(self) -> bytes:
        """One offline HTML page; UsageError where there is none."""
        return self._needed("page", "page").page(self)

    def to_bytes(self, suffix: str, **options: Any) -> bytes:
        """Return what :meth:`save` writes into a file of that suffix, ``.png`` or ``png``."""
        suffix = "." + suffix.lower().removeprefix(".")
        self.check_suffix(Path(f"x{suffix}"))
        form = FORMS[suffix]
        if not form:
            return self.to_json(self.made).encode()
        if suffix == ".parquet":
            return parquet(*self._listed(), self.made)
        if form == "tables":
            return encodable(self.to_csv(self.made)).encode()
        if form == "page":
            with paper.using(options):
                return self.page()
        if form == "markdown":
            markdown = f"{self.to_markdown().rstrip()}\n\n{hidden(self.made.line())}\n"
            return encodable(markdown).encode()
        if form == "graph":
            dot: str = self._needed("graph", "graph").dot(self)
            return encodable(f"{dot}// {self.made.line()}\n").encode()
        return bytes(self._drawn(suffix.removeprefix("."), options))

    @classmethod
    def suffixes(cls) -> tuple[str, ...]:
        """Of the files that it can be written to."""
        return tuple(end for end, form in FORMS.items() if not form or _beside(cls, form))

    def finding(self, name: str) -> Finding | None:
        """Return what it says of every head, to stand beside them elsewhere; None for nothing."""
        say = getattr(self._form("finding"), "finding", None)
        return None if say is None else say(self, name)

    def compared(self) -> Figures:
        """Its figures by head, to compare with another run's; UsageError where it has none."""
        figures_of = getattr(self._form("finding"), "figures", None)
        if figures_of is None:
            raise UsageError(f"{type(self).__name__} has no figures of heads to compare")
        return figures_of(self)

    def _picture_png(self) -> bytes | None:
        return None if self._form("figure") is None else self.to_bytes("png")

    def _listed(self) -> tuple[list[dict[str, Any]], Sequence[str]]:
        """Write its rows and name their columns; UsageError where it has none."""
        tables = self._needed("tables", "rows")
        if _defines(tables, "listing"):
            listing = tables.listing(self)
            return listing.rows(), listing.names()
        return tables.rows(self), getattr(tables, "COLUMNS", ())

    @named_packages()
    def _form(self, name: str) -> ModuleType | None:
        return import_module(_beside(type(self), name)) if _beside(type(self), name) else None

    def _needed(self, name: str, noun: str) -> ModuleType:
        form = self._form(name)
        if form is None:
            raise UsageError(f"{type(self).__name__} has no {noun}")
        return form


class Figured(_Drawn):
    """What is a picture and nothing else: notebooks show it, with words for who cannot see it."""

    @property
    def made(self) -> Made:
        """What makes files of it now: model, version, command and day."""
        capture = getattr(self, "capture", None)
        models = () if capture is None else (capture.source.model,)
        return Made.now(*models, identity=getattr(self, "identity", None), command=called_by(self))

    def _draw(self, format: str) -> Any:
        """Return the picture in ``png``, ``svg`` or ``pdf``, or as a ``figure``."""
        raise TypeError(f"{type(self).__name__} has no picture")

    def to_bytes(self, suffix: str, **options: Any) -> bytes:
        """Return what :meth:`save` writes into a file of that suffix, ``.png`` or ``png``."""
        return bytes(self._drawn(picture_format(Path(f"x.{suffix.removeprefix('.')}")), options))

    @named_packages()
    def _drawn(self, format: str, options: dict[str, Any]) -> Any:
        with paper.using(options) as kwargs, saying(self.made):
            if kwargs:
                names = ", ".join(sorted(paper.NAMES))
                raise UsageError(f"unknown option {min(kwargs)!r}; choose from {names}")
            return self._draw(format)


def hidden(line: str) -> str:
    """Return a comment of Markdown, which none of its own signs can end."""
    return f"<!-- {line.replace('-' * 2, '–').replace('>', '›')} -->"


def picture_suffixes() -> tuple[str, ...]:
    """Return the suffixes of pictures."""
    return tuple(end for end, form in FORMS.items() if form == "figure")


def picture_format(path: Path) -> str:
    """Return the format that a file's suffix means; UsageError for one that cannot be drawn."""
    files.check_suffix(path, picture_suffixes())
    return path.suffix.lower().removeprefix(".")


def _beside(cls: type, name: str) -> str:
    """Name the module of a form beside a class's own, or its description; empty for neither."""
    package = cls.__module__.rpartition(".")[0]
    if find_spec(f"{package}.{name}") is not None:
        return f"{package}.{name}"
    full = f"{package}.description"
    if name not in DESCRIBED or find_spec(full) is None:
        return ""
    module = import_module(full)
    return full if any(_defines(module, function) for function in DESCRIBED[name]) else ""


def _defines(module: ModuleType, name: str) -> bool:
    """Tell whether a module has a function of its own of that name, and not an imported one."""
    return getattr(getattr(module, name, None), "__module__", None) == module.__name__


def printed(*parts: Any) -> str:
    """Return what the command line prints, as text of a fixed width without colours."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=_WIDTH, color_system=None, emoji=False, markup=False, force_jupyter=False
    )  # rich would show it in a notebook at once, and print nothing
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
