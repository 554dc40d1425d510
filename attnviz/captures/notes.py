"""What a reader must know beside what was looked at, as full sentences."""

from __future__ import annotations

from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.errors import Message, Setting
from attnviz.models.demo import DEMOS


def notes(inputs: Inputs, source: SourceInfo, empty_rows: int) -> tuple[str, ...]:
    """What was cut or left out, rows without a key, and that a model is a small one.

    Args:
        inputs: the text.
        source: the model.
        empty_rows: query rows that had no key to attend to.
    """
    said = list(inputs.notes)
    if empty_rows:
        rows = "row has" if empty_rows == 1 else "rows have"
        said.append(f"{empty_rows} query {rows} no key to attend to: their weights are all zero.")
    if source.model in DEMOS and source.backend != "recorded":
        said.append(
            Message(
                "{} is a small model trained for teaching. For a well-known one: {}, or {}.",
                source.model,
                Setting("model", "bert-base-uncased"),
                Setting("model", "gpt2"),
            )
        )
    return tuple(said)
