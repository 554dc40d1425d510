"""``attnviz syntax``: which heads follow grammar?"""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import FilesOptions
from attnviz.cli.output import Output
from attnviz.core.settings import like
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.drawing.paper import Paper


@dataclass(frozen=True)
class TreebankFiles(FilesOptions):
    """The gold annotation."""

    files: tuple[str, ...] = like(
        FilesOptions, "files", help="CoNLL-U files, patterns, - for stdin."
    )


@command
def syntax(
    inputs: TreebankFiles,
    settings: SyntaxSettings,
    model: ModelSettings,
    output: Output,
    paper: Paper,
) -> None:
    """Compare where heads look with the dependencies of a treebank.

    A picture shows the heads of relations, or with --sentences those sentences with their arcs.

    [bold]Examples[/]

      attnviz syntax sample_inputs/treebank.conllu --model demo-bert

      attnviz syntax sample_inputs/treebank.conllu --sentences 3 -o arcs.svg

      attnviz syntax sample_inputs/treebank.conllu --control --also trees,combined
    """
    from attnviz.drawing.renderable import FORMS
    from attnviz.features.syntax import function
    from attnviz.features.syntax.result import Syntax

    with output.running(Syntax) as tell:
        result = function.syntax(inputs.files, progress=tell, settings=settings, model=model)
    for path in output.out or ():
        picture = FORMS[path.suffix.lower()] == "figure"
        drawing = result.arcs() if picture and settings.sentences else result
        drawing.save(path, **paper.options())
    output.show(result, relation=settings.relation)
