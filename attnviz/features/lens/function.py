"""``attnviz.lens``: what each layer already knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import answering, light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.errors import UsageError
from attnviz.features.lens.result import Lens, LensSettings
from attnviz.features.lens.run import run
from attnviz.features.lens.writes import run_heads


@interface
def lens(
    text: Input | Iterable[Input],
    *,
    settings: LensSettings,
    model: ModelSettings,
    progress: Callable[[int], None] = lambda done: None,
) -> Lens:
    """Read the state after every layer as if it were the last: what each layer already knows.

    Every state [D] goes through the last normalization and the LM head of the model itself; the
    last one gives the model's own logits, which is checked at every run (1e-4 of the largest, 0.05
    in half precision). Beside the words stand the entropy and D(last ∥ this), both in nats. Of an
    encoder-decoder model the decoder is read, of a masked model the state at each mask.

    Args:
        text: a text or prompt; with ``by="head"`` also several.
        progress: called with how many texts are done, where heads are read.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head, or one
            whose states cannot be read.

    Source:
        nostalgebraist 2020, "interpreting GPT: the logit lens"; of single heads Elhage et al. 2021,
        "A Mathematical Framework for Transformer Circuits". No lens is trained (Belrose et al.
        2023, arXiv:2303.08112, do that).
    """
    lacks = "holds no states, since those need the model"
    prompts, model = prompts_of(text, lacks, model)
    if settings.by == "layer" and len(prompts) != 1:
        raise UsageError(
            "layers are read on one text, and there are {}; give one, or read what heads write on "
            "all of them with {by}",
            len(prompts),
            by="head",
        )
    source = light(answering(model.load()))
    inputs = [source.prepare(prompt) for prompt in prompts]
    if settings.by == "head":
        result = run_heads(source, inputs, settings, progress)
    else:
        result = run(source, inputs[0], settings)
    return replace(result, identity=model.identity)
