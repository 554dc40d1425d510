"""``attnviz lens``: what each layer already knows."""

from __future__ import annotations

from attnviz.captures.settings import ModelSettings
from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output
from attnviz.core.settings import Seeded
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.lens.result import Lens, LensSettings


@command
def lens(
    prompt: TextsOptions,
    settings: LensSettings,
    model: ModelSettings,
    seeded: Seeded,
    output: Output,
    paper: Paper,
) -> None:
    """Logit lens: decode the residual stream after every layer as if it were the last.

    [bold]Examples[/]

      attnviz lens "Mary gave a clock to Peter" --answer clock --position -1

      attnviz lens "The cat sat on the [MASK]." --model demo-bert -o lens.html

      attnviz lens --texts sample_inputs/sentences.txt --by head -o heads.html
    """
    from attnviz.features.lens import function

    output.check_written(Lens)
    if settings.by == "layer" and prompt.texts is not None:
        raise UsageError("--texts is for --by head; layers are read on one text")
    texts = list(prompt.read_all(model, seed=prompt.drawn(seeded.seed), quiet=output.quiet))
    with console.waiting("running the model", output.quiet):
        result = function.lens(texts, settings=settings, model=model)
    output.deliver(result, paper.options())
