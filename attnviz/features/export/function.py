"""``attnviz.export_maps``: the maps of many texts as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnviz import files
from attnviz.captures.look import DEFAULT_MODEL, Model, load
from attnviz.core.source import Source
from attnviz.corpus import texts
from attnviz.errors import UsageError
from attnviz.features.evidence import Evidence, read_evidence
from attnviz.features.export import inputs as reading
from attnviz.features.export import run
from attnviz.features.export.execution import Execution
from attnviz.features.export.run import Exported, Progress
from attnviz.features.export.settings import ExportSettings
from attnviz.models.identity import identity
from attnviz.models.weighed import weighed


def export_maps(
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    settings: ExportSettings | None = None,
    execution: Execution | None = None,
    column: str | None = None,
    recorded: bool = False,
    evidence: Evidence | Sequence[Evidence] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Draw the maps of many texts into a folder, fast, resumable, each file whole or not at all.

    Args:
        inputs: text files (a sentence a line), JSONL, CSV or TSV, patterns, ``-`` for standard
            input.
        out: the folder. Running the same export again goes on where it stopped.
        model: see :func:`load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        settings: which heads, which pictures, how they look; ``settings.style.quantity`` is what
            they show, see :func:`capture`, drawn as it is and scored by shares of rows.
        execution: how many processes, what to do about bad lines and folders in use.
        column: the column or field with the text, for tables and JSONL.
        recorded: the inputs are recorded attention.
        evidence: see :func:`attnviz.heads`; their roles stand in titles, and ``settings.role`` may
            name them.
        progress: called again and again with what is done.

    Returns:
        What was done; ``bad`` lists the inputs that could not be used.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
        ExportInterrupted: a KeyboardInterrupt, after the folder was brought in order.
    """
    names = texts.resolve(files.listed(inputs))
    if not recorded:
        reading.check_texts(names)
    settings = settings or ExportSettings()
    weigh = settings.style.quantity
    if recorded and weigh != "weights":
        raise UsageError("recorded attention shows what it holds; leave out {weigh}", weigh=weigh)

    def source() -> Source:
        return weighed(load(model, device=device, dtype=dtype), weigh, shares=False)

    read = reading.read_recorded(names) if recorded else texts.read(names, column=column)
    return run.export(
        read,
        Path(out),
        None if recorded else source,
        settings,
        execution or Execution(),
        read_evidence(evidence),
        {} if recorded else identity(model),
        progress or (lambda result: None),
    )
