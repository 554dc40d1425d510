"""One description of what a result lists: its columns, declared once for every form.

A feature's ``description.py`` says in :class:`Column` values what it has of every head (or source,
or relation), and which records there are. The terminal's table, CSV, data frames and Markdown
follow from them, with the same columns in the same order, and the ends of an interval are called
alike everywhere: ``share``, ``share_low``, ``share_high``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attnviz.core.heads import Head, Layout
from attnviz.core.result import Figures, Interval
from attnviz.drawing.tables import Row, spread, which_head

if TYPE_CHECKING:
    from rich.table import Table

DASH = "–"  # of what is not known, for people


def percent(share: Interval, sign: str = "") -> str:
    """Return a share in percent, with a decimal where the interval knows it; a dash for none."""
    return DASH if share.value is None else f"{100 * share.value:{sign}.{_digits(share)}f}"


def points(share: Interval) -> str:
    """Return a difference of shares in points, with its sign."""
    return percent(share, "+")


def interval(share: Interval) -> str:
    """Its 95 % interval in percent."""
    if share.low is None or share.high is None:
        return DASH
    return " to ".join(f"{100 * end:z.{_digits(share)}f}" for end in (share.low, share.high))


def plain_percent(value: float | None) -> str:
    """Return a share without an interval in percent; a dash for none."""
    return DASH if value is None else f"{100 * value:.0f}"


def estimate(share: Interval) -> str:
    """Return a share from 0 to 1 with its interval: ``0.61 [0.58, 0.64]``."""
    if share.value is None or share.low is None or share.high is None:
        return plain_share(share.value)
    return f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"


def plain_share(value: float | None) -> str:
    """Return a share from 0 to 1 without an interval; a dash for none."""
    return DASH if value is None else f"{value:.2f}"


def _digits(share: Interval) -> int:
    if share.low is None or share.high is None:
        return 0
    return 1 if 0 < share.high - share.low < 0.02 else 0


Value = str | Callable[[Any], Any]
"""What a column has of a record: a function of it, or the dotted name of an attribute."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what it holds of a record, and how every form shows it."""

    name: str  # in CSV and data frames; empty where only people see it
    value: Value  # of a record
    label: str | None = None  # above it on the terminal; None where only programs see it
    text: Callable[[Any], str] = str  # writes a value for people
    # writes the interval of an estimate, in a column of its own behind it
    ends: Callable[[Any], str] | None = None
    left: bool = False  # whether it stands at the left, as words do
    when: bool = True  # whether people see it
    cells: Callable[[Any], Row] | None = None  # of CSV, by their names, where a value has several

    def under(self, part: Callable[[Any], Any]) -> Column:
        """Take it of a part of each record."""
        return replace(self, value=lambda record: self.of(part(record)))

    def hidden(self) -> Column:
        """Leave it to programs."""
        return replace(self, when=False)

    def of(self, record: Any) -> Any:
        """Take its value of a record."""
        return self.value(record) if callable(self.value) else attrgetter(self.value)(record)

    def row(self, value: Any) -> Row:
        """Write a value for programs."""
        if self.cells is not None:
            return self.cells(value)
        return {self.name: value} if self.name else {}


def plain(*names: str, of: Callable[[Any], Any] = lambda record: record) -> list[Column]:
    """List attributes of a record, or of a part of it, for programs, under their own names."""
    return [Column(name, name).under(of) for name in names]


def head_column(layout: Layout, value: Value = "head") -> Column:
    """Say which head a record is of."""

    def cells(head: Head | None) -> Row:
        return which_head(layout) if head is None else which_head(layout, head)

    return Column("head", value, "head", layout.name, left=True, cells=cells)


def estimate_column(
    name: str,
    value: Value,
    label: str | None = None,
    text: Callable[[Any], str] = str,
    ends: Callable[[Any], str] | None = None,
    *,
    when: bool = True,
) -> Column:
    """Show an estimate; programs have its value and both ends of its interval."""
    return Column(name, value, label, text, ends, when=when, cells=partial(spread, name))


def mean_column(
    name: str, value: Value, label: str | None = None, text: Callable[[Any], str] = str
) -> Column:
    """Show an estimate of which programs have the value alone."""
    return Column(name, value, label, text, cells=lambda share: {name: share and share.value})


@dataclass(frozen=True)
class Listing:
    """Columns, and the records that have a row each."""

    columns: Sequence[Column]  # from the left. records: from above.
    records: Sequence[Any] = ()
    # of which records only the first ``kept`` columns that people see are known
    unknown: Callable[[Any], bool] = field(default=lambda _: False)
    kept: int = 2
    # which of the others are dim for people
    dim: Callable[[Any], bool] = field(default=lambda _: False)

    def rows(self) -> list[Row]:
        """Write every record for programs, None for what is not known."""
        return [
            {k: v for column in self.columns for k, v in column.row(column.of(record)).items()}
            for record in self.records
        ]

    def names(self) -> list[str]:
        """Name the columns for programs, where there may be no record."""
        return [name for column in self.columns for name in column.row(None)]

    def table(self, top: int | None = None, **shape: Any) -> Table:
        """Draw a table for people of so many records; ``shape`` as for ``console.table_of``."""
        from rich.text import Text

        from attnviz.drawing.console import table_of

        columns = [column for column in self.columns if column.label is not None and column.when]
        table = table_of(*_headings(columns), **shape)
        for record in self.records[:top]:
            count = len(columns) if not self.unknown(record) else self.kept
            cells = [*_texts(columns[:count], record)]
            cells += [DASH] * (len(table.columns) - len(cells))
            style = "dim" if count < len(columns) or self.dim(record) else ""
            table.add_row(*map(Text, cells), style=style)
        return table


def _headings(columns: Iterable[Column]) -> Iterable[str]:
    for column in columns:
        yield f"{'' if column.left else '>'}{column.label}"
        if column.ends is not None:
            yield ">95 %"


def _texts(columns: Iterable[Column], record: Any) -> Iterable[str]:
    for column in columns:
        value = column.of(record)
        yield DASH if value is None else column.text(value)
        if column.ends is not None:
            yield DASH if value is None else column.ends(value)


def by_case(
    result: Any, cases: Iterable[Any], directions: Sequence[str], settings: Mapping[str, str]
) -> Figures:
    """Take what two runs are compared by: every head on each case, both ways, and its roles."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {name(head): {} for head in result.layout}
    for case in cases:
        for score in case.heads:
            for direction in directions:
                values[name(score.head)][f"{case.name} {direction}"] = getattr(score, direction)
    roles = {
        name(head): frozenset(role.title for role, _ in held)
        for head, held in result.annotated_roles().items()
    }
    return Figures(values, roles, settings)


def by_head(
    layout: Layout, records: Iterable[Any], **values: str
) -> dict[str, dict[str, float | None]]:
    """Take what two runs are compared by: values of every head, by names of attributes."""
    paths: Mapping[str, str] = values
    return {
        layout.name(record.head): {name: attrgetter(path)(record) for name, path in paths.items()}
        for record in records
    }
