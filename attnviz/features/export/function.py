"""``attnviz.export``: the maps of many texts as files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from attnviz.captures.loading import light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.interface import interface
from attnviz.core.quantities import check_unsigned
from attnviz.core.source import Source
from attnviz.corpus import texts
from attnviz.corpus.executors import Stopping
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.export import scored
from attnviz.features.export.plan import Folder
from attnviz.features.export.run import Exported, ExportInterrupted, Progress, Run
from attnviz.features.export.settings import ExportRun, ExportSettings
from attnviz.features.results import read_evidence
from attnviz.files import listed
from attnviz.models.norm_based import with_quantity


@interface
def export(
    files: str | Path | Sequence[str | Path],
    out_dir: str | Path,
    *,
    settings: ExportSettings,
    style: Style,
    how: ExportRun,
    attaching: Attaching,
    model: ModelSettings,
    progress: Progress = lambda result: None,
) -> Exported:
    """Draw the maps of many texts into a folder, fast, resumable, each file whole or not at all.

    Args:
        files: text files (a sentence a line), JSONL, CSV or TSV, patterns, ``-`` for standard
            input; with ``recorded`` recorded attention.
        out_dir: the folder. Running the same export again goes on where it stopped.
        progress: called again and again with what is done.

    Returns:
        What was done; ``bad`` lists the inputs that could not be used.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
        ExportInterrupted: a KeyboardInterrupt, after the folder was brought in order.
    """
    names, quantity = texts.resolve(listed(files)), settings.quantity
    if not how.recorded:
        scored.check_texts(names)
    elif quantity != "weights":
        raise UsageError(
            "recorded attention shows what it holds; leave out {quantity}", quantity=quantity
        )
    elif how.column is not None:
        raise UsageError("{recorded} has no {column}; leave it out", recorded=..., column=...)

    check_unsigned(quantity, "an export")
    if not how.recorded:
        model.expect(settings.check_heads)

    def source() -> Source:
        return with_quantity(light(model.load()), quantity, shares=False)

    inputs = scored.read_recorded(names) if how.recorded else texts.read(names, column=how.column)
    settings = settings.but(style=style.but(quantity=quantity))
    annotation = scored.Annotation(
        read_evidence(attaching.evidence), {} if how.recorded else model.identity
    )
    annotation.check_role(settings.role)
    folder = Folder(Path(out_dir), force=how.force)
    result = Exported(folder.path, notes=annotation.notes())
    start = time.perf_counter()
    with closing(folder):
        with Stopping() as stop:
            try:
                run = Run(folder, settings, how, annotation, result, progress, stop)
                run.go(inputs, None if how.recorded else source)
            except KeyboardInterrupt:
                raise ExportInterrupted(result) from None
            finally:
                result.seconds = time.perf_counter() - start
        if stop.asked():
            raise ExportInterrupted(result)
        return result
