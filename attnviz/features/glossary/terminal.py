"""Terms on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from attnviz.core.glossary import Term


def definition(one: Term) -> Iterator[Text]:
    """What a term means, other names of it, and where it is from."""
    also = f" (also: {', '.join(one.also)})" if one.also else ""
    yield Text.assemble((one.name, "bold"), (also, "dim"))
    yield Text(one.text)
    if one.source:
        yield Text(one.source, "dim")


def listed(all_: Sequence[Term]) -> Table:
    """Every term with its other names."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for one in all_:
        table.add_row(one.name, Text(", ".join(one.also), "dim"))
    return table
