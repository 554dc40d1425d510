"""``attnviz coref``: which heads know whom a pronoun means?"""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import FilesOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import like
from attnviz.corpus.gold.settings import CorefSettings
from attnviz.drawing.paper import Paper


@dataclass(frozen=True)
class CorefFiles(FilesOptions):
    """The gold annotation."""

    files: tuple[str, ...] = like(
        FilesOptions,
        "files",
        help="Tables as those of GAP (.tsv) or CoNLL-U with the entities of CorefUD, patterns, - "
        "for stdin.",
    )


@command
def coref(
    inputs: CorefFiles,
    settings: CorefSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Compare where heads look with what pronouns, names and other mentions refer to.

    [bold]Examples[/]

      attnviz coref sample_inputs/pronouns.tsv --model demo-bert --out coref.png

      attnviz coref sample_inputs/treebank.conllu --candidates mentions

      attnviz coref sample_inputs/pronouns.tsv --split all --json
    """
    from attnviz.features.coref import function
    from attnviz.features.coref.result import Coref

    with output.running(Coref) as tell:
        result = function.coref(inputs.files, progress=tell, settings=settings, model=model)
    output.deliver(result, paper.options(), top=table.rows)
