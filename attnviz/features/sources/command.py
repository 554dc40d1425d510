"""``attnviz sources``: where a head's query and key come from."""

from __future__ import annotations

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output
from attnviz.drawing.paper import Paper
from attnviz.features.sources.result import Sources, SourceShares, SourcesSettings


@command
def sources(
    prompt: TextsOptions,
    settings: SourcesSettings,
    model: ModelSettings,
    output: Output,
    paper: Paper,
) -> None:
    """Split a head's attention score by what its query and key come from: embeddings, heads, MLPs.

    [bold]Examples[/]

      attnviz sources "the cat river moon the cat river" --select 2.0

      attnviz sources "the cat river the cat" -s 2.0 --query 4 --key 1

      attnviz sources --texts sample_inputs/sentences.txt --select 2.0
    """
    from attnviz.features.sources import function

    many = prompt.texts is not None
    parts = prompt.parts(model, settings.split)
    with output.running(SourceShares if many else Sources) as tell:
        texts = list(prompt.read_all(model, seed=prompt.drawn(settings.seed), quiet=output.quiet))
        result = function.sources(
            texts if many else texts[0], parts=parts, progress=tell, settings=settings, model=model
        )
    output.deliver(result, paper.options())
