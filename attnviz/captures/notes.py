"""What a reader must know beside what was looked at, as full sentences."""

from __future__ import annotations

from attnviz.core.prompt import Inputs


def notes(inputs: Inputs, empty_rows: int = 0) -> tuple[str, ...]:
    """What was cut or left out, and rows without a key."""
    said = list(inputs.notes)
    if empty_rows:
        rows = "row has" if empty_rows == 1 else "rows have"
        said.append(f"{empty_rows} query {rows} no key to attend to: their weights are all zero.")
    return tuple(said)
