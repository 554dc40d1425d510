"""``attnviz retrieval``: which heads copy a needle out of a long text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Settings, setting
from attnviz.drawing.paper import Paper
from attnviz.features.retrieval.result import Retrieval, RetrievalSettings


@dataclass(frozen=True)
class NeedlesFile(Settings):
    """The needles, where they are not drawn."""

    needles: Path | None = setting(
        None,
        "A .jsonl file of needles, in place of random words. Its fields: needle, question, and "
        "where wanted answer and haystack.",
        metavar="[FILE]",
        argument=True,
    )


@command
def retrieval(
    needles: NeedlesFile,
    settings: RetrievalSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Find the heads that copy a needle out of a long text, and see what is lost without them.

    [bold]Examples[/]

      attnviz retrieval --lengths 60,120 --depths 0,0.5,1 -o needles.png

      attnviz retrieval sample_inputs/needles.jsonl --rank-by query

      attnviz retrieval --lengths 60 --count 4
    """
    from attnviz.features.retrieval import function

    with output.running(Retrieval) as tell:
        result = function.retrieval(needles.needles, progress=tell, settings=settings, model=model)
    output.deliver(result, paper.options(), top=table.rows)
