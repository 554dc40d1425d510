"""``attnviz explain``: why did the model say that?"""

from __future__ import annotations

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import InputOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.drawing.paper import Paper
from attnviz.features.explain.result import Explain, ExplainSettings


@command
def explain(
    prompt: InputOptions,
    settings: ExplainSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Explain why the model predicts a word: who votes for it, how they find it, what it needs.

    [bold]Examples[/]

      attnviz explain "the cat river moon stone bread the cat river moon stone"

      attnviz explain "the cat river moon stone the cat river moon" -o why.html

      attnviz explain "The keys to the cabinet" --answer were --against was

      attnviz explain "The cat sat on the [MASK]." --model demo-bert
    """
    from attnviz.features.explain import function

    with output.running(Explain) as tell:
        text = prompt.read(model, seed=prompt.drawn(settings.seed), quiet=output.quiet)
        result = function.explain(text, progress=tell, settings=settings, model=model)
    output.deliver(result, paper.options(), top=table.first, everything=table.everything)
